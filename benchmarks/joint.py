"""Show what group pooling hides from the heads behind it, and what the heads before it see.

Two images that every head behind group pooling takes for the same, how far apart the heads before
it hold them, and how much those change when maps made of real digits turn. Weights are random.

usage: python benchmarks/joint.py       (about a minute on two cores; `make figures`)
"""

from pathlib import Path
from typing import Any

import torch
from integration import (
    PAGE,
    SCALES,
    changes,
    draw_differences,
    invariance_table,
)
from matplotlib.axes import Axes
from patterns import (
    ON_GROUP,
    SIDE,
    VARIANTS,
    crosses,
    crossing,
    difference,
    edges,
    random_head,
)
from record import replace_block, write_record
from torch import Tensor

from invint import Cyclic
from invint.figures.style import BLUE, VERMILLION, new_figure, save_figure, styled

GROUP, GROUPS, SEEDS = Cyclic(8), (Cyclic(8), Cyclic(16)), 5
Row = dict[str, Any]


def separation() -> list[Row]:
    """Return how far apart each head holds the two images, with several random weights."""
    return [
        {
            "head": name,
            "differences": [
                difference(random_head(variant, GROUP, seed), crossing(variant, GROUP, seed))
                for seed in range(SEEDS)
            ],
        }
        for name, variant in {**VARIANTS, **ON_GROUP}.items()
    ]


def invariance() -> list[Row]:
    """Return the changes of the heads before group pooling, on every size and group."""
    return [
        {"head": name, "side": side, "group": str(group), **changes(variant, side, group)}
        for side in SCALES
        for group in GROUPS
        for name, variant in ON_GROUP.items()
        if name.startswith("joint")  # the other one stands in the first tables
    ]


@styled
def draw(rows: list[Row], path: Path) -> None:
    """Draw the images, what a filter answers before and after group pooling, and the heads."""
    figure = new_figure(500, 720)
    panels = figure.subplot_mosaic([["a", "b", "c"], ["d", "e", "f"], ["heads"] * 3])
    for names, image in zip(("abc", "def"), crosses(), strict=True):
        response = edges(image, GROUP, seed=0)[0, 0]
        draw_plane(panels[names[0]], image[0, 0], "RdBu_r", 1.0)
        draw_plane(panels[names[1]], response.amax(0), "Blues", float(response.max()))
        draw_orientations(panels[names[2]], response)
    for name, title in (("a", "image"), ("b", "after group pooling"), ("c", "before it")):
        panels[name].set_title(title)
    draw_differences(panels["heads"], rows)
    panels["heads"].set_title("relative difference of the features, five random weights each")
    labels = [row["head"].replace(", ", "\n").replace("joint-", "joint-\n") for row in rows]
    panels["heads"].set_xticks(range(len(rows)), labels, size=8)
    save_figure(figure, path)


def draw_plane(panel: Axes, plane: Tensor, colours: str, largest: float) -> None:
    """Draw an image or a map."""
    lowest = -largest if plane.min() < 0 else 0.0
    panel.imshow(plane.numpy(), cmap=colours, vmin=lowest, vmax=1.2 * largest)
    frame(panel)


def draw_orientations(panel: Axes, response: Tensor) -> None:
    """Draw the strongest response of each pixel as an arrow in the direction of its element."""
    strongest, element = response.max(0)
    rows, columns = torch.nonzero(strongest > 0.05 * strongest.max(), as_tuple=True)
    angles = 2 * torch.pi * element[rows, columns] / GROUP.order
    lengths = strongest[rows, columns]
    panel.quiver(
        columns.numpy(),
        rows.numpy(),
        (lengths * angles.cos()).numpy(),
        (lengths * angles.sin()).numpy(),
        color=[VERMILLION if column > SIDE // 2 else BLUE for column in columns.tolist()],
        scale=9 * float(strongest.max()),
        width=0.012,
        pivot="mid",
    )
    panel.set_aspect("equal")
    frame(panel)


def frame(panel: Axes) -> None:
    """Show the middle of a plane, without numbers."""
    panel.set(xlim=(1.5, 13.5), ylim=(10.5, 3.5), xticks=[], yticks=[])
    panel.grid(visible=False)


def main() -> None:
    """Measure, record, and put the figure and the table into the theory page."""
    torch.set_default_dtype(torch.float64)
    pairs, turns = separation(), invariance()
    draw(pairs, PAGE.with_name("integration-joint.svg"))
    command = "python benchmarks/joint.py"
    path = write_record("integration-joint", command, turns, seeds=SEEDS, crosses=pairs)
    for side in SCALES:
        text = invariance_table(turns, side)
        replace_block(PAGE, f"joint heads on turned maps of side {side}", text)
        print(text)
    print(path)


if __name__ == "__main__":
    main()
