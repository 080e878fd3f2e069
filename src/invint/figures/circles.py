"""Drawings around the circle: what becomes of the answers as images turn."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invint.figures.style import (
    BLUE,
    FAINT,
    PAPER,
    VERMILLION,
    Drawing,
    Series,
    draw_legend,
    few_ticks,
    legend_height,
    new_figure,
    save_figure,
    slug,
    styled,
    tie,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

    from invint.audit import Audit, Turn


@styled
def angle_drawing(
    turns: Mapping[str, Sequence[tuple[float, float]]],
    series: Mapping[str, Series],
    *,
    data: str,
    caption: str,
) -> Drawing:
    """Draw accuracy around the circle."""
    lowest = min(accuracy for circle in turns.values() for _, accuracy in circle)
    floor = max(0.0, int((100 * lowest - 8) / 10) * 10.0)
    caption += f" The centre of the circle is at {floor:g} %." if floor else ""
    figure = new_figure(330 + legend_height([series[recipe].name for recipe in turns]))
    axes: PolarAxes = figure.add_subplot(projection="polar")  # type: ignore[assignment]
    draw_legend(figure, {series[r].key(): (series[r].name, series[r].look()) for r in turns})
    for recipe, circle in turns.items():
        own = series[recipe]
        closed = [*circle, circle[0]]
        angles = [math.radians(angle) for angle, _ in closed]
        marks = own.look() | {"linestyle": "", "markersize": 6.5}
        exact = [(math.radians(a), 100 * value) for a, value in circle if a % 90 == 0]
        line = axes.plot(angles, [100 * value for _, value in closed], **own.look(), markersize=2.8)
        tie([*line, *axes.plot(*zip(*exact, strict=True), **marks)], own.key())
    axes.set_ylim(floor, 100)
    axes.spines["polar"].set_edgecolor(FAINT)
    _show_rings(axes, " %")
    title = f"Accuracy against angle, {data}"
    return Drawing(slug("angles", data), title, caption, figure)


def _show_rings(axes: "PolarAxes", unit: str = "") -> None:
    """Draw circles of equal value with their numbers, which stay readable above the curves."""
    low, high = axes.get_ylim()
    ticks = [tick for tick in few_ticks(5).tick_values(low, high) if low < tick <= high]
    axes.set_yticks(ticks, [])
    paper = {"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 1}
    for tick in ticks:
        place = math.radians(67.5), tick
        text = f"{tick:g}{unit}"
        axes.text(*place, text, ha="center", va="center", fontsize=8.5, bbox=paper, zorder=5)


def draw_audit(audit: "Audit", path: Path) -> None:
    """Draw an audit into a .png, .svg or .pdf file."""
    save_figure(audit_figure(audit), path)


@styled
def audit_figure(audit: "Audit") -> "Figure":
    """Draw drift, and accuracy if known, around the circle; dots mark turns that permute pixels."""
    turns = audit.turns
    known = turns[0].accuracy is not None
    figure = new_figure(390, 330 * (1 + known))
    figure.suptitle(
        f"{audit.name}, {audit.precision}, border {audit.border}", x=0.02, ha="left", fontsize=11
    )
    panels: Any = figure.subplots(1, 1 + known, squeeze=False, subplot_kw={"projection": "polar"})
    drift = panels[0, 0]
    _draw_circle(drift, turns, lambda turn: turn.max_drift, "largest", "-")
    _draw_circle(drift, turns, lambda turn: turn.mean_drift, "mean", ":")
    drift.set_title("drift of the logits", loc="center")
    if known:
        _draw_circle(panels[0, 1], turns, lambda turn: turn.accuracy or 0.0, "accuracy", "-")
        panels[0, 1].set_title("accuracy", loc="center")
        panels[0, 1].set_ylim(0, 1)
    for panel in panels.flat:
        panel.set_rmin(0)
        _show_rings(panel)
        panel.spines["polar"].set_edgecolor(FAINT)
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2, fontsize=9)
    return figure


def _draw_circle(
    panel: "PolarAxes",
    turns: "Sequence[Turn]",
    value: "Callable[[Turn], float]",
    label: str,
    line: str,
) -> None:
    for mirrored, colour, marker in ((False, BLUE, "o"), (True, VERMILLION, "s")):
        drawn = [turn for turn in turns if turn.mirrored == mirrored]
        if not drawn:
            continue
        name = f"{label}, mirrored" if mirrored else label
        places = [
            (math.radians(turn.angle), value(turn) if value(turn) < math.inf else math.nan)
            for turn in drawn
        ]
        panel.plot(*zip(*places, places[0], strict=True), line, color=colour, label=name)
        exact = [place for place, turn in zip(places, drawn, strict=True) if turn.exact]
        if exact:
            panel.plot(*zip(*exact, strict=True), marker, color=colour, markersize=4.5)
