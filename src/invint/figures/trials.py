"""What a tuning tried: the lowest error against cost, and the error against each parameter."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

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
    rows = -(-len(space) // PANELS)
    heights = [250.0, 180.0 * rows]
    figure = new_figure(sum(heights), 790)
    top, below = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    draw_search(top.subplots(), ended, reference)
    panels = list(below.subplots(rows, PANELS, squeeze=False, sharey=True).flat)
    for panel, parameter in zip(panels, space, strict=False):
        draw_parameter(panel, ended, parameter)
    for panel in panels[len(space) :]:
        panel.set_axis_off()
    for panel in panels[::PANELS]:
        panel.set_ylabel("validation error, %")
    return figure


def draw_search(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], reference: float | None = None
) -> None:
    """Draw the lowest validation error so far against what the search has cost."""
    top = max((trial.fidelity for found in ended.values() for trial in found), default=1.0)
    for method, found in ended.items():
        spent = list(accumulate(trial.fidelity for trial in found))
        _draw_trials(axes, spent, found, method, top)
        points = incumbents(found, top)
        if points:
            places, errors = zip(*points, strict=True)
            axes.step(
                [*places, spent[-1]],
                [100 * error for error in (*errors, errors[-1])],
                where="post",
                color=METHODS[method][0],
                label=f"{TITLES[method]}: lowest with {share(top)}",
            )
    if reference is not None:
        axes.axhline(
            100 * reference, color=SOFT, linestyle=(0, (4, 3)), label="the recipe's own values"
        )
    axes.set(xlabel="cost, in trials with all iterations", ylabel="validation error, %")
    axes.set_title("small and faint: trials with fewer iterations")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    _scale_errors(axes, [trial for found in ended.values() for trial in found])


def draw_parameter(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], parameter: Range | Choice
) -> None:
    """Draw the validation errors against the values of one parameter; a ring is the best."""
    path = parameter.path
    everything = [trial for found in ended.values() for trial in found]
    top = max((trial.fidelity for trial in everything), default=1.0)
    for method, found in ended.items():
        _draw_trials(axes, [trial.configuration[path] for trial in found], found, method, top)
    best = best_trial(everything)
    if best is not None and best.validation_error is not None:
        place = best.configuration[path], 100 * best.validation_error
        axes.plot(*place, "o", markersize=12, markerfacecolor="none", color=INK, markeredgewidth=1)
    axes.set_xscale("log" if parameter.log else "linear")
    if isinstance(parameter, Choice):
        axes.set_xticks(parameter.values, labels=[f"{value:g}" for value in parameter.values])
        axes.set_xticks([], minor=True)
        axes.margins(x=0.15)
    else:
        _show_range(axes, parameter)
    axes.set_xlabel(path)
    _scale_errors(axes, everything)


def _draw_trials(
    axes: "Axes", places: Sequence[float], trials: Sequence[Trial], method: str, top: float
) -> None:
    """Draw trials; those with fewer iterations smaller and fainter, failed ones not at all."""
    from matplotlib.colors import to_rgba

    colour, marker = METHODS[method]
    done = [
        (place, 100 * trial.validation_error, trial.fidelity / top)
        for place, trial in zip(places, trials, strict=True)
        if trial.validation_error is not None
    ]
    axes.scatter(
        [place for place, _, _ in done],
        [error for _, error, _ in done],
        s=[9 + 30 * part for _, _, part in done],
        c=[to_rgba(colour, 0.3 + 0.6 * part) for _, _, part in done],
        marker=marker,
        linewidths=0,
    )


def _show_range(axes: "Axes", parameter: Range) -> None:
    """Show the whole range of a parameter, with few numbers below."""
    low, high = parameter.low, parameter.high
    if not parameter.log:
        axes.set_xlim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        return
    axes.set_xlim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
    ticks = log_ticks(low, high)
    thinned = ticks[:: -(-len(ticks) // 5)]
    axes.set_xticks(thinned, labels=[f"{tick:g}" for tick in thinned])
    axes.set_xticks([], minor=True)


def _scale_errors(axes: "Axes", trials: Sequence[Trial]) -> None:
    """Draw errors logarithmically, linearly below one percent, with whole numbers beside."""
    errors = [100 * each.validation_error for each in trials if each.validation_error is not None]
    lowest = min(errors, default=1.0)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks(PERCENT, labels=[f"{tick:g}" for tick in PERCENT])
    axes.set_ylim(-0.1 if lowest < 1.5 else 0.75 * lowest, 115)
