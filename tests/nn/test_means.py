"""Heads that average by generalised means: what they compute, and where they begin."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from invint import ConfigError, Cyclic, Dihedral, Group, ShapeError
from invint.nn import GeneralisedMean, make_head
from invint.ops.grids import bilinear_matrix, grid_points, moved_points
from invint.testing import assert_invariant

KINDS = ("power", "exp")
each_kind = pytest.mark.parametrize("kind", KINDS)


def unsettled(kind: Any, group: Group, **options: Any) -> GeneralisedMean:
    """Return a head that is not as it begins."""
    head = GeneralisedMean(2, 5, group, kind, **options).double()
    with torch.no_grad():
        head.weight.normal_()
        head.level.uniform_(-1, 2)
    return head


@each_kind
@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(8), Dihedral(3)], ids=str)
def test_matches_the_definition(kind: str, group: Group) -> None:
    head = unsettled(kind, group)
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    torch.testing.assert_close(head(x).detach(), by_loops(head, x))


def by_loops(head: GeneralisedMean, x: Tensor) -> Tensor:
    """Write out the mean, with the map sampled around every pixel for every element."""
    out = torch.zeros(len(x), head.channels, dtype=torch.float64)
    height, width = x.shape[-2:]
    around = grid_points(head.kernel_size, head.kernel_size)
    for b, o in itertools.product(range(len(x)), range(head.channels)):
        values = []
        for element in head.group.elements:
            moved = moved_points(around, element)
            for centre in grid_points(height, width):
                sampled = x[b].flatten(1) @ bilinear_matrix(centre + moved, height, width).T
                values.append(float((head.weight[o].detach() * sampled).sum()))
        degree = head.degree[o].item()
        if head.kind == "power":
            total = sum(max(value, 0.0) ** degree for value in values)
            out[b, o] = (total / len(values)) ** (1 / degree)
        else:
            total = sum(math.exp(degree * value) for value in values)
            out[b, o] = math.log(total / len(values)) / degree
    return out


@each_kind
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("group", [Cyclic(4), Cyclic(16), Dihedral(4)], ids=str)
def test_stays_as_the_map_turns(kind: str, kernel_size: int, group: Group) -> None:
    head = unsettled(kind, group, kernel_size=kernel_size)
    for size in ((5, 5), (6, 9)):
        x = torch.randn(2, 2, *size, dtype=torch.float64)
        assert_invariant(head, x, group)
        assert (head(x.rot90(1, (-2, -1))) - head(x)).abs().max() <= 1e-9


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4)], ids=str)
def test_begins_where_max_pooling_begins(kernel_size: int, group: Group) -> None:
    x = torch.randn(9, 4, 7, 7, dtype=torch.float64).relu()
    options: dict[str, Any] = {"channels": 4, "size": 7, "group": group, "kernel_size": kernel_size}
    powers, exponentials = (make_head(f"{kind}-mean", **options).double() for kind in KINDS)
    shares, gaps = powers(x) / x.amax((-2, -1)), x.amax((-2, -1)) - exponentials(x)
    assert 49 ** (-1 / 50) - 1e-6 <= shares.min() <= shares.max() <= 1  # 0.93; 50 is in float32
    assert 0 <= gaps.min() <= gaps.max() <= math.log(49) / 50 + 1e-6  # 0.08


@each_kind
def test_everything_is_learned_and_the_degree_stays_in_its_range(kind: Any) -> None:
    head, x = GeneralisedMean(3, 5, Cyclic(4), kind, degree=2.0), torch.rand(4, 3, 5, 5)
    optimizer = torch.optim.SGD([head.level], lr=5.0)
    for _ in range(20):
        head.zero_grad()
        head(x).sum().backward()  # towards the mean, as far as it goes
        assert all(each.grad.isfinite().all() for each in head.parameters())  # type: ignore[union-attr]
        optimizer.step()
        assert (head.degree > head.least).all()
    assert (head.degree < 1.5).all()
    assert head.weight.grad.all()  # type: ignore[union-attr]
    head.level.data.fill_(-1e3)
    expected = x.mean((-2, -1))
    torch.testing.assert_close(head(x), expected, rtol=1e-4, atol=1e-4)


@each_kind
@pytest.mark.parametrize("kernel_size", [1, 3])
def test_gradients(kind: str, kernel_size: int) -> None:
    head = unsettled(kind, Dihedral(2), kernel_size=kernel_size)
    x = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)

    def respond(x: Tensor, weight: Tensor, level: Tensor) -> Tensor:
        named = {"weight": weight, "level": level}
        out: Tensor = torch.func.functional_call(head, named, (x,))
        return out

    assert torch.autograd.gradcheck(respond, (x, head.weight, head.level))


def test_a_kernel_of_one_pixel_is_sampled_once() -> None:
    head = GeneralisedMean(2, 5, Cyclic(8), "exp", kernel_size=1)
    assert head.samples.shape == (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "power-mean",
            {"power": 1.0},
            r"power must be above 1 and at most 10000, got 1; for the p",
        ),
        ("power-mean", {"power": 2e4}, r"power must be above 1 and at most 10000, got 20000"),
        ("power-mean", {"power": math.nan}, r"power must be above 1 and at most 10000, got nan"),
        (
            "exp-mean",
            {"sharpness": 0.0},
            r"sharpness must be above 0 .*'avg', for the maximum 'max",
        ),
        ("exp-mean", {"sharpness": math.inf}, r"sharpness must be above 0 and .*, got inf"),
        ("exp-mean", {"kernel_size": 4}, r"kernel_size must be odd and at least 1, got 4; use 3"),
        (
            "exp-mean",
            {"kernel_size": 9},
            r"a kernel of 9 does not fit a map of 6 x 6; use kernel_s",
        ),
        (
            "power-mean",
            {"sharpness": 3.0},
            r"head 'power-mean' has no option 'sharpness'; it has p",
        ),
    ],
)
def test_says_what_is_wrong_with_an_option(
    name: str, options: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_head(name, channels=3, size=6, group=Cyclic(4), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.unchecked
def test_says_what_is_wrong_with_a_map_and_a_kind() -> None:
    with pytest.raises(ConfigError, match="GeneralisedMean: kind must be 'power' or 'exp', got 'p"):
        GeneralisedMean(3, 6, Cyclic(4), "pow")  # type: ignore[arg-type]
    head = GeneralisedMean(3, 6, Cyclic(4), "power", kernel_size=5)
    with pytest.raises(ShapeError, match=r"GeneralisedMean: expected a map of at least 5 x 5, .*4"):
        head(torch.zeros(1, 3, 4, 6))
