"""Figures of a selection: the monomials, their scores over time, how much several runs agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invint.errors import ConfigError
from invint.files import write_figure
from invint.nn.monomials import Monomials
from invint.selection.history import History, chance_overlap, overlap, pairs, rank_correlation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#1f6fb4", "#d9711c", "#b5b5b5"
AREA = 260.0  # points² of a factor with exponent 1
SUFFIXES = (".png", ".svg", ".pdf")


def selection_figure(histories: Sequence[History]) -> Figure:
    """Draw each run's monomials and scores; of several runs also how much they agree.

    Args:
        histories: The runs, as `read_history` returns them.
    """
    if not histories:
        raise ConfigError("selection_figure: there is no run to draw")
    from matplotlib.figure import Figure  # slow to import

    heights = [1.3 + 0.36 * len(each.final) for each in histories]
    heights = [max(height, 2.6) for height in heights]
    heights += [3.2] if len(histories) > 1 else []
    figure = Figure(figsize=(10, sum(heights)), layout="constrained")
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for row, history, name in zip(rows, histories, _names(histories), strict=False):
        left, right = row.subplots(1, 2)
        draw_monomials(left, history)
        draw_scores(right, history)
        left.set_title(f"monomials, {name}", loc="left", fontsize=10)
    if len(histories) > 1:
        left, right = rows[-1].subplots(1, 2)
        draw_overlap(left, histories)
        draw_correlation(right, histories)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as .png, .svg or .pdf."""
    check_suffix(path)
    write_figure(figure, path, dpi=130)


