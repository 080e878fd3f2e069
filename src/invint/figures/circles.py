"""Drawings around the circle: what becomes of the answers as images turn."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from invint.figures.style import (
    BLUE,
    FAINT,
    PAPER,
    VERMILLION,
    Drawing,
    Series,
    draw_legend,
    new_figure,
    save_figure,
    slug,
    styled,
    tie,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.projections.polar import PolarAxes

    from invint.audit import Audit, Turn


@styled
def angle_drawing(
    turns: Mapping[str, Sequence[tuple[float, float]]],
    series: Mapping[str, Series],
    *,
    data: str,
    caption: str,
    what: str = "accuracy",
) -> Drawing:
    """Draw accuracy, or another fraction, around the circle."""
    lowest = min(accuracy for circle in turns.values() for _, accuracy in circle)
    floor = max(0.0, int((100 * lowest - 8) / 10) * 10.0)
    caption += f" The centre of the circle is at {floor:g} %." if floor else ""
    figure = new_figure(330)
    draw_legend(figure, {series[r].key: (series[r].name, series[r].look()) for r in turns})
    axes: PolarAxes = figure.add_subplot(projection="polar")  # type: ignore[assignment]
    for recipe, circle in turns.items():
        look = series[recipe].look()
        percents = [(angle, 100 * accuracy, angle % 90 == 0) for angle, accuracy in circle]
        tie(_draw_circle(axes, percents, look | {"markersize": 2.8}), series[recipe].key)
    axes.set_ylim(floor, 100)
    _show_rings(axes, " %")
    title = f"{what.capitalize()} against angle, {data}"
    return Drawing(slug("angles" if what == "accuracy" else what, data), title, caption, figure)


def _draw_circle(
    axes: "PolarAxes", points: Iterable[tuple[float, float, bool]], look: Mapping[str, Any]
) -> "list[Line2D]":
    """Draw a closed curve of values by degrees; exact ones have larger marks."""
    places = [
        (math.radians(angle), value if value < math.inf else math.nan, exact)
        for angle, value, exact in points
    ]
    angles, values, _ = zip(*places, places[0], strict=True)
    exact = [(angle, value) for angle, value, exact in places if exact]
    marks = {**look, "linestyle": "", "markersize": 6, "label": None}
    return axes.plot(angles, values, **look) + axes.plot(*np.array(exact).reshape(-1, 2).T, **marks)


def _show_rings(axes: "PolarAxes", unit: str = "") -> None:
    """Draw circles of equal value, with numbers that stay readable above the curves."""
    from matplotlib.ticker import MaxNLocator

    axes.spines["polar"].set_edgecolor(FAINT)
    axes.set_rlabel_position(67.5)
    axes.set_axisbelow(False)
    low, high = axes.get_ylim()
    even = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(low, high)
    ticks = [tick for tick in even if low < tick <= high]
    paper = {"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 1}
    labels = [f"{tick:g}{unit}" for tick in ticks]
    axes.set_yticks(ticks, labels, ha="center", va="center", fontsize=8.5, bbox=paper)


def draw_audit(audit: "Audit", path: Path) -> None:
    """Draw an audit into a .png, .svg or .pdf file."""
    save_figure(audit_figure(audit), path)


@styled
def audit_figure(audit: "Audit") -> "Figure":
    """Draw drift, and accuracy if known, around the circle; dots mark turns that permute pixels."""
    known = audit.turns[0].accuracy is not None
    figure = new_figure(390, 330 * (1 + known))
    figure.suptitle(
        f"{audit.name}, {audit.precision}, border {audit.border}", x=0.02, ha="left", fontsize=11
    )
    panels: Any = figure.subplots(1, 1 + known, squeeze=False, subplot_kw={"projection": "polar"})
    drift = panels[0, 0]
    drift.set_title("drift of the logits", loc="center")
    _draw_turns(drift, audit.turns, "max_drift", "largest", "-")
    _draw_turns(drift, audit.turns, "mean_drift", "mean", ":")
    if known:
        panels[0, 1].set_title("accuracy", loc="center")
        _draw_turns(panels[0, 1], audit.turns, "accuracy", "accuracy", "-")
        panels[0, 1].set_ylim(0, 1)
    for panel in panels.flat:
        panel.set_rmin(0)
        _show_rings(panel)
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2)
    return figure


def _draw_turns(
    panel: "PolarAxes", turns: "Sequence[Turn]", value: str, label: str, line: str
) -> None:
    for mirrored, colour, marker in ((False, BLUE, "o"), (True, VERMILLION, "s")):
        found = [(t.angle, getattr(t, value), t.exact) for t in turns if t.mirrored == mirrored]
        look = {"color": colour, "marker": marker, "markersize": 0, "linestyle": line}
        if found:
            name = f"{label}, mirrored" if mirrored else label
            _draw_circle(panel, found, look | {"label": name})
