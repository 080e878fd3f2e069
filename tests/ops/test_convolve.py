"""A convolution computed as the gradient of another one: the same numbers, the same gradients."""

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import conv2d

from invint import Cyclic
from invint.nn import GroupConv2d
from invint.ops import convolve as module
from invint.ops.convolve import convolve


@pytest.fixture
def as_gradient(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Decide as on a GPU in half precision, and say for which maps."""
    asked: list[Tensor] = []

    def decide(x: Tensor, _: Tensor) -> bool:
        asked.append(x)
        return True

    monkeypatch.setattr(module, "_better_as_gradient", decide)
    return asked


def operands(size: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(2, 3, 8, 7, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(4, 3, size, size, dtype=torch.float64, requires_grad=True)
    return x, filters, torch.randn(4, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize(("size", "padding"), [(5, 2), (3, 0), (3, 2), (2, 1)])
def test_numbers_and_gradients_are_those_of_conv2d(
    size: int,
    padding: int,
    product: bool,
    as_gradient: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_better_as_product", lambda _: product)
    inputs = operands(size)
    expected = conv2d(*inputs, padding=padding)
    actual = convolve(*inputs, padding=padding)
    assert as_gradient
    torch.testing.assert_close(actual, expected)
    weight = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, inputs, weight), torch.autograd.grad(expected, inputs, weight)
    )


@pytest.mark.parametrize(("size", "stride", "padding"), [(1, 1, 0), (3, 2, 0), (3, 1, 3)])
def test_what_does_not_fit_is_convolved_as_ever(
    size: int, stride: int, padding: int, as_gradient: list[Tensor]
) -> None:
    x, filters, bias = operands(size)
    expected = conv2d(x, filters, bias, stride=stride, padding=padding)
    assert torch.equal(convolve(x, filters, bias, stride=stride, padding=padding), expected)
    assert not as_gradient


@pytest.mark.usefixtures("as_gradient")
def test_has_second_derivatives_and_those_of_torch_func() -> None:
    x, filters, _ = operands(3)
    assert torch.autograd.gradgradcheck(lambda x, f: convolve(x, f, padding=1), (x, filters))

    def ours(filters: Tensor, x: Tensor) -> Tensor:
        return convolve(x[None], filters, padding=1).square().sum()

    def plain(filters: Tensor, x: Tensor) -> Tensor:
        return conv2d(x[None], filters, padding=1).square().sum()

    each = [vmap(grad(loss), (None, 0))(filters, x) for loss in (ours, plain)]
    assert each[0].shape == (2, *filters.shape)
    torch.testing.assert_close(*each)


@pytest.mark.usefixtures("as_gradient")
def test_autocast_casts_as_it_would_for_conv2d() -> None:
    x, filters, bias = (each.detach().float() for each in operands(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = convolve(x, filters, bias, padding=1)
        torch.testing.assert_close(out, conv2d(x, filters, bias, padding=1), rtol=0.05, atol=0.05)
    assert out.dtype == torch.bfloat16


@pytest.mark.unchecked
@pytest.mark.slow
@pytest.mark.usefixtures("as_gradient")
def test_compiles_to_one_graph() -> None:
    layer = GroupConv2d(2, 3, 3, Cyclic(4)).double()
    x = torch.randn(2, 2, 4, 5, 5, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    (ours,), (plain,) = (
        torch.autograd.grad(call(x).square().sum(), [x]) for call in (compiled, layer)
    )
    torch.testing.assert_close(ours, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_a_gpu_convolves_as_written(half: torch.dtype) -> None:
    x = torch.randn(4, 16, 12, 12, device="cuda", requires_grad=True)
    filters = torch.randn(24, 16, 5, 5, device="cuda", requires_grad=True)
    expected = conv2d(x.double(), filters.double(), padding=2)
    with torch.autocast("cuda", half):
        actual = convolve(x, filters, padding=2)
        doubled = convolve(x.double(), filters.double(), padding=2)
    assert actual.dtype == half
    assert torch.equal(doubled, expected)  # autocast leaves them alone
    weight = torch.randn_like(expected)
    ours = torch.autograd.grad(actual, (x, filters), weight.to(half))
    theirs = torch.autograd.grad(expected, (x, filters), weight)
    for one, other in zip([actual, *ours], [expected, *theirs], strict=True):
        assert (one.double() - other).norm() < 0.01 * other.norm()