def check_suffix(path: Path) -> None:
    """Raise `ConfigError` unless a figure can be written to a file of this name."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"expected a .png, .svg or .pdf file for the figure, got {str(path)!r}")


def draw_monomials(axes: Axes, history: History) -> None:
    """Draw each surviving monomial as points on its ray, as large as their exponents.

    Rings are the exponents at the start, discs those now; negative ones are orange. Factors at the
    same place lie beside each other. Factors with an angle of their own are labelled with it.
    """
    numbers, now = history.survivors, history.final
    start = history.first.keep(numbers)
    for row in range(len(numbers)):
        height = len(numbers) - 1 - row
        axes.axhline(height, color=GREY, linewidth=0.8, zorder=0)
        for table, filled in ((start, False), (now, True)):
            _draw_factors(axes, table, row, height, filled=filled)
        _label_angles(axes, now, row, height)
    farthest = max(max(row) for row in now.distances)
    axes.set(xlabel="distance on the ray, pixels", ylim=(-0.8, len(numbers) - 0.2))
    axes.set_yticks(range(len(numbers)), [str(number) for number in reversed(numbers)])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(-0.6, farthest + 0.6)
    axes.set_xticks(range(math.floor(farthest) + 1))
    _strip(axes, "left")
    _explain_sizes(axes)


def draw_scores(axes: Axes, history: History) -> None:
    """Draw the score of each monomial at each step, as a share of the highest at that step."""
    if not history.steps:
        axes.text(0.5, 0.5, "kept as drawn: no selection", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    survivors = set(history.survivors)
    traces = _traces(history)
    for number in sorted(traces, key=lambda each: each in survivors):
        places, scores = zip(*traces[number], strict=True)
        survived = number in survivors
        axes.plot(
            places,
            scores,
            "o-",
            color=BLUE if survived else GREY,
            linewidth=1.4 if survived else 0.7,
            markersize=4 if survived else 2.5,
            zorder=2 if survived else 1,
        )
    _label_ends(axes, [(*traces[number][-1], number) for number in history.survivors])
    axes.set_xticks(
        range(len(history.steps)), [_when(history, n) for n in range(len(history.steps))]
    )
    axes.set_xlim(-0.3, len(history.steps) - 0.6)
    axes.set_ylabel(f"{history.steps[-1].method} / highest")
    axes.set_title("scores: survivors blue, dropped grey", loc="left", fontsize=10)
    _strip(axes)


def draw_overlap(axes: Axes, histories: Sequence[History]) -> None:
    """Draw which share of their combinations of distances every two runs have in common."""
    values = {pair: overlap(pair[0].final, pair[1].final) for pair in pairs(histories)}
    chance = [chance_overlap(*pair) for pair in values]
    _matrix(axes, histories, values, colours="Blues", lowest=0)
    mean, blind = sum(values.values()) / len(values), sum(chance) / len(chance)
    axes.set_title(
        f"common distances: {mean:.2f} on average, {blind:.2f} by chance", loc="left", fontsize=10
    )


def draw_correlation(axes: Axes, histories: Sequence[History]) -> None:
    """Draw the rank correlation of the scores of every two runs at their first step."""
    values = {pair: rank_correlation(*pair) for pair in pairs(histories)}
    known = [value for value in values.values() if value is not None]
    _matrix(axes, histories, values, colours="RdBu", lowest=-1)
    mean = f"{sum(known) / len(known):+.2f} on average" if known else "too few in common"
    axes.set_title(f"rank correlation of first scores: {mean}", loc="left", fontsize=10)


def _draw_factors(
    axes: Axes, monomials: Monomials, row: int, height: float, *, filled: bool
) -> None:
    distances, exponents = monomials.distances[row], monomials.exponents[row]
    seen: dict[float, int] = {}
    for distance, exponent in zip(distances, exponents, strict=True):
        same = distances.count(distance)
        place = seen[distance] = seen.get(distance, -1) + 1
        shift = 0.22 * (place - (same - 1) / 2)
        colour = BLUE if exponent >= 0 else ORANGE
        style: dict[str, Any] = {"color": colour, "alpha": 0.75, "linewidths": 0}
        if not filled:
            style = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.8, "zorder": 3}
        axes.scatter([distance + shift], [height], s=AREA * abs(exponent), **style)


def _label_angles(axes: Axes, monomials: Monomials, row: int, height: float) -> None:
    for distance, angle in zip(monomials.distances[row], monomials.angles[row], strict=True):
        if angle and distance:
            axes.annotate(
                f"{math.degrees(angle):.0f}°",
                (distance, height),
                (0, 10),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )


def _explain_sizes(axes: Axes) -> None:
    for exponent in (0.25, 0.5, 1.0):
        axes.scatter([], [], s=AREA * exponent, color=BLUE, alpha=0.75, label=f"{exponent:g}")
    axes.scatter([], [], s=AREA / 2, facecolors="none", edgecolors="black", label="start")
    axes.legend(
        title="exponent",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        labelspacing=1.1,
    )


def _traces(history: History) -> dict[int, list[tuple[int, float]]]:
    """Return the steps at which each monomial was scored, and its scores."""
    traces: dict[int, list[tuple[int, float]]] = {}
    for place, step in enumerate(history.steps):
        highest = max(map(abs, step.scores)) or 1.0
        for number, score in zip(step.numbers, step.scores, strict=True):
            traces.setdefault(number, []).append((place, score / highest))
    return traces


def _label_ends(axes: Axes, ends: Sequence[tuple[int, float, int]]) -> None:
    """Write the numbers of monomials beside their last scores, moved apart where they are close."""
    bottom, top = axes.get_ylim()
    lowest = -math.inf
    for place, score, number in sorted(ends, key=lambda end: end[1]):
        lowest = max(score, lowest + 0.06 * (top - bottom))
        axes.annotate(
            f"{number}",
            (place, score),
            (place + 0.08, lowest),
            va="center",
            fontsize=8,
            color=BLUE,
        )


def _when(history: History, number: int) -> str:
    step = history.steps[number]
    return f"epoch {step.epoch:g}\n{len(step.numbers)} → {len(step.kept)}"


def _matrix(
    axes: Axes,
    histories: Sequence[History],
    values: Mapping[Any, float | None],
    *,
    colours: str,
    lowest: float,
) -> None:
    names = _names(histories)
    count = len(names)
    grid = [[math.nan] * count for _ in names]
    numbers = {id(history): number for number, history in enumerate(histories)}
    for (first, second), value in values.items():
        row, column = numbers[id(second)], numbers[id(first)]
        grid[row][column] = math.nan if value is None else value
        shown = "–" if value is None else f"{value:.2f}"
        colour = "white" if value is not None and abs(value) > 0.6 else "black"
        axes.text(column, row, shown, ha="center", va="center", fontsize=8, color=colour)
    axes.imshow(grid, cmap=colours, vmin=lowest, vmax=1, aspect="auto")
    axes.set_xticks(range(count - 1), names[:-1])
    axes.set_yticks(range(1, count), names[1:])
    axes.set_xlim(-0.5, count - 1.5)
    axes.set_ylim(count - 0.5, 0.5)
    _strip(axes, "left", "bottom")
    axes.tick_params(length=0)


def _names(histories: Sequence[History]) -> list[str]:
    """Name runs by their folders, that is by their seeds; or count them, where these are equal."""
    names = [history.run.name for history in histories]
    if len(set(names)) < len(names):
        names = [str(number) for number in range(1, len(names) + 1)]
    return [f"run {name}" for name in names]


def _strip(axes: Axes, *sides: str) -> None:
    for side in ("top", "right", *sides):
        axes.spines[side].set_visible(False)
