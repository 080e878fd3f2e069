"""Charts of what runs measured: errors, differences, learning, classes, calibration."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from invint.figures.style import (
    BLUE,
    GREY,
    PAPER,
    SOFT,
    VERMILLION,
    WIDTH,
    Drawing,
    Pixels,
    Series,
    blend,
    draw_legend,
    log_ticks,
    new_figure,
    shortened,
    slug,
    styled,
    tie,
)
from invint.study.records import RunRecord
from invint.study.statistics import BETTER, WORSE, Difference
from invint.study.tables import Row, Table, signed
from invint.train.evaluate import Bin, calibration_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _show_log_ticks(axes: "Axes", unit: str = "") -> None:
    """Number the vertical, logarithmic axis as one would write the numbers."""
    axes.set_yscale("log")
    ticks = log_ticks(*axes.get_ylim())
    axes.set_yticks(ticks, [f"{tick:,.6g}{unit}" for tick in ticks])
    axes.set_yticks([], minor=True)


class _Curve(NamedTuple):
    """One line of the figure of errors: its points are places, means and deviations."""

    own: Series
    paper: bool
    points: Sequence[tuple[int, float, float | None]]


@styled
def error_drawing(table: Table, series: Mapping[str, Series]) -> Drawing | None:
    """Draw error against the number of training images, the paper's dashed; `None` for one number.

    A single size makes no curve: the table says the same with more digits.
    """
    if len(table.sizes) == 1:
        return None
    curves = [each for row in table.rows for each in _curves(row, table.sizes, series)]
    caption = (
        "Mean test error over seeds; the band is one sample deviation either way. Both axes are "
        "logarithmic."
    )
    entries = {own.key: (own.name, own.look()) for own, paper, _ in curves if not paper}
    if any(curve.paper for curve in curves):
        caption += " Dashed with open marks: the paper's numbers."
        entries["paper"] = ("the paper's", Series("", "", 0).look(paper=True) | {"marker": ""})
    figure = new_figure(250)
    draw_legend(figure, entries)
    axes = figure.subplots()
    for curve in curves:
        _draw_curve(axes, curve)
    _show_log_ticks(axes, " %")
    axes.set(xscale="log", xlabel="training images", ylabel="test error")
    sizes = _apart(table.sizes)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.set_xticks([], minor=True)
    title = f"Error against training images, {table.data}"
    return Drawing(slug("error", table.data), title, caption, figure)


def _curves(row: Row, sizes: Sequence[int], series: Mapping[str, Series]) -> Iterator[_Curve]:
    """Yield our curve, and the paper's where there is something to compare."""
    own = series[row.recipe].row(averaged=row.averaged)
    cells = list(zip(sizes, row.cells, strict=True))
    ours = [(size, c.ours.mean, c.ours.deviation) for size, c in cells if c.ours is not None]
    paper = [(size, *c.paper) for size, c in cells if c.paper is not None]
    if ours:
        yield _Curve(own, False, ours)
    if ours and paper:
        yield _Curve(own, True, paper)


