"""Monomials, their scores as they were chosen, and how much several runs agree."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from invint.errors import ConfigError
from invint.figures.style import (
    BLUE,
    FAINT,
    INK,
    VERMILLION,
    Drawing,
    Series,
    blend,
    new_figure,
    slug,
    styled,
)
from invint.nn.monomials import Monomials
from invint.selection.history import History, chance_overlap, overlap, rank_correlation
from invint.study.records import RunRecord
from invint.study.tables import signed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AREA = 190.0  # points² of a factor with exponent 1


@styled
def monomial_drawing(monomials: Monomials, run: RunRecord, own: Series) -> Drawing:
    """Draw each monomial of a trained network, with its formula."""
    title = f"Learned monomials: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        f"The {len(monomials)} monomials of the trained network. Each row is one: factors sit at "
        "their distance in pixels from the first, the area of a mark grows with its exponent "
        "(open squares: negative). Their average over all positions and turns is what the head "
        "computes."
    )
    figure = new_figure(46 + (26 if _on_rays(monomials) else 64) * len(monomials))
    axes = figure.subplots()
    draw_monomials(axes, monomials, colour=own.colour)
    formulas = [
        _formula(*row) for row in zip(monomials.distances, monomials.exponents, strict=True)
    ]
    right = axes.secondary_yaxis("right")
    right.set_yticks(axes.get_yticks(), formulas)
    right.spines["right"].set_visible(False)
    return Drawing(slug("monomials", run.data, own.name), title, caption, figure)


RAISED = str.maketrans("0123456789.-", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")


def _formula(distances: Sequence[float], exponents: Sequence[float]) -> str:
    if len(distances) > 4:
        return f"{len(distances)} factors"
    powers = zip(distances, exponents, strict=True)
    return " ".join(f"x({d:g}){f'{b:.2f}'.translate(RAISED)}" for d, b in powers)


def _on_rays(monomials: Monomials) -> bool:
    return all(angle == 0 for row in monomials.angles for angle in row)


def draw_monomials(
    axes: "Axes",
    monomials: Monomials,
    *,
    colour: str = BLUE,
    start: Monomials | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Draw monomials below each other: factors at their places, as large as their exponents.

    Negative exponents are open squares. Factors at the same place lie beside each other.

    Args:
        axes: Where.
        monomials: What is drawn.
        colour: Of factors with a positive exponent.
        start: The same with earlier exponents, drawn as rings.
        names: One for each monomial; by default they are counted from 1.
    """
    count = len(monomials)
    reach = max(max(row) for row in monomials.distances)
    lift = 0.0 if _on_rays(monomials) else 0.45 / (reach or 1.0)  # rows are 1 apart
    places = [_places(monomials, row, lift) for row in range(count)]
    for row, factors in enumerate(places):
        axes.axhline(row, color=INK, alpha=0.25, linewidth=0.8, zorder=0)
        for index, (x, y) in enumerate(factors):
            if start is not None:
                ring = _factor(start.exponents[row][index], INK, filled=False)
                axes.scatter(x, y, zorder=3, **ring)
            axes.scatter(x, y, zorder=3, **_factor(monomials.exponents[row][index], colour))
    axes.set_yticks(range(count), names or [str(place + 1) for place in range(count)])
    axes.set(xlabel="distance in pixels", ylim=(count - 0.4, -0.6))
    axes.set_xlim(min(0.0, *(x for row in places for x, _ in row)) - 0.6, reach + 0.6)
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")


def _places(monomials: Monomials, row: int, lift: float) -> list[tuple[float, float]]:
    """Return the factors of a monomial in the plane, its first one at `(0, row)`, y down."""
    places: list[tuple[float, float]] = []
    factors = list(zip(monomials.distances[row], monomials.angles[row], strict=True))
    for index, (distance, angle) in enumerate(factors):
        before, same = factors[:index].count((distance, angle)), factors.count((distance, angle))
        shift = 0.22 * (before - (same - 1) / 2)
        x = distance * math.cos(angle) if lift else distance
        places.append((x + shift, row - lift * distance * math.sin(angle)))
    return places


def _factor(exponent: float, color: str, *, filled: bool = True) -> dict[str, Any]:
    """Return how a factor looks: a disc, or an open square where its exponent is negative."""
    look = {"s": min(2 * AREA, AREA * abs(exponent) + 1), "marker": "os"[exponent < 0]}
    if filled and exponent >= 0:
        return look | {"color": color, "alpha": 0.8, "linewidths": 0}
    return look | {"facecolors": "none", "edgecolors": color, "linewidths": 1.6 if filled else 0.8}


@styled
def score_drawing(run: RunRecord, own: Series) -> Drawing | None:
    """Draw the scores of all monomials at each selection of a run, the survivors in colour."""
    events = [event for event in run.selections if event.get("scores")]
    if not events:
        return None
    figure = new_figure(125 * len(events))
    panels = figure.subplots(len(events), 1, squeeze=False)[:, 0]
    for axes, event in zip(panels, events, strict=True):
        kept, scores = set(event["kept"]), [float(score) for score in event["scores"]]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        colours = [own.colour if index in kept else FAINT for index in order]
        axes.bar(range(len(order)), [scores[index] for index in order], 0.8, color=colours)
        named = order if len(order) <= 24 else []
        axes.set_xticks(range(len(named)), [str(index) for index in named], fontsize=9)
        axes.locator_params(axis="y", nbins=3)
        axes.grid(visible=False, axis="x")
        axes.margins(x=0.01)
        method = event.get("method", "")
        axes.set_title(f"epoch {event['epoch']:g}: {len(scores)} → {len(kept)}, {method}")
    title = f"Selection: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        "Scores of all monomials at each selection, largest first; in colour those that were kept."
    )
    return Drawing(slug("selection", run.data, own.name), title, caption, figure)


