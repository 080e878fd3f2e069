"""Show what the heads see: pairs of patterns, monomials, and turns that are not quarter turns.

Three measurements and two figures for the page on invariant integration: how far apart each head
holds the pairs of `patterns.py`; how much its features change when maps made of real digits turn;
what the floor of the monomials does to gradients. Weights are random.

usage: python benchmarks/integration.py       (about a minute on two cores; `make figures`)
"""

import math
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from basis import ANGLES, digits
from matplotlib.axes import Axes
from patterns import (
    CHANNELS,
    PAIRS,
    SIDE,
    VARIANTS,
    Variant,
    difference,
    random_head,
    takes_group,
)
from record import ROOT, markdown_table, mean_and_deviation, replace_block, write_record
from torch import Tensor

from invint import Cyclic, Group
from invint.figures.style import BLUE, VERMILLION, new_figure, save_figure, styled
from invint.nn import MonomialIntegration, Monomials
from invint.ops.grids import moved_points
from invint.testing import equivariance_error

PAGE = ROOT / "docs" / "theory" / "integration.md"
GROUP, GROUPS = Cyclic(8), (Cyclic(8), Cyclic(16))
SEEDS, DIGITS = 5, 20
# Side of a map, and the scales at which a digit, 8 x 8 pixels, stays inside while it turns.
SCALES = {16: (1.0, 1.1, 1.25, 1.4), 8: (0.5, 0.55, 0.6, 0.7)}
FLOORS = (1e-6, 1e-4, 1e-2, 0.1, 1.0)
ROUNDING = 1e-12  # relative differences below this are rounding
GREY = "#9aa3ad"
Row = dict[str, Any]


def separation() -> list[Row]:
    """Return how far apart each head holds each pair, with several random weights."""
    return [
        {
            "pair": name,
            "head": variant,
            "differences": [
                difference(random_head(VARIANTS[variant], GROUP, seed), pair)
                for seed in range(SEEDS)
            ],
        }
        for name, pair in PAIRS.items()
        for variant in VARIANTS
    ]


def separation_table(rows: list[Row]) -> str:
    """Return the median difference of every pair and head; `=` where it is rounding."""

    def cell(pair: str, variant: str) -> str:
        (row,) = [row for row in rows if (row["pair"], row["head"]) == (pair, variant)]
        middle = statistics.median(row["differences"])
        return "=" if middle < ROUNDING else f"{middle:#.2g}"

    body = [[variant, *(cell(pair, variant) for pair in PAIRS)] for variant in VARIANTS]
    return markdown_table(["head", *PAIRS], body)


@lru_cache
def digit_maps(side: int, angle: float) -> Tensor:
    """Return maps whose channels are one digit at several scales, turned by `angle` degrees."""
    channels = [
        digits(DIGITS, math.radians(angle), side=side, scale=scale) for scale in SCALES[side]
    ]
    return torch.cat(channels, dim=1).double()


def on_group(x: Tensor, group: Group, angle: float) -> Tensor:
    """Spread maps turned by `angle` degrees over the elements, strongest where they point."""
    angles = torch.tensor([element.angle for element in group.elements], dtype=x.dtype)
    return x[:, :, None] * (1 + torch.cos(angles - math.radians(angle)))[:, None, None]


def turned_maps(variant: Variant, side: int, group: Group) -> dict[float, Tensor]:
    """Return the maps a head is given at every angle."""
    maps = {angle: digit_maps(side, angle) for angle in (0.0, *ANGLES)}
    if takes_group(variant):
        return {angle: on_group(x, group, angle) for angle, x in maps.items()}
    return maps


def changes(variant: Variant, side: int, group: Group) -> Row:
    """Return the relative change of features at each angle, and how much digits differ in them."""
    maps = turned_maps(variant, side, group)
    found: dict[float, list[float]] = {angle: [] for angle in ANGLES}
    spreads = []
    for seed in range(SEEDS):
        head = random_head(variant, group, seed, size=side)
        for angle in ANGLES:
            radians = math.radians(angle)
            error = equivariance_error(head, maps[0.0], group, radians, turned=maps[angle])
            found[angle].append(error)
        with torch.no_grad():
            features = head(maps[0.0])
        spreads.append(((features - features.mean(0)).norm() / features.norm()).item())
    return {"changes": found, "spreads": spreads}


