"""What came of a tuning: the trials as a table, the search as a figure."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from invint.files import write_figure, write_whole
from invint.study.space import Choice, Range, Space
from invint.study.trials import Measured, Trial, best_trial, cost, incumbents

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"bohb": "BOHB", "random": "random search"}
COLOURS = {"bohb": "#0072b2", "random": "#d55e00"}
MARKERS = {"bohb": "o", "random": "s"}
TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)
PANELS = 4  # beside each other
FIRST_COLUMNS = ("method", "number", "fidelity", "state", "validation_error", "seconds")


def trials_csv(trials: Mapping[str, Sequence[Trial]], space: Space) -> str:
    """Return all trials as CSV, one line each, with all digits."""
    paths = [each.path for each in space]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST_COLUMNS, *paths, "folder", "problem"])
    for method, found in trials.items():
        for trial in found:
            error = "" if trial.validation_error is None else trial.validation_error
            writer.writerow(
                [method, trial.number, trial.fidelity, trial.state, error, trial.seconds]
                + [trial.configuration[path] for path in paths]
                + [trial.folder, trial.problem]
            )
    return text.getvalue()


def against_own(best: Trial | None, own: Measured, scale: float) -> str:
    """Say in a plain line whether the best trial is better than the recipe's own values."""
    if own.error is None:
        return f"the recipe's own values: failed ({own.problem})"
    line = f"the recipe's own values: {own.error:.2%} validation error with {share(scale)}"
    if best is None or best.validation_error is None or best.fidelity != scale:
        return line
    gap = 100 * (own.error - best.validation_error)
    if gap <= 0:
        return f"{line}: tuning found nothing better"
    return f"{line}, {gap:.2f} percentage points more than the best trial"


