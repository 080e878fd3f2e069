"""The picture of an audit: drift and accuracy around the circle."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from invint.audit.turn import Turn
from invint.files import write_figure

BLUE, ORANGE = "#2563a8", "#c2571a"


def draw_turns(turns: Sequence[Turn], title: str, path: Path) -> None:
    """Draw drift, and accuracy if known; dots mark the turns that permute pixels."""
    from matplotlib import figure as figures  # slow to import

    known = turns[0].accuracy is not None
    figure = figures.Figure(figsize=(5.2 * (1 + known), 5.6), layout="constrained")
    figure.suptitle(title)
    drift = figure.add_subplot(1, 1 + known, 1, projection="polar")
    _trace(drift, turns, lambda turn: turn.max_drift, "largest", "-")
    _trace(drift, turns, lambda turn: turn.mean_drift, "mean", ":")
    drift.set_title("drift of the logits")
    _finish(drift)
    if known:
        accuracy = figure.add_subplot(1, 2, 2, projection="polar")
        _trace(accuracy, turns, lambda turn: turn.accuracy or 0.0, "accuracy", "-")
        accuracy.set(title="accuracy", ylim=(0, 1))
        _finish(accuracy)
    write_figure(figure, path, dpi=110)


def _trace(
    panel: Any, turns: Sequence[Turn], value: Callable[[Turn], float], label: str, style: str
) -> None:
    for mirrored, colour in ((False, BLUE), (True, ORANGE)):
        drawn = [turn for turn in turns if turn.mirrored == mirrored]
        if not drawn:
            continue
        name = f"{label}, mirrored" if mirrored else label
        angles = [math.radians(turn.angle) for turn in drawn]
        values = [value(turn) if value(turn) < math.inf else math.nan for turn in drawn]
        closed = [[*angles, angles[0]], [*values, values[0]]]
        panel.plot(*closed, style, color=colour, label=name)
        exact = [(a, v) for a, v, turn in zip(angles, values, drawn, strict=True) if turn.exact]
        if exact:
            panel.plot(*zip(*exact, strict=True), "o", color=colour, ms=4)


def _finish(panel: Any) -> None:
    panel.set_rmin(0)
    panel.set_yticks(panel.get_yticks()[1::2])
    panel.set_rlabel_position(0)
    panel.tick_params(axis="y", labelsize=8, labelcolor="#6b7280")
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), frameon=False)
