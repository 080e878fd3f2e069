import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from invint.data.batches import AUGMENTATIONS, crop, cutout, flip, hole_of, padding_of


@pytest.mark.parametrize("padding", [1, 2])
def test_crop_matches_its_definition(padding: int) -> None:
    images = torch.rand(25, 2, 4, 5)
    shifts = torch.cartesian_prod(torch.arange(5), torch.arange(5)) % (2 * padding + 1)
    cropped = crop(images, shifts, padding)
    for number, (down, right) in enumerate(shifts.tolist()):
        for row in range(4):
            for column in range(5):
                source = row + down - padding, column + right - padding
                inside = 0 <= source[0] < 4 and 0 <= source[1] < 5
                expected = images[number, :, *source] if inside else torch.zeros(2)
                assert torch.equal(cropped[number, :, row, column], expected)


def test_flip_mirrors_where_asked() -> None:
    images = torch.rand(3, 2, 4, 5)
    flipped = flip(images, torch.tensor([True, False, True]))
    for number, mirrored in enumerate((True, False, True)):
        for column in range(5):
            source = 4 - column if mirrored else column
            assert torch.equal(flipped[number, ..., column], images[number, ..., source])


@pytest.mark.parametrize("side", [1, 2, 3])
def test_cutout_matches_its_definition(side: int) -> None:
    images = torch.rand(20, 2, 4, 5) + 1
    centres = torch.cartesian_prod(torch.arange(4), torch.arange(5))
    holed = cutout(images, centres, side)
    for number, (down, right) in enumerate(centres.tolist()):
        top, left = down - side // 2, right - side // 2
        for row in range(4):
            for column in range(5):
                inside = top <= row < top + side and left <= column < left + side
                expected = torch.zeros(2) if inside else images[number, :, row, column]
                assert torch.equal(holed[number, :, row, column], expected)


@pytest.mark.parametrize(("side", "padding", "hole"), [(96, 12, 32), (32, 4, 11), (28, 4, 9)])
def test_sizes_follow_the_image(side: int, padding: int, hole: int) -> None:
    assert (padding_of(side, side + 5), hole_of(side + 5, side)) == (padding, hole)
    images = torch.rand(1, 1, side, side)
    none = torch.zeros(1, 2, dtype=torch.int64)
    assert torch.equal(crop(images, none), crop(images, none, padding))
    assert torch.equal(cutout(images, none), cutout(images, none, hole))


def test_parameters_cover_what_they_may_be() -> None:
    ends = torch.stack((torch.zeros(2), torch.full((2,), 1 - 2**-53, dtype=torch.float64)))
    found = {
        name: way.parameters(ends[:, : way.numbers], 28, 32) for name, way in AUGMENTATIONS.items()
    }
    assert found["rotate"].tolist() == pytest.approx([0, 2 * math.pi])
    assert found["rotate"].dtype == torch.float32
    assert found["crop"].tolist() == [[0, 0], [8, 8]]
    assert found["flip"].tolist() == [True, False]
    assert found["cutout"].tolist() == [[0, 0], [27, 31]]


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentation_compiles_whole(name: str) -> None:
    way = AUGMENTATIONS[name]
    parameters = way.parameters(torch.rand(4, way.numbers, dtype=torch.float64), 16, 16)
    images = torch.rand(4, 3, 16, 16)
    compiled: Callable[[Tensor, Tensor], Tensor] = torch.compile(way.apply, fullgraph=True)
    expected = way.apply(images, parameters)
    torch.testing.assert_close(compiled(images, parameters), expected)