def verdict(trials: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Say in plain lines what each method found at which cost, and which found the better."""
    best = {method: best_trial(found) for method, found in trials.items()}
    lines = [_line(method, found, best[method]) for method, found in trials.items()]
    if len(trials) == 1:
        return lines
    reached = {each.fidelity for each in best.values() if each is not None}
    if None in best.values() or len(reached) > 1:
        return [
            *lines,
            "not compared: their best trials have different iterations, or there is none",
        ]
    errors = {method: each.validation_error or 0.0 for method, each in best.items() if each}
    first, second = sorted(errors, key=lambda method: errors[method])
    gap = errors[second] - errors[first]
    if gap == 0:
        return [*lines, "at equal cost both found the same validation error"]
    return [
        *lines,
        f"at equal cost {TITLES[first]} found {100 * gap:.2f} percentage points less; one tuning "
        "of each says nothing about chance",
    ]


def _line(method: str, trials: Sequence[Trial], best: Trial | None) -> str:
    failed = sum(trial.state == "failed" for trial in trials)
    number = "one trial" if len(trials) == 1 else f"{len(trials)} trials"
    spent = f"{number} that cost {cost(trials):.1f} full ones"
    spent += f", {failed} failed" if failed else ""
    if best is None:
        return f"{TITLES[method]}: no trial succeeded ({spent})"
    return (
        f"{TITLES[method]}: {best.validation_error:.2%} validation error with "
        f"{share(best.fidelity)}, trial {best.number} ({spent})"
    )


def write_outcome(
    folder: Path,
    ended: Mapping[str, Sequence[Trial]],
    space: Space,
    reference: float | None = None,
) -> list[Path]:
    """Write `trials.csv`, `tuning.png` and `tuning.svg`, and return their paths.

    Args:
        folder: Of the tuning.
        ended: For each method its trials, in the order in which they ended.
        space: What was tuned.
        reference: The validation error of the recipe's own values, if it is known.
    """
    table = folder / "trials.csv"
    by_number = {
        method: sorted(found, key=lambda trial: trial.number) for method, found in ended.items()
    }
    write_whole(table, trials_csv(by_number, space))
    figure = draw_tuning(ended, space, reference)
    paths = [folder / "tuning.png", folder / "tuning.svg"]
    for path in paths:
        write_figure(figure, path, dpi=150)
    return [table, *paths]


def draw_tuning(
    ended: Mapping[str, Sequence[Trial]], space: Space, reference: float | None = None
) -> "Figure":
    """Draw the lowest error against cost, and the error against each parameter.

    Only trials with the most iterations are compared; those with fewer are smaller and fainter.
    """
    from matplotlib.figure import Figure

    rows = -(-len(space) // PANELS)
    figure = Figure(figsize=(11, 3.4 + 2.5 * rows), layout="constrained")
    top, below = figure.subfigures(2, 1, height_ratios=[3.4, 2.5 * rows], squeeze=False)[:, 0]
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
        _dots(axes, spent, found, method, top)
        points = incumbents(found, top)
        if points:
            places, errors = zip(*points, strict=True)
            axes.step(
                [*places, spent[-1]],
                [100 * error for error in (*errors, errors[-1])],
                where="post",
                color=COLOURS[method],
                label=f"{TITLES[method]}: lowest with {share(top)}",
            )
    if reference is not None:
        axes.axhline(100 * reference, color="0.4", linestyle="--", label="the recipe's own values")
    axes.set_xlabel("cost, in trials with all iterations")
    axes.set_ylabel("validation error, %")
    axes.set_title("small and faint: trials with fewer iterations", loc="left", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    _clean(axes, [trial for found in ended.values() for trial in found])


def draw_parameter(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], parameter: Range | Choice
) -> None:
    """Draw the validation errors against the values of one parameter; a ring is the best."""
    path = parameter.path
    everything = [trial for found in ended.values() for trial in found]
    top = max((trial.fidelity for trial in everything), default=1.0)
    for method, found in ended.items():
        _dots(axes, [trial.configuration[path] for trial in found], found, method, top)
    best = best_trial(everything)
    if best is not None and best.validation_error is not None:
        place = best.configuration[path], 100 * best.validation_error
        axes.plot(*place, "o", markersize=13, markerfacecolor="none", color="black")
    axes.set_xscale("log" if parameter.log else "linear")
    if isinstance(parameter, Choice):
        axes.set_xticks(parameter.values, labels=[f"{value:g}" for value in parameter.values])
        axes.set_xticks([], minor=True)
        axes.margins(x=0.15)
    else:
        _fit(axes, parameter)
    axes.set_xlabel(path)
    _clean(axes, everything)


def _dots(
    axes: "Axes", places: Sequence[float], trials: Sequence[Trial], method: str, top: float
) -> None:
    """Draw trials; those with fewer iterations smaller and fainter, failed ones not at all."""
    from matplotlib.colors import to_rgba

    done = [
        (place, 100 * trial.validation_error, trial.fidelity / top)
        for place, trial in zip(places, trials, strict=True)
        if trial.validation_error is not None
    ]
    axes.scatter(
        [place for place, _, _ in done],
        [error for _, error, _ in done],
        s=[9 + 36 * share for _, _, share in done],
        c=[to_rgba(COLOURS[method], 0.3 + 0.6 * share) for _, _, share in done],
        marker=MARKERS[method],
        linewidths=0,
    )


def _fit(axes: "Axes", parameter: Range) -> None:
    """Show the whole range of a parameter, with few numbers below."""
    low, high = parameter.low, parameter.high
    if not parameter.log:
        axes.set_xlim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        return
    axes.set_xlim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
    if high / low < 100:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5, 10)]
        ticks = sorted({tick for tick in ticks if low <= tick <= high})
        axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)


def _clean(axes: "Axes", trials: Sequence[Trial]) -> None:
    """Draw errors logarithmically, linearly below one percent, with whole numbers beside."""
    errors = [100 * each.validation_error for each in trials if each.validation_error is not None]
    lowest = min(errors, default=1.0)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    axes.set_ylim(-0.1 if lowest < 1.5 else 0.75 * lowest, 115)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def share(fidelity: float) -> str:
    """Say how many of the iterations a trial had."""
    return "all iterations" if fidelity == 1 else f"{fidelity:.3g} of the iterations"
