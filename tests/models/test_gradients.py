"""Oriented gradients: the formula written out, what they do not see, and what finds the upright."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from invint import ConfigError, Cyclic, Dihedral, Group, create_model
from invint.export import ModelCard, export_model, load_model
from invint.models.gradients import (
    BLOCK,
    CELLS,
    CHANNELS,
    CLIP,
    DIRECTIONS,
    TINY,
    OrientedGradients,
)
from invint.testing import assert_invariant


def picture(*shape: int) -> Tensor:
    """Return a smooth picture: neighbouring pixels are alike, as in photos."""
    noise = torch.rand(*shape, dtype=torch.float64)
    return torch.nn.functional.avg_pool2d(noise, 3, 1, 1)


def written_out(image: Tensor) -> Tensor:
    """Return the blocks of one grey image, pixel by pixel."""
    side = image.shape[-1]
    cells = torch.zeros(DIRECTIONS, CELLS, CELLS, dtype=torch.float64)
    for y in range(side):
        for x in range(side):
            right, left = image[y, min(x + 1, side - 1)], image[y, max(x - 1, 0)]
            below, above = image[min(y + 1, side - 1), x], image[max(y - 1, 0), x]
            angle = math.atan2(below - above, right - left)
            length = math.hypot(below - above, right - left)
            strength = math.sqrt(length**2 + TINY)
            for direction in range(DIRECTIONS):
                near = math.cos(2 * angle - 2 * math.pi * direction / DIRECTIONS)
                share = max(near * (length / strength) ** 2, 0.0) ** 6 * strength
                for j in range(CELLS):
                    for i in range(CELLS):
                        down = 1 - abs((y + 0.5) * CELLS / side - 0.5 - j)
                        across = 1 - abs((x + 0.5) * CELLS / side - 0.5 - i)
                        weight = max(down, 0.0) * max(across, 0.0) * (CELLS / side) ** 2
                        cells[direction, j, i] += weight * share
    found = torch.zeros(CHANNELS, CELLS - BLOCK + 1, CELLS - BLOCK + 1, dtype=torch.float64)
    for j in range(found.shape[1]):
        for i in range(found.shape[2]):
            block = cells[:, j : j + BLOCK, i : i + BLOCK].permute(1, 2, 0).flatten()
            block = (block / (block @ block + TINY).sqrt()).clamp(max=CLIP)
            found[:, j, i] = block / (block @ block + TINY).sqrt()
    return found


@pytest.mark.parametrize("side", [16, 19])
def test_blocks_are_those_of_the_formula(side: int) -> None:
    image = picture(1, 1, side, side)
    expected = written_out(image[0, 0])
    torch.testing.assert_close(OrientedGradients()(image)[0], expected, atol=1e-7, rtol=1e-6)
    assert torch.equal(OrientedGradients(flat=True)(image), OrientedGradients()(image).flatten(1))


def test_brightness_contrast_and_weak_colours_are_not_seen() -> None:
    image = 100 * picture(2, 1, 40, 40)  # gradients far above the floor
    found = OrientedGradients()(image)
    torch.testing.assert_close(OrientedGradients()(0.5 * image + 0.2), found, atol=1e-6, rtol=0)
    colours = torch.cat([0.1 * image, image, 0 * image], dim=1)
    torch.testing.assert_close(OrientedGradients()(colours), found, atol=1e-9, rtol=0)


def test_constant_images_have_finite_blocks_and_slopes() -> None:
    image = torch.full((1, 3, 32, 32), 0.3, requires_grad=True)
    found = OrientedGradients()(image)
    found.sum().backward()
    assert found.isfinite().all()
    assert image.grad is not None
    assert image.grad.isfinite().all()


def test_large_images_are_averaged_down_first() -> None:
    image = picture(1, 1, 128, 128)
    small = torch.nn.functional.avg_pool2d(image, 2)
    assert torch.equal(OrientedGradients()(image), OrientedGradients()(small))


@pytest.mark.parametrize("pool", ["pose", "mean"])
@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_the_network_is_invariant(group: Group, pool: str) -> None:
    model = create_model("orbit-gradients", num_classes=3, group=group, group_pool=pool)
    assert_invariant(model.double().eval(), picture(2, 1, 64, 64), group)
    assert model.num_features == {"pose": 3600, "mean": 144}[pool]


def test_refuses_images_with_fewer_pixels_than_cells() -> None:
    with pytest.raises(ConfigError, match="8 x 8 pixels or more, got 1 and 7 x 9"):
        create_model("orbit-gradients", image_size=(7, 9))


@pytest.mark.unchecked
@pytest.mark.slow
@pytest.mark.parametrize("pool", ["pose", "mean"])
def test_exported_it_answers_as_here_flat_images_too(pool: str, tmp_path: Path) -> None:
    options = {"group_pool": pool}
    card = ModelCard(("a", "b"), (64, 64), 1, name="orbit-gradients", group="C4", options=options)
    model = create_model("orbit-gradients", num_classes=2, group_pool=pool).eval()
    assert export_model(model, tmp_path / "network.onnx", card) <= 1e-4
    x = torch.cat([picture(2, 1, 64, 64), torch.full((1, 1, 64, 64), 0.5)]).float()
    x[1, :, :30] = 0.25
    torch.testing.assert_close(
        load_model(tmp_path / "network.onnx")(x), model(x), rtol=1e-4, atol=1e-4
    )
