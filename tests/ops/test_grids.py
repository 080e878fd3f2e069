import itertools
import math

import pytest
import torch
from torch import Tensor

from invint import parse_group
from invint.ops.grids import inscribed_disc, move_back, move_by, permute_grid, rotate


@pytest.mark.parametrize("shape", [(5, 5), (6, 6)])
@pytest.mark.parametrize("quarters", range(4))
def test_quarter_turns_only_move_pixels(shape: tuple[int, int], quarters: int) -> None:
    x = torch.randn(2, 3, *shape, dtype=torch.float64)
    turned = rotate(x, quarters * math.pi / 2)
    torch.testing.assert_close(turned, permute_grid(x, quarters, False), rtol=0, atol=1e-13)


@pytest.mark.parametrize("side", [5, 6, 28])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_image_takes_its_own_quarter_turn(side: int, dtype: torch.dtype) -> None:
    images = torch.rand(4, 2, side, side, dtype=dtype)
    turned = rotate(images, torch.arange(4, dtype=dtype) * math.pi / 2)
    for quarters in range(4):
        expected = permute_grid(images[quarters], quarters, False)
        tolerance = 100 * side * torch.finfo(dtype).eps
        torch.testing.assert_close(turned[quarters], expected, rtol=0, atol=tolerance)


def test_positive_angles_turn_counter_clockwise() -> None:
    x = torch.zeros(1, 1, 5, 5)
    x[..., 2, 4] = 1  # east
    assert rotate(x, math.pi / 2)[0, 0, 0, 2] == pytest.approx(1)  # north
    assert permute_grid(x, 1, False)[0, 0, 0, 2] == 1
    x = torch.zeros(1, 1, 5, 5)
    x[..., 0, 2] = 1  # north; the mirror takes it south, the turn east
    assert permute_grid(x, 1, True)[0, 0, 2, 4] == 1


@pytest.mark.parametrize("shape", [(4, 7), (5, 5)])
def test_bilinear_rotation_matches_its_definition(shape: tuple[int, int]) -> None:
    x = torch.randn(1, 1, *shape, dtype=torch.float64)
    expected = rotated_by_loops(x[0, 0], 0.4)
    torch.testing.assert_close(rotate(x, 0.4)[0, 0], expected)


@pytest.mark.parametrize("shape", [(5, 5), (4, 7)])
def test_each_image_is_rotated_by_its_own_angle(shape: tuple[int, int]) -> None:
    images = torch.rand(3, 2, *shape, dtype=torch.float64)
    angles = torch.tensor([0.4, -2.0, 3.0], dtype=torch.float64)
    expected = torch.stack(
        [
            torch.stack([rotated_by_loops(channel, angle) for channel in image])
            for image, angle in zip(images, angles.tolist(), strict=True)
        ]
    )
    torch.testing.assert_close(rotate(images, angles), expected)


def test_a_batch_turns_like_one_image() -> None:
    images, angles = torch.rand(5, 3, 9, 9), torch.linspace(0, 6, 5)
    for index, angle in enumerate(angles.tolist()):
        expected = rotate(images[index : index + 1], angle)[0]
        torch.testing.assert_close(rotate(images, angles)[index], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_the_result_may_be_larger_and_of_finer_pixels(mode: str) -> None:
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64)
    padded = torch.nn.functional.pad(x, (3, 3, 3, 3))
    torch.testing.assert_close(
        rotate(x, 0.4, mode=mode, side=14), rotate(padded, 0.4, mode=mode), rtol=0, atol=1e-12
    )
    finer = rotate(x, 0.4, mode=mode, side=24, zoom=3.0)
    torch.testing.assert_close(finer[..., 1::3, 1::3], rotate(x, 0.4, mode=mode))


def rotated_by_loops(x: Tensor, angle: float) -> Tensor:
    """Ask for every pixel where it comes from, and weigh the four neighbours of that place."""
    height, width = x.shape
    out = torch.zeros_like(x)
    for row in range(height):
        for column in range(width):
            right, up = column - (width - 1) / 2, (height - 1) / 2 - row
            from_right = math.cos(angle) * right + math.sin(angle) * up
            from_up = -math.sin(angle) * right + math.cos(angle) * up
            at_column, at_row = from_right + (width - 1) / 2, (height - 1) / 2 - from_up
            for r in range(height):
                for c in range(width):
                    weight = max(0, 1 - abs(at_row - r)) * max(0, 1 - abs(at_column - c))
                    out[row, column] += weight * x[r, c]
    return out


@pytest.mark.parametrize("shape", [(4, 7), (5, 5), (6, 6)])
@pytest.mark.parametrize("margin", [0.0, 1.0, 9.0])
def test_a_disc_holds_the_pixels_that_are_near_the_centre(
    shape: tuple[int, int], margin: float
) -> None:
    disc = inscribed_disc(torch.zeros(2, 3, *shape), margin)
    assert disc.shape == shape
    for row, column in itertools.product(*map(range, shape)):
        away = math.hypot(row - (shape[0] - 1) / 2, column - (shape[1] - 1) / 2)
        assert disc[row, column] == (away <= min(shape) / 2 - margin)


@pytest.mark.parametrize("name", ["C4", "D4", "C6", "D8"])
def test_moving_by_an_element_is_its_mirror_and_then_its_rotation(name: str) -> None:
    group = parse_group(name)
    x = torch.randn(2, 1, 9, 9, dtype=torch.float64)
    for index, element in enumerate(group.elements):
        expected = rotate(x.flip(-2) if element.flip else x, element.angle)
        torch.testing.assert_close(move_by(x, group, index), expected)
        back = rotate(x, -element.angle)
        expected = back.flip(-2) if element.flip else back
        torch.testing.assert_close(move_back(x, group, index), expected)
    for symmetry in group.grid_symmetries:
        moved = move_by(x, group, symmetry.element)
        assert torch.equal(moved, permute_grid(x, symmetry.quarter_turns, symmetry.flip))
        assert torch.equal(move_back(moved, group, symmetry.element), x)
