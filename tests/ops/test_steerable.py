import itertools
import math

import pytest
import torch
from torch import Tensor

from invint import ConfigError, Cyclic, Dihedral, Group
from invint.ops import steerable
from invint.ops.grids import permute_grid
from invint.ops.steerable import (
    Rings,
    averaged_filters,
    default_rings,
    turned_basis,
    turned_filters,
)

GROUPS = [Cyclic(1), Cyclic(3), Cyclic(4), Cyclic(8), Cyclic(16), Dihedral(1), Dihedral(6)]


def basis_by_loops(size: int, group: Group, rings: Rings) -> Tensor:
    """Write out the formula of `turned_basis` pixel by pixel."""
    half, out = size // 2, []
    for angle, flip in group.elements:
        functions = []
        for j, (limit, width) in enumerate(zip(rings.band_limits, rings.widths, strict=True)):
            for k in range(limit + 1):
                for wave in (math.cos, math.sin)[: 1 if k == 0 else 2]:
                    values, energy = torch.zeros(size, size, dtype=torch.float64), 0.0
                    for row, column in itertools.product(range(size), repeat=2):
                        x, y = column - half, half - row
                        ring = math.exp(-((math.hypot(x, y) - j) ** 2) / (2 * width**2))
                        ring *= k == 0 or (x, y) != (0, 0)
                        moved = (math.atan2(y, x) - angle) * (-1 if flip else 1)
                        values[row, column] = ring * wave(k * moved)
                        energy += ring**2 * (1 if k == 0 else 0.5)
                    functions.append(values / math.sqrt(energy))
        out.append(torch.stack(functions))
    return torch.stack(out)


@pytest.mark.parametrize("group", GROUPS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_basis_matches_its_definition(group: Group, size: int) -> None:
    rings = default_rings(size)
    expected = basis_by_loops(size, group, rings)
    torch.testing.assert_close(turned_basis(size, group, rings), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_symmetries_of_the_grid_permute_the_basis_bit_for_bit(group: Group) -> None:
    basis = turned_basis(7, group, default_rings(7)).float()
    for number, quarter_turns, flip in group.grid_symmetries:
        for g in range(group.order):
            product = group.quotients[group.quotients[number][0]][g]
            assert torch.equal(basis[product], permute_grid(basis[g], quarter_turns, flip))


def test_the_default_has_the_number_of_functions_of_the_paper() -> None:
    rings = default_rings(7)
    basis = turned_basis(7, Cyclic(16), rings)[0].flatten(1)
    assert rings.functions == 16
    assert len(basis) == torch.linalg.matrix_rank(basis) == 28
    assert torch.linalg.cond(basis) < 3


def test_functions_are_of_unit_norm_on_average_over_rotations() -> None:
    norms = turned_basis(7, Cyclic(720), default_rings(7)).square().sum(dim=(2, 3)).mean(0)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_waves_vanish_where_the_angle_is_undefined() -> None:
    centre = turned_basis(7, Cyclic(8), default_rings(7))[:, :, 3, 3]
    assert (centre != 0).any(0).sum() == 4  # one constant function per ring, and no wave
    assert torch.equal(centre, centre[:1].expand_as(centre))


def test_functions_that_vanish_on_the_grid_are_left_out() -> None:
    rings = Rings(band_limits=(0, 4), widths=(0.6, 0.01))  # only the four nearest pixels
    assert rings.functions == 6
    basis = turned_basis(3, Cyclic(1), rings)[0]
    assert len(basis) == 8  # of 10: sin 2φ and sin 4φ are zero on the axes
    assert basis.abs().amax(dim=(1, 2)).min() > 1e-9


@pytest.fixture(params=[False, True], ids=["cpu", "gpu"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The products as a CPU or as a GPU computes them; either can be tried anywhere."""
    monkeypatch.setattr(steerable, "_on_gpu", lambda _: request.param)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("group", [Cyclic(3), Cyclic(4), Dihedral(2), Dihedral(3)], ids=str)
def test_filters_match_the_printed_sum(group: Group) -> None:
    basis = turned_basis(3, group, default_rings(3))
    weight = torch.randn(2, 3, group.order, basis.shape[1], dtype=torch.float64)
    expected = torch.zeros(2, group.order, 3, group.order, 3, 3, dtype=torch.float64)
    for o, g, c, h, q in itertools.product(
        range(2), range(group.order), range(3), range(group.order), range(basis.shape[1])
    ):
        expected[o, g, c, h] += weight[o, c, group.quotients[g][h], q] * basis[g, q]
    actual = turned_filters(weight, basis, torch.tensor(group.quotients))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(4), Dihedral(3)], ids=str)
def test_averaged_filters_are_the_mean_of_the_turned_ones(group: Group) -> None:
    basis = turned_basis(3, group, default_rings(3))
    weight = torch.randn(2, 3, group.order, basis.shape[1], dtype=torch.float64)
    expected = torch.zeros(2, 3, group.order, 3, 3, dtype=torch.float64)
    for g, h, q in itertools.product(range(group.order), range(group.order), range(basis.shape[1])):
        share = weight[:, :, group.quotients[g][h], q] / group.order
        expected[:, :, h] += share[..., None, None] * basis[g, q]
    actual = averaged_filters(weight, basis, torch.tensor(group.quotients))
    torch.testing.assert_close(actual, expected)


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("group", [Cyclic(3), Dihedral(2)], ids=str)
def test_gradients_of_filters(group: Group) -> None:
    basis = turned_basis(3, group, default_rings(3))
    quotients = torch.tensor(group.quotients)
    weight = torch.randn(2, 1, group.order, basis.shape[1], dtype=torch.float64)
    weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: turned_filters(w, basis, quotients), weight)
    assert torch.autograd.gradgradcheck(lambda w: turned_filters(w, basis, quotients), weight)


@pytest.mark.parametrize(
    ("band_limits", "widths", "message"),
    [
        ((0, 2), (0.6,), r"Rings: expected one band limit and one width per ring, got 2 and 1"),
        ((), (), r"Rings: expected one band limit and one width per ring, got 0 and 0"),
        ((0, -1), (0.6, 0.6), r"Rings: band limits must not be negative, got \(0, -1\)"),
        ((0,), (0.0,), r"Rings: widths must be positive, got \(0.0,\)"),
    ],
)
def test_says_what_is_wrong_with_rings(
    band_limits: tuple[int, ...], widths: tuple[float, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Rings(band_limits, widths)


def test_refuses_rings_outside_the_filter() -> None:
    with pytest.raises(ConfigError, match="a filter of side 3 holds 2 rings, got 3"):
        turned_basis(3, Cyclic(4), default_rings(5))
