import math

import pytest
import torch
from torch import Tensor, nn

from invint import ConfigError, Cyclic, Dihedral, ShapeError
from invint.nn import GroupConv2d, LiftConv2d
from invint.testing import (
    assert_equivariant,
    assert_invariant,
    equivariance_error,
    move,
    rotate_features,
)


def test_moving_composes_like_the_group() -> None:
    group = Dihedral(4)
    x = torch.randn(1, 2, 8, 5, 6)
    by_element = {symmetry.element: symmetry for symmetry in group.grid_symmetries}
    for a in group.grid_symmetries:
        for b in group.grid_symmetries:
            product = by_element[group.quotients[group.quotients[a.element][0]][b.element]]
            assert torch.equal(move(move(x, group, b), group, a), move(x, group, product))


def test_an_ordinary_convolution_is_caught() -> None:
    layer = nn.Conv2d(1, 2, 3, padding=1).double()
    x = torch.randn(1, 1, 6, 6, dtype=torch.float64)
    with pytest.raises(AssertionError, match=r"^off by .* under a turn by 90°, at values up to"):
        assert_equivariant(layer, x, Cyclic(8))
    assert_equivariant(layer, x, Cyclic(1))  # nothing to be equivariant to


def test_a_small_fault_is_caught() -> None:
    layer = LiftConv2d(1, 2, 3, Cyclic(4)).double()
    layer.basis[1] *= 1 + 1e-11
    with pytest.raises(AssertionError, match="rounding allows"):
        assert_equivariant(layer, torch.randn(1, 1, 6, 6, dtype=torch.float64), Cyclic(4))


def test_nothing_is_no_number() -> None:
    with pytest.raises(AssertionError, match="off by nan"):
        assert_invariant(lambda x: x.sum() * math.nan, torch.randn(1, 1, 5, 5), Cyclic(4))


def test_a_shape_that_does_not_turn_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"has shape \(1, 1, 6, 4\), expected \(1, 1, 4, 6\)"):
        assert_equivariant(lambda x: x.reshape(1, 1, 6, 4), torch.randn(1, 1, 6, 4), Cyclic(4))


def test_invariance_is_told_from_equivariance() -> None:
    x = torch.randn(2, 3, 6, 6)
    assert_equivariant(torch.relu, x, Dihedral(4))
    assert_invariant(lambda x: x.amax((2, 3)), x, Dihedral(4))
    with pytest.raises(AssertionError, match="off by"):
        assert_invariant(torch.relu, x, Dihedral(4))


def test_refuses_an_input_that_proves_nothing() -> None:
    with pytest.raises(ConfigError, match="does not change under a turn by 90°; use random"):
        assert_equivariant(torch.relu, torch.ones(1, 1, 5, 5), Cyclic(4))


def test_refuses_what_it_cannot_move() -> None:
    with pytest.raises(ShapeError, match=r"move: expected axes b c h w or b c g h w, got shape"):
        assert_invariant(torch.relu, torch.ones(3, 5, 5), Cyclic(4))


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(8)], ids=str)
def test_turning_features_by_quarters_is_moving_them(group: Cyclic | Dihedral) -> None:
    x = torch.randn(1, 2, group.order, 7, 7, dtype=torch.float64)
    for symmetry in group.grid_symmetries[:4]:
        turned = rotate_features(x, symmetry.quarter_turns * math.pi / 2, group)
        torch.testing.assert_close(turned, move(x, group, symmetry), rtol=0, atol=1e-12)


def smooth(side: int = 25) -> Tensor:
    axis = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    y, x = torch.meshgrid(-axis, axis, indexing="ij")
    blob = torch.exp(-((x - 3) ** 2 + (y - 1) ** 2) / 12) - torch.exp(-((x + 2) ** 2 + y**2) / 18)
    return blob[None, None]


def test_the_error_is_zero_at_quarter_turns_and_tells_a_fault_between_them() -> None:
    group = Cyclic(16)
    model = nn.Sequential(LiftConv2d(1, 4, 7, group), GroupConv2d(4, 4, 7, group)).double()
    assert equivariance_error(model, smooth(), group, math.pi / 2) < 1e-12
    unshifted = GroupConv2d(4, 4, 7, group).double()
    unshifted.quotients = torch.arange(16).expand(16, 16)
    faulty = nn.Sequential(model[0], unshifted)
    for angle in (math.pi / 16, math.pi / 8, math.pi / 4):  # half a step, one step, two steps
        error = equivariance_error(model, smooth(), group, angle, margin=6.0)
        assert 1e-4 < error < equivariance_error(faulty, smooth(), group, angle, margin=6.0) / 2


def test_flat_outputs_are_compared_as_they_are() -> None:
    total = equivariance_error(lambda x: x.sum((2, 3)), smooth(), Cyclic(8), math.pi / 4)
    assert 0 < total < 0.01