@styled
def selection_figure(histories: Sequence[History]) -> "Figure":
    """Draw each run's monomials and scores; of several runs also how much they agree.

    Args:
        histories: The runs, as `RunStore.history` returns them.
    """
    if not histories:
        raise ConfigError("selection_figure: there is no run to draw")
    heights = [max(190.0, 95 + 26.0 * len(each.final)) for each in histories]
    heights += [230.0] if len(histories) > 1 else []
    figure = new_figure(sum(heights), 720)
    rows = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    names = [f"run {history.run.name}" for history in histories]  # that is by their seeds
    if len(set(names)) < len(names):
        names = [f"run {place}" for place in range(1, len(names) + 1)]
    for row, history, name in zip(rows, histories, names, strict=False):
        left, right = row.subplots(1, 2)
        start = history.first.keep(history.survivors)
        numbers = [str(number) for number in history.survivors]
        draw_monomials(left, history.final, start=start, names=numbers)
        left.set_title(f"monomials, {name}")
        _explain_sizes(left)
        _draw_scores(right, history)
    if len(histories) > 1:
        left, right = rows[-1].subplots(1, 2)
        common = _draw_pairs(left, histories, names, lambda a, b: overlap(a.final, b.final))
        chance = fmean(chance_overlap(*pair) for pair in combinations(histories, 2))
        left.set_title(f"common distances: {fmean(common):.2f} on average, {chance:.2f} by chance")
        ranks = _draw_pairs(right, histories, names, rank_correlation)
        mean = f"{fmean(ranks):+.2f} on average" if ranks else "too few in common"
        right.set_title(f"rank correlation of first scores: {mean}")
    return figure


def _explain_sizes(axes: "Axes") -> None:
    for exponent in (0.25, 0.5, 1.0, -0.5):
        axes.scatter([], [], **_factor(exponent, BLUE), label=f"{exponent:g}".replace("-", "−"))
    axes.scatter([], [], **_factor(0.5, INK, filled=False), label="start")
    axes.legend(
        title="exponent",
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        fontsize=8,
        title_fontsize=8,
        labelspacing=1.0,
    )


def _draw_scores(axes: "Axes", history: History) -> None:
    """Draw the score of each monomial at each step, as a fraction of the highest at that step."""
    if not history.steps:
        axes.text(0.5, 0.5, "kept as drawn: no selection", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    survivors = set(history.survivors)
    traces = _traces(history)
    for number in sorted(traces, key=lambda each: each in survivors):
        kept = number in survivors
        look: dict[str, Any] = {"color": BLUE, "markersize": 4.5, "zorder": 3}
        if not kept:
            look = {"color": INK, "alpha": 0.3, "linewidth": 0.7, "markersize": 2.5}
        axes.plot(*zip(*traces[number], strict=True), "o-", **look)
    _label_ends(axes, [(*traces[number][-1], number) for number in history.survivors])
    steps = [
        f"epoch {step.epoch:g}\n{len(step.indices)} → {len(step.kept)}" for step in history.steps
    ]
    axes.set_xticks(range(len(steps)), steps)
    axes.set_xlim(-0.3, len(steps) - 0.6)
    axes.set_ylabel(f"{history.steps[-1].method} / highest")
    axes.set_title("scores: survivors blue, dropped grey")


def _traces(history: History) -> dict[int, list[tuple[int, float]]]:
    """Return the steps at which each monomial was scored, and its scores."""
    traces: dict[int, list[tuple[int, float]]] = {}
    for place, step in enumerate(history.steps):
        highest = max(map(abs, step.scores)) or 1.0
        for number, score in zip(step.indices, step.scores, strict=True):
            traces.setdefault(number, []).append((place, score / highest))
    return traces


def _label_ends(axes: "Axes", ends: Sequence[tuple[int, float, int]]) -> None:
    """Write the numbers of monomials beside their last scores, moved apart where they are close."""
    bottom, top = axes.get_ylim()
    step = 0.07 * (top - bottom)
    ordered = sorted(ends, key=lambda end: end[1])
    heights = list(accumulate((end[1] for end in ordered), lambda low, own: max(own, low + step)))
    over = max(0.0, heights[-1] - top)
    for (place, _, number), height in zip(ordered, heights, strict=True):
        axes.text(place + 0.08, height - over, str(number), va="center", fontsize=8, color=BLUE)


def _draw_pairs(
    axes: "Axes",
    histories: Sequence[History],
    names: Sequence[str],
    value: Callable[[History, History], float | None],
) -> list[float]:
    """Draw a number for every two runs, the bluer the more alike, and return those that are known.

    Orange is below zero.
    """
    known, count = [], len(histories)
    cells = np.zeros((count, count, 4))
    for (column, first), (row, second) in combinations(enumerate(histories), 2):
        found = value(first, second)
        if found is not None:
            known.append(found)
            cells[row, column] = blend(VERMILLION if found < 0 else BLUE, 0.06 + 0.6 * abs(found))
        shown = "–" if found is None else signed(found).lstrip("+")
        axes.text(column, row, shown, ha="center", va="center", fontsize=8.5)
    axes.imshow(cells, aspect="auto")
    axes.set_xticks(range(count - 1), names[:-1])
    axes.set_yticks(range(1, count), names[1:])
    axes.set(xlim=(-0.5, count - 1.5), ylim=(count - 0.5, 0.5), frame_on=False)
    axes.grid(visible=False)
    return known
