"""What a tuning tried: the lowest error against cost, and the error against each parameter."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from invint.figures.style import BLUE, INK, SOFT, VERMILLION, log_ticks, new_figure, styled
from invint.study.search import Choice, Range, Space
from invint.study.tune import TITLES, Trial, best_trial, incumbents, share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = {"bohb": (BLUE, "o"), "random": (VERMILLION, "s")}
PERCENT = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)
PANELS = 4  # beside each other


@styled
def tuning_figure(
    ended: Mapping[str, Sequence[Trial]], space: Space, reference: float | None = None
) -> "Figure":
    """Draw the lowest error against cost, and the error against each parameter.

    Only trials with the most iterations are compared; those with fewer are smaller and fainter.

    Args:
        ended: For each method its trials, in the order in which they ended.
        space: What was tuned.
        reference: The validation error of the recipe's own values, if it is known.
    """
    trials = [trial for found in ended.values() for trial in found]
    top = max((trial.fidelity for trial in trials), default=1.0)
    best = best_trial(trials)
    rows = -(-len(space) // PANELS)
    heights = [250.0, 180.0 * rows]
    figure = new_figure(sum(heights), 790)
    above, below = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    search = above.subplots()
    _draw_search(search, ended, top, reference)
    panels = list(below.subplots(rows, PANELS, squeeze=False, sharey=True).flat)
    for panel, parameter in zip(panels, space, strict=False):
        for method, found in ended.items():
            places = [trial.configuration[parameter.path] for trial in found]
            _draw_trials(panel, places, found, method, top)
        if best is not None and best.validation_error is not None:  # in a ring
            place = best.configuration[parameter.path], 100 * best.validation_error
            panel.plot(*place, "o", markersize=12, markerfacecolor="none", color=INK, mew=1)
        _show_values(panel, parameter)
    for panel in panels[len(space) :]:
        panel.set_axis_off()
    errors = [trial.validation_error for trial in trials if trial.validation_error is not None]
    lowest = 100 * min(errors, default=0.01)
    for axes in (search, *panels[::PANELS]):
        axes.set_yscale("symlog", linthresh=1)  # linear below one percent, where errors may be 0
        axes.set_yticks(PERCENT, [f"{tick:g}" for tick in PERCENT])
        axes.set(ylabel="validation error, %", ylim=(-0.1 if lowest < 1.5 else 0.75 * lowest, 115))
    return figure


def _draw_search(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], top: float, reference: float | None
) -> None:
    """Draw the lowest validation error so far against what the search has cost."""
    for method, found in ended.items():
        spent = list(accumulate(trial.fidelity for trial in found))
        _draw_trials(axes, spent, found, method, top)
        points = incumbents(found, top)
        if points:
            costs, errors = zip(*points, (spent[-1], points[-1][1]), strict=True)
            label = f"{TITLES[method]}: lowest with {share(top)}"
            percents = [100 * error for error in errors]
            axes.step(costs, percents, where="post", color=METHODS[method][0], label=label)
    if reference is not None:
        look: dict[str, Any] = {"color": SOFT, "linestyle": (0, (4, 3))}
        axes.axhline(100 * reference, **look, label="the recipe's own values")
    axes.set_xlabel("cost, in trials with all iterations")
    axes.set_title("small and faint: trials with fewer iterations")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=10)


def _draw_trials(
    axes: "Axes", places: Sequence[float], trials: Sequence[Trial], method: str, top: float
) -> None:
    """Draw trials; those with fewer iterations smaller and fainter, failed ones not at all."""
    done = [
        (place, 100 * trial.validation_error, trial.fidelity / top)
        for place, trial in zip(places, trials, strict=True)
        if trial.validation_error is not None
    ]
    if done:
        x, y, part = np.array(done).T
        colour, marker = METHODS[method]
        look: dict[str, Any] = {"color": colour, "marker": marker, "linewidths": 0}
        axes.scatter(x, y, s=9 + 30 * part, alpha=0.3 + 0.6 * part, clip_on=False, **look)


def _show_values(axes: "Axes", parameter: Range | Choice) -> None:
    """Show all values a parameter may have, with few numbers below."""
    axes.set_xlabel(parameter.path)
    axes.set_xscale("log" if parameter.log else "linear")
    if isinstance(parameter, Range):
        axes.set_xlim(parameter.low, parameter.high)
    else:
        axes.margins(x=0.15)
    if parameter.log:
        named = log_ticks(*axes.get_xlim()) if isinstance(parameter, Range) else parameter.values
        ticks = named[:: -(-len(named) // 5)]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