def invariance() -> list[Row]:
    """Return the changes of every head, on every size and group."""
    heads: dict[str, Variant] = {**VARIANTS, "sf-ii": ("sf-ii", {})}
    return [
        {"head": name, "side": side, "group": str(group), **changes(variant, side, group)}
        for side in SCALES
        for group in GROUPS
        for name, variant in heads.items()
    ]


def invariance_table(rows: list[Row], side: int) -> str:
    """Return the changes on maps of one size, both groups side by side."""
    header = ["head", "spread", *(f"{group} {angle:g}°" for group in GROUPS for angle in ANGLES)]
    body: dict[str, list[str]] = {}
    for row in rows:
        if row["side"] == side:
            line = body.setdefault(row["head"], [f"{statistics.mean(row['spreads']):.3f}"])
            line.extend(mean_and_deviation(row["changes"][angle]) for angle in ANGLES)
    return markdown_table(header, [[name, *line] for name, line in body.items()])


def floors() -> list[Row]:
    """Return, for several floors, the largest gradient and how much digits differ."""
    monomials = Monomials.random(50, max_distance=4, generator=torch.Generator().manual_seed(0))
    return [floor_row(floor, monomials) for floor in FLOORS]


def floor_row(floor: float, monomials: Monomials) -> Row:
    """Measure one floor; gradients are those of the sum over positions, not of the mean."""
    x = digit_maps(16, 0.0).clone().requires_grad_()
    head = MonomialIntegration(CHANNELS, 16, GROUP, monomials=monomials, floor=floor).double()
    features = head(x).unflatten(1, (CHANNELS, len(monomials)))
    largest = 0.0
    for number in range(len(monomials)):
        summed = features[:, :, number].sum() * x[0, 0].numel()
        (gradient,) = torch.autograd.grad(summed, x, retain_graph=True)
        largest = max(largest, gradient.abs().max().item())
    spread = (features - features.mean(0)).norm() / features.norm()
    bound = 1 / (math.e * floor * math.log(1 / floor)) if floor < 1 / math.e else 1.0
    return {"floor": floor, "bound": bound, "largest": largest, "spread": spread.item()}


def floor_table(rows: list[Row]) -> str:
    """Return the gradients by floor."""
    header = ["floor", "bound for one factor", "largest gradient", "spread"]
    body = [
        [
            f"{row['floor']:g}",
            f"{row['bound']:.3g}",
            f"{row['largest']:.3g}",
            f"{row['spread']:.3f}",
        ]
        for row in rows
    ]
    return markdown_table(header, body)


@styled
def draw_pairs(rows: list[Row], path: Path) -> None:
    """Draw every pair, and beside it how far apart each head holds it."""
    figure = new_figure(690, 720)
    panels = figure.subplots(len(PAIRS), 3, width_ratios=(1, 1, 4.6))
    for (first, second, chart), (name, pair) in zip(panels, PAIRS.items(), strict=True):
        draw_pattern(first, pair.first[0, : pair.channels])
        draw_pattern(second, pair.second[0, : pair.channels])
        first.set_ylabel(f"{name}:\n{pair.difference}")
        draw_differences(chart, [row for row in rows if row["pair"] == name])
    panels[0, 2].set_title("relative difference of the features, five random weights each")
    labels = [name.replace(", ", "\n") for name in VARIANTS]
    panels[-1, 2].set_xticks(range(len(VARIANTS)), labels, size=9)
    save_figure(figure, path)


