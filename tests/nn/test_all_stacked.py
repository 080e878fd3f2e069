"""Layers together: what a network made of them promises."""

import pytest
import torch
from torch import Tensor, nn

from invint import Cyclic, Dihedral, Group
from invint.nn import GroupBatchNorm, GroupConv2d, GroupDropout, GroupPool, LiftConv2d, SpatialPool
from invint.testing import assert_equivariant, assert_invariant

NUMBERS = [1, 2, 3, 4, 6, 8, 12, 16]
GROUPS = [kind(n) for kind in (Cyclic, Dihedral) for n in NUMBERS]


def five_layers(group: Group) -> nn.Sequential:
    """Five convolutions with normalisation, pooled twice, off the group at the end."""
    layers: list[nn.Module] = [LiftConv2d(1, 4, 5, group)]
    for number in range(4):
        layers += [GroupBatchNorm(4), nn.ReLU(), GroupDropout(0.1)]
        layers += [SpatialPool("max" if number else "mean")] if number % 2 == 0 else []
        layers += [GroupConv2d(4, 4, 1 + 2 * number, group, bias=True)]
    return nn.Sequential(*layers, GroupPool("max"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("side", [14, 15])
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_five_layers_turn_with_the_image(group: Group, side: int, dtype: torch.dtype) -> None:
    model = five_layers(group).to(dtype)
    model(torch.randn(4, 1, side, side, dtype=dtype))  # running statistics that are not 0 and 1
    x = torch.randn(2, 1, side, side, dtype=dtype)
    assert_equivariant(model.eval(), x, group)
    assert_invariant(lambda x: model(x).amax(dim=(2, 3)), x, group)


def test_five_layers_turn_with_an_image_that_is_not_square() -> None:
    model = five_layers(Dihedral(4)).double().eval()
    assert_equivariant(model, torch.randn(2, 1, 13, 18, dtype=torch.float64), Dihedral(4))


def ten_layers(group: Group) -> nn.Sequential:
    layers: list[nn.Module] = [LiftConv2d(1, 4, 5, group), GroupBatchNorm(4), nn.ReLU()]
    for _ in range(9):
        layers += [GroupConv2d(4, 4, 5, group), GroupBatchNorm(4), nn.ReLU()]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4)], ids=str)
def test_ten_normalised_layers_keep_gradients_of_one_order(group: Group) -> None:
    model = ten_layers(group)
    scales: list[float] = []

    def keep(module: nn.Module, arguments: tuple[Tensor, ...], out: Tensor) -> None:  # noqa: ARG001
        assert out.isfinite().all()
        out.register_hook(lambda gradient: scales.append(gradient.norm().item()))  # type: ignore[no-untyped-call]

    for layer in model:
        if isinstance(layer, nn.ReLU):
            layer.register_forward_hook(keep)
    out = model(torch.randn(8, 1, 16, 16))
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)))
    assert len(scales) == 10
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())  # type: ignore[union-attr]
    assert max(scales) < 10 * min(scales)