def _draw_curve(axes: "Axes", curve: _Curve) -> None:
    """Draw a line, and a band around ours."""
    own = curve.own
    sizes = np.array([size for size, _, _ in curve.points])
    means = np.array([max(mean, 0.01) for _, mean, _ in curve.points])
    spread = np.array([deviation or 0.0 for _, _, deviation in curve.points])
    low, high = np.maximum(means - spread, means / 3), means + spread  # zero is off the axis
    artists: list[Any] = [*axes.plot(sizes, means, **own.look(paper=curve.paper))]
    if not curve.paper:
        artists.append(
            axes.fill_between(sizes, low, high, color=own.colour, alpha=0.12, linewidth=0)
        )
    tie(artists, own.key, *(["paper"] if curve.paper else []))


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return the sizes whose numbers do not run into each other, the last one always."""
    room = 0.13 * math.log(max(sizes) / min(sizes))
    kept: list[int] = []
    for size in sorted(sizes, reverse=True):
        if not kept or math.log(kept[-1] / size) > room:
            kept.append(size)
    return kept


@styled
def difference_drawing(table: Table, series: Mapping[str, Series]) -> Drawing | None:
    """Draw paired differences to pooling with their intervals; `None` where nothing is paired."""
    lines = [
        (size, row, row.cells[column].difference)
        for column, size in enumerate(table.sizes)
        for row in table.rows
    ]
    found = [(size, row, difference) for size, row, difference in lines if difference is not None]
    if not found:
        return None
    names: list[str] = []
    figure = new_figure(48 + 15 * (len(found) + len({size for size, _, _ in found})))
    axes = figure.subplots()
    for size, group in groupby(found, key=lambda line: line[0]):
        names.append(f"{size:,} images")
        for _, row, difference in group:
            own = series[row.recipe].row(averaged=row.averaged)
            _draw_interval(axes, difference, own, len(names))
            names.append(shortened(own.name, 24))
    axes.axvline(0, color=SOFT, linewidth=1)
    axes.set_yticks(range(len(names)), names, fontsize=9.5)
    for name, label in zip(names, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if name.endswith(" images") else "normal")
    axes.set(ylim=(len(names) - 0.4, -0.6), xlim=_reach([each for _, _, each in found]))
    axes.xaxis.set_major_formatter(lambda value, _: signed(value, "g") if value else "0")
    axes.set_xlabel("percentage points")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    title = f"Difference to pooling, {table.data}"
    caption = (
        "Percentage points of test error, paired by seed and training images, with the 95 % "
        "confidence interval of Student's t. Left of zero: fewer errors than pooling. Faint: the "
        "interval holds zero, so no difference is shown, or there is one pair alone and no "
        "interval. An interval without an end mark goes on beyond the figure."
    )
    return Drawing(slug("difference", table.data), title, caption, figure)


def _draw_interval(axes: "Axes", difference: Difference, own: Series, place: int) -> None:
    mean, low, high = difference.mean, difference.low, difference.high
    axes.errorbar(
        mean,
        place,
        xerr=None if low is None or high is None else [[mean - low], [high - mean]],
        alpha=1 if difference.verdict in (BETTER, WORSE) else 0.45,
        capsize=3,
        elinewidth=1.3,
        **own.look(),
    )


def _reach(differences: Sequence[Difference]) -> tuple[float, float]:
    """Return what the axis must hold: all means, and intervals but for far ends of wide ones."""
    limit = max(0.1, *(2.5 * abs(each.mean) for each in differences))
    ends = [end for each in differences for end in (each.mean, each.low, each.high) if end]
    inside = [0.0, *(max(-limit, min(limit, end)) for end in ends)]
    room = 0.06 * (max(inside) - min(inside)) or 0.5
    return min(inside) - room, max(inside) + room


def learning_drawings(runs: Sequence[RunRecord], series: Mapping[str, Series]) -> list[Drawing]:
    """Draw cross-entropy on training images against epochs, one figure for each size."""
    drawings = []
    for size in sorted({run.size for run in runs}):
        own = [run for run in runs if run.size == size]
        curves = {recipe: _mean_curve([r for r in own if r.recipe == recipe]) for recipe in series}
        found = {series[recipe]: curve for recipe, curve in curves.items() if len(curve)}
        if found:
            drawings.append(_learning_drawing(own, found))
    return drawings


def _mean_curve(runs: Sequence[RunRecord]) -> Pixels:
    """Return at most 150 rows of epoch, mean, smallest and largest cross-entropy over seeds."""
    values: dict[float, list[float]] = defaultdict(list)
    for run in runs:
        for line in run.curve:
            value = line.get("cross_entropy")
            if value is not None and math.isfinite(value):
                values[line["epoch"]].append(max(value, 1e-5))
    rows = [
        (epoch, fmean(seeds), min(seeds), max(seeds)) for epoch, seeds in sorted(values.items())
    ]
    shown = np.linspace(0, len(rows) - 1, min(150, len(rows))).round()
    return np.array([rows[int(place)] for place in shown])


@styled
def _learning_drawing(runs: Sequence[RunRecord], curves: Mapping[Series, Pixels]) -> Drawing:
    figure = new_figure(200)
    draw_legend(figure, {own.key: (own.name, own.look()) for own in curves})
    axes = figure.subplots()
    for own, (epochs, mean, low, high) in ((own, curve.T) for own, curve in curves.items()):
        band = axes.fill_between(epochs, low, high, color=own.colour, alpha=0.14, linewidth=0)
        line = axes.plot(epochs, mean, **own.look(), markevery=0.1, markersize=4)
        tie([band, *line], own.key)
    _show_log_ticks(axes)
    axes.set(xlabel="epoch", ylabel="cross-entropy")
    axes.locator_params(axis="x", integer=True)
    axes.margins(x=0.02)
    selections = sorted({event["epoch"] for run in runs for event in run.selections})
    for epoch in selections:
        axes.axvline(epoch, color=SOFT, linewidth=0.9, linestyle=(0, (2, 2)))
    if selections:  # one word for all lines, which may be close to each other
        at_top: Any = axes.get_xaxis_transform()
        place, beside = (selections[-1], 0.98), (3, 0)
        axes.annotate("selection", place, beside, at_top, "offset points", va="top", fontsize=9)
    data, size = runs[0].data, runs[0].size
    title = f"Learning from {size:,} images, {data}"
    caption = (
        "Cross-entropy on training images, mean over seeds; the band reaches from the lowest to "
        "the highest seed. Epochs are passes over the full set."
    )
    return Drawing(slug("learning", data, size), title, caption, figure)


@styled
def confusion_drawing(runs: Sequence[RunRecord], own: Series) -> Drawing | None:
    """Draw test images by true class and label, summed over seeds, and the error of each class."""
    matrices = [run.confusion for run in runs if run.confusion]
    if not matrices:
        return None
    counts = np.array(matrices).sum(axis=0)
    classes = len(counts)
    names = [each.name for each in runs[0].per_class] or [str(k) for k in range(classes)]
    shares = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    right = np.eye(classes, dtype=bool)
    opacity = np.where(right, 0.10 + 0.55 * shares, np.minimum(0.9, 1.9 * shares**0.6))
    cells = np.where(right[..., None], blend(BLUE, opacity), blend(VERMILLION, opacity))
    cells[counts == 0] = blend(GREY, 0.09)
    figure = new_figure(WIDTH - 25)  # cells are square
    axes = figure.subplots()
    axes.imshow(cells)
    _name_classes(axes, [shortened(name, 13) for name in names], 1 - shares.diagonal())
    if classes <= 12:
        for (i, j), count in np.ndenumerate(counts):
            short = str(count) if count < 10000 else f"{count / 1000:.0f}k"
            if count:
                axes.text(j, i, short, ha="center", va="center", fontsize=9.5)
    title = f"Confusions of {own.name}, {runs[0].size:,} images"
    caption = (
        f"Test images by true class (rows) and label (columns), summed over {_seeds(matrices)}. "
        "Blue: right; orange: mistaken, the deeper the larger the fraction of the true class. At "
        "the right the error of each class."
    )
    return Drawing(slug("confusion", runs[0].data, own.name), title, caption, figure)


def _name_classes(axes: "Axes", names: Sequence[str], errors: Pixels) -> None:
    """Write classes on the left and above, and their errors on the right."""
    classes, upright = len(names), max(map(len, names)) <= 3
    size = 9.5 if classes <= 24 else 9.5 * 24 / classes
    axes.tick_params(labelsize=size)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xticks(range(classes), names, rotation=0 if upright else 90)
    axes.set_yticks(range(classes), names)
    axes.set(xlabel="label", ylabel="true class")
    axes.grid(visible=False)
    axes.set_frame_on(False)
    if classes <= 30:  # gaps between cells, in the colour of the page
        edges = np.arange(0.5, classes - 1)
        axes.hlines(edges, -0.5, classes - 0.5, color=PAPER, linewidth=1.5)
        axes.vlines(edges, -0.5, classes - 0.5, color=PAPER, linewidth=1.5)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(classes), [f"{error:.1%}" for error in errors])
    right.tick_params(labelsize=size * 0.95, labelcolor=SOFT)
    right.spines["right"].set_visible(False)


def _seeds(runs: Sequence[object]) -> str:
    return "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"


@styled
def class_error_drawing(
    networks: Sequence[tuple[Sequence[RunRecord], Series]], *, most: int = 30
) -> Drawing | None:
    """Draw the error of each class, the worst above; `None` where the runs do not know it.

    Args:
        networks: The runs of each recipe, on the same classes.
        most: Classes shown; of more, the worst.
    """
    errors = {own: _class_errors(runs) for runs, own in networks}
    errors = {own: found for own, found in errors.items() if found}
    means = [fmean(values) for values in zip(*errors.values(), strict=True)]
    if len(means) < 2:
        return None
    classes = [each for each in networks[0][0][0].per_class if each.images]
    order = sorted(range(len(means)), key=lambda place: -means[place])[:most]
    figure = new_figure(40 + 16 * len(order))
    draw_legend(figure, {own.key: (own.name, own.look() | {"linestyle": ""}) for own in errors})
    axes = figure.subplots()
    for own, found in errors.items():
        values = [100 * found[place] for place in order]
        look = own.look() | {"linestyle": "", "clip_on": False}
        tie(axes.plot(values, range(len(order)), **look), own.key)
    names = [f"{shortened(classes[place].name, 18)} ({classes[place].images:,})" for place in order]
    axes.set_yticks(range(len(order)), names, fontsize=9.5)
    axes.set(ylim=(len(order) - 0.4, -0.6), xlabel="test error of the class, %")
    axes.set_xlim(left=0)
    axes.spines["left"].set_visible(False)
    data = networks[0][0][0].data
    left = f" The {len(order)} worst of {len(means)} classes." if len(order) < len(means) else ""
    caption = (
        "Fraction of the test images of each class with a wrong answer, mean over seeds with the "
        f"most training images; in brackets how many test images the class has.{left}"
    )
    return Drawing(slug("classes", data), f"Error by class, {data}", caption, figure)


def _class_errors(runs: Sequence[RunRecord]) -> list[float]:
    """Return the mean over runs for each class that has test images."""
    columns = zip(*(run.per_class for run in runs if run.per_class), strict=True)
    return [fmean(each.error for each in column) for column in columns if column[0].images]


def merged_bins(columns: Sequence[Sequence[Bin]]) -> tuple[Bin, ...]:
    """Return the calibration of several runs together."""
    merged = []
    for column in zip(*columns, strict=True):
        count = sum(each.count for each in column)
        confidence = sum(each.count * each.confidence for each in column) / max(1, count)
        accuracy = sum(each.count * each.accuracy for each in column) / max(1, count)
        merged.append(Bin(count, confidence, accuracy))
    return tuple(merged)


@styled
def calibration_drawing(
    runs: Sequence[RunRecord], own: Series, scaled: Sequence[tuple[float, Sequence[Bin]]] = ()
) -> Drawing | None:
    """Draw accuracy against confidence, and what temperature scaling makes of it.

    Args:
        runs: Of one recipe.
        own: Its look.
        scaled: A temperature and the bins of scaled answers, for each run where they are known.
    """
    before = [run.calibration for run in runs if run.calibration_error is not None]
    if not before:
        return None
    after = [tuple(bins) for _, bins in scaled]
    known = {"before": before, "after": after} if after else {"before": before}
    errors = {key: fmean(calibration_error(bins) or 0.0 for bins in known[key]) for key in known}
    looks = {"before": own.look(), "after": own.look(paper=True)}
    figure = new_figure(330)
    if after:
        words = {"before": "as trained", "after": "temperature scaled"}
        draw_legend(figure, {key: (words[key], looks[key] | {"linestyle": ""}) for key in known})
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[6, 1])
    upper.plot([0, 1], [0, 1], color=SOFT, linewidth=1.1, linestyle=(0, (4, 3)))
    for key, columns in known.items():
        _draw_bins(upper, lower, merged_bins(columns), looks[key], key)
    upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    upper.set_title("ECE " + " → ".join(f"{error:.2%}" for error in errors.values()), loc="right")
    lower.set(xlabel="confidence", ylabel="images")
    lower.locator_params(axis="y", nbins=2)
    lower.yaxis.set_major_formatter("{x:,.0f}")
    figure.align_ylabels()
    title = f"Calibration of {own.name}, {runs[0].size:,} images"
    caption = (
        f"Accuracy of test images by confidence, {_seeds(before)} together; below the diagonal "
        f"the network is too sure of itself. Expected calibration error {errors['before']:.2%}. "
        "The grey bars below show how many images each bin holds."
    )
    if after:
        caption += _scaling_caption([temperature for temperature, _ in scaled], errors["after"])
    return Drawing(slug("calibration", runs[0].data, own.name), title, caption, figure)


def _scaling_caption(temperatures: Sequence[float], error: float) -> str:
    return (
        f" Open marks: logits divided by a temperature, {fmean(temperatures):.2f} on average, "
        "which changes no answer; the one of each half of the test images was chosen on the other "
        f"half. Then the expected calibration error is {error:.2%}."
    )


def _draw_bins(
    upper: "Axes", lower: "Axes", bins: Sequence[Bin], look: Mapping[str, Any], key: str
) -> None:
    """Draw accuracies above; of the answers as they are, bars as well and the counts below."""
    step = 1 / len(bins)
    places = step * (np.arange(len(bins)) + 0.5)
    filled = [each for each in bins if each.count]
    dots = [each.confidence for each in filled], [each.accuracy for each in filled]
    artists: list[Any] = upper.plot(*dots, **{**look, "linestyle": ""})
    if key == "before":
        heights = [each.accuracy for each in bins]
        artists += upper.bar(places, heights, 0.86 * step, color=look["color"], alpha=0.28)
        lower.bar(places, [each.count for each in bins], 0.86 * step, color=GREY, alpha=0.7)
    tie(artists, key)