def draw_pattern(panel: Axes, channels: Tensor) -> None:
    """Draw the first channel as dots, the second, if any, as rings around them."""
    for channel, size, colour in zip(channels, (26, 62), (BLUE, "none"), strict=False):
        rows, columns = torch.nonzero(channel, as_tuple=True)
        panel.scatter(columns, rows, s=size, facecolors=colour, edgecolors=BLUE)
    panel.plot(SIDE // 2, SIDE // 2, "+", color=VERMILLION, markersize=8)
    panel.set(xlim=(0.5, SIDE - 1.5), ylim=(SIDE - 1.5, 0.5), aspect="equal")
    edges = [i + 0.5 for i in range(SIDE - 1)]
    panel.set_xticks(edges, [])
    panel.set_yticks(edges, [])
    panel.tick_params(length=0)


def draw_differences(panel: Axes, rows: list[Row]) -> None:
    """Draw the differences of each head on a logarithmic scale; zero at its lower end."""
    lowest = 1e-17
    for place, row in enumerate(rows):
        values = [max(value, lowest) for value in row["differences"]]
        colours = [BLUE if value > ROUNDING else GREY for value in values]
        panel.scatter([place] * len(values), values, c=colours, alpha=0.7)
    panel.axhspan(lowest / 10, ROUNDING, color=GREY, alpha=0.18, lw=0)
    panel.set_yscale("log")
    panel.set(ylim=(lowest / 3, 30), xlim=(-0.5, len(rows) - 0.5))
    panel.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1], ["1e−16", "1e−12", "1e−8", "1e−4", "1"])
    panel.set_xticks(range(len(rows)), [])


@styled
def draw_monomials(path: Path) -> None:
    """Draw a few random monomials as points, with their turned copies."""
    figure = new_figure(390, 720)
    panels = figure.subplots(2, 4)
    for line, own_angles in zip(panels, (False, True), strict=True):
        generator = torch.Generator().manual_seed(2)
        monomials = Monomials.random(4, max_distance=4, own_angles=own_angles, generator=generator)
        for panel, number in zip(line, range(4), strict=True):
            draw_monomial(panel, monomials.keep([number]))
        line[0].set_ylabel("own angles" if own_angles else "on one ray, as in the paper")
    save_figure(figure, path)


def draw_monomial(panel: Axes, monomial: Monomials) -> None:
    """Draw the factors of one monomial: where they are, and their exponents as areas."""
    (distances,), (angles,), (exponents,) = vars(monomial).values()
    places = torch.polar(torch.tensor(distances), torch.tensor(angles))
    points = torch.view_as_real(places).double()
    areas = [260 * exponent for exponent in exponents]
    for element in GROUP.elements[1:]:
        x, y = moved_points(points, element).T.tolist()
        panel.scatter(x, y, s=areas, color=GREY, alpha=0.25, lw=0)
    x, y = points.T.tolist()
    if any(angles):
        for right, up in zip(x[1:], y[1:], strict=True):
            panel.plot([0, right], [0, up], color=BLUE, lw=1)
    else:
        panel.plot([0, 4.7], [0, 0], color=BLUE, lw=1)
    panel.scatter(x, y, s=areas, color=BLUE, alpha=0.75, lw=0)
    panel.plot(0, 0, "+", color=VERMILLION, markersize=7)
    panel.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal", xticks=range(-4, 5, 2))
    panel.set_yticks(range(-4, 5, 2))
    panel.set_title("exponents " + ", ".join(f"{exponent:.2f}" for exponent in exponents), size=9)


def main() -> None:
    """Measure, record, and put tables and figures into the theory page."""
    pairs, turns, gradients = separation(), invariance(), floors()
    about = {"digits": DIGITS, "seeds": SEEDS, "scales": SCALES, "pairs": pairs}
    path = write_record(
        "integration", "python benchmarks/integration.py", turns, **about, floors=gradients
    )
    tables = {
        "pairs": separation_table(pairs),
        "floors": floor_table(gradients),
        **{f"turned maps of side {side}": invariance_table(turns, side) for side in SCALES},
    }
    for name, text in tables.items():
        replace_block(PAGE, name, text)
        print(f"{name}\n\n{text}\n")
    draw_pairs(pairs, PAGE.with_name("integration-pairs.svg"))
    draw_monomials(PAGE.with_name("integration-monomials.svg"))
    print(path)


if __name__ == "__main__":
    main()
