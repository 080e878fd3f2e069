"""Turn a real digit through a group and watch its features turn with it.

usage: python examples/turning_digit.py [PICTURE]      (default: demo/turning-digit.png)
"""

import math
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from scipy.ndimage import map_coordinates
from sklearn.datasets import load_digits
from torch import Tensor, nn

from invint import Cyclic, Group
from invint.nn import GroupBatchNorm, GroupConv2d, GroupPool, LiftConv2d
from invint.testing import equivariance_error

mpl.use("Agg")  # no screen needed
import matplotlib.pyplot as plt

GROUP, CHANNELS, SIDE = Cyclic(8), 4, 29
EXACT = [symmetry.element for symmetry in GROUP.grid_symmetries]
BLUE, GREY = "#2563a8", "#9aa3ad"


def turned_digits(number: int, angles: list[float]) -> Tensor:
    """Sample the smooth surface through an 8 x 8 digit on grids turned by `angles` (radians)."""
    image = np.pad(load_digits().images[number] / 16, 4)
    axis = (np.arange(SIDE) - (SIDE - 1) / 2) / 2.5
    up, right = np.meshgrid(-axis, axis, indexing="ij")
    images = []
    for angle in angles:
        columns = math.cos(angle) * right + math.sin(angle) * up + 7.5
        rows = math.sin(angle) * right - math.cos(angle) * up + 7.5
        images.append(map_coordinates(image, [rows, columns], order=3))
    return torch.tensor(np.stack(images)[:, None], dtype=torch.float32)


def network(group: Group) -> nn.Sequential:
    """Return two steerable layers with random weights; training changes nothing about symmetry."""
    torch.manual_seed(3)
    return nn.Sequential(
        LiftConv2d(1, CHANNELS, 7, group),
        GroupBatchNorm(CHANNELS),
        nn.ReLU(),
        GroupConv2d(CHANNELS, CHANNELS, 7, group),
    ).eval()


def draw(images: Tensor, features: Tensor, errors: list[float], path: Path) -> None:
    """Draw the digit, its pooled features and its responses by orientation, one column an angle."""
    maps = GroupPool("max")(features)[:, 0]
    responses = features[:, 0].relu().sum(dim=(2, 3)).numpy()
    steps = len(images)
    figure = plt.figure(figsize=(1.7 * steps, 6.6), layout="constrained")
    figure.suptitle(
        "A digit turned through the group C8. Two steerable layers with random weights: "
        "the features turn with the image,\n"
        "and the responses move from one orientation to the next."
    )
    directions = np.array([element.angle for element in GROUP.elements])
    for step in range(steps):
        panel = figure.add_subplot(3, steps, step + 1, xticks=[], yticks=[])
        panel.imshow(images[step, 0], cmap="gray_r", vmin=0, vmax=1)
        panel.set_title(f"{360 * step / steps:g}°")
        turned = figure.add_subplot(3, steps, steps + step + 1, xticks=[], yticks=[])
        turned.imshow(maps[step], cmap="viridis", vmin=maps.min(), vmax=maps.max())
        rose = figure.add_subplot(3, steps, 2 * steps + step + 1, projection="polar")
        colours = [BLUE if g == step else GREY for g in range(GROUP.order)]
        rose.bar(directions, responses[step], width=0.6, color=colours)
        rose.set(xticklabels=[], yticklabels=[], ylim=(0, 1.05 * responses.max()))
        rose.set_xlabel(f"error {errors[step]:.1e}\n({'exact' if step in EXACT else 'measured'})")
        if step == 0:
            panel.set_ylabel("image")
            turned.set_ylabel("features, maximum\nover orientations")
            rose.set_ylabel("response by\norientation", labelpad=22)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Turn, measure, draw, and say where the picture is."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/turning-digit.png")
    angles = [element.angle for element in GROUP.elements]
    images, model = turned_digits(4, angles), network(GROUP)
    still = images[:1]
    errors = [
        equivariance_error(model, still, GROUP, angle, turned=turned[None])
        for angle, turned in zip(angles, images, strict=True)
    ]
    with torch.no_grad():
        draw(images, model(images), errors, path)
    print(f"A digit turned through {GROUP}; features of two steerable layers, random weights.\n")
    print("   angle   relative error")
    for number, (angle, error) in enumerate(zip(angles, errors, strict=True)):
        why = "exact: a permutation of pixels" if number in EXACT else "measured, by interpolation"
        print(f"{math.degrees(angle):7.1f}°   {error:.1e}          {why}")
    print(f"\nThe picture: {path.resolve()}")
    print("Next: a network of your own, docs/guide/layers.md")


if __name__ == "__main__":
    main()
