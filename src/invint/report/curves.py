"""Figures over sizes and epochs: errors, differences to pooling, learning curves."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from invint.report.drawing import (
    CHARACTER,
    Axis,
    Canvas,
    Frame,
    axis_over,
    legend,
    legend_height,
)
from invint.report.figures import NARROW, WIDE, Figure, Series, slug
from invint.study.records import RunRecord
from invint.study.statistics import BETTER, WORSE, Difference
from invint.study.tables import Row, Table, interval_text, signed


@dataclass(frozen=True)
class _Curve:
    """One line of the figure of errors: places, errors and deviations."""

    name: str
    kind: str
    points: list[tuple[int, float, float | None]]


def error_figure(table: Table, series: dict[str, Series]) -> Figure:
    """Draw error against the number of training images, the paper's dashed."""
    curves = [curve for row in table.rows for curve in _curves(row, table.sizes, series)]
    title = f"Error against training images, {table.data}"
    caption = (
        "Mean test error over seeds; bars are one sample deviation either way. Both axes are "
        "logarithmic."
    )
    if any("paper" in curve.kind for curve in curves):
        caption += " Dashed with open marks: the paper's numbers."
    drawings = [
        _error_drawing(curves, table.sizes, width, title, caption) for width in (WIDE, NARROW)
    ]
    return Figure(slug("error", table.data), title, caption, *drawings)


def _curves(row: Row, sizes: Sequence[int], series: dict[str, Series]) -> list[_Curve]:
    own = series[row.recipe]
    cells = list(zip(sizes, row.cells, strict=True))
    ours = [(size, c.ours.mean, c.ours.deviation) for size, c in cells if c.ours is not None]
    paper = [(size, *c.paper) for size, c in cells if c.paper is not None]
    name = f"{own.name}, averaged" if row.averaged else own.name
    curves = [_Curve(name, f"{own.kind} averaged" if row.averaged else own.kind, ours)]
    if paper and ours:
        curves.append(_Curve(f"{own.name}, paper", f"{own.kind} paper", paper))
    return [curve for curve in curves if curve.points]


def _error_drawing(
    curves: Sequence[_Curve], sizes: Sequence[int], width: int, title: str, about: str
) -> str:
    entries = [(curve.kind, curve.name) for curve in curves if "paper" not in curve.kind]
    entries += [("paper", "the paper's")] if len(entries) < len(curves) else []
    top = legend_height(entries, 12, width - 8) + 34
    bottom = top + (300 if width == WIDE else 270)
    canvas = Canvas(width, bottom + 46, title, about)
    legend(canvas, entries, left=12, top=12, right=width - 8)
    ends = [
        max(mean + sign * (deviation or 0), mean / 3, 0.01)
        for curve in curves
        for _, mean, deviation in curve.points
        for sign in (-1, 1)
    ]
    x = axis_over(sizes, 52, width - 18, logarithmic=True)
    frame = Frame(x, axis_over(ends, bottom, top, logarithmic=True))
    frame.draw(
        canvas, x_name="training images", y_name="test error", x_ticks=_apart(sizes, x), unit=" %"
    )
    for number, curve in enumerate(curves):
        shift = 4.0 * (number - (len(curves) - 1) / 2) if len(curves) < 12 else 0.0
        _draw_curve(canvas, frame, curve, shift)
    return canvas.svg()


def _apart(sizes: Sequence[int], axis: Axis) -> list[float]:
    """Return the sizes whose numbers do not run into each other, the last one always."""
    kept: list[float] = []
    for size in sorted(sizes, reverse=True):
        if not kept or axis(kept[-1]) - axis(size) > 46:
            kept.append(size)
    return kept


def _draw_curve(canvas: Canvas, frame: Frame, curve: _Curve, shift: float) -> None:
    canvas.open(f"series {curve.kind}")
    places = [(frame.x(size) + shift, frame.y(max(mean, 0.01))) for size, mean, _ in curve.points]
    canvas.path(places, "stroke")
    for (x, y), (size, mean, deviation) in zip(places, curve.points, strict=True):
        text = f"{curve.name}, {size:,} images: {mean:.3g} %"
        if deviation:
            ends = [frame.y(max(mean + sign * deviation, mean / 3, 0.01)) for sign in (-1, 1)]
            canvas.line((x, ends[0]), (x, ends[1]), "bar")
            for end in ends:
                canvas.line((x - 3.5, end), (x + 3.5, end), "bar")
            text += f" ± {deviation:.2g}"
        canvas.circle((x, y), 4, "dot", text)
    canvas.close()


@dataclass(frozen=True)
class _Line:
    """One interval of the figure of differences."""

    name: str
    kind: str
    size: int
    difference: Difference

    @property
    def tip(self) -> str:
        """What is said where the pointer rests."""
        interval = interval_text(self.difference)
        return f"{self.name}, {self.size:,} images: {interval}: {self.difference.verdict}"


def difference_figure(table: Table, series: dict[str, Series]) -> Figure | None:
    """Draw paired differences to pooling with their intervals; none where nothing is paired."""
    lines = [line for place in range(len(table.sizes)) for line in _lines(table, place, series)]
    if not lines:
        return None
    title = f"Difference to pooling, {table.data}"
    caption = (
        "Percentage points of test error, paired by seed and training images, with the 95 % "
        "confidence interval of Student's t. Left of zero: fewer errors than pooling. Faint: the "
        "interval holds zero, so no difference is shown, or there is one pair alone and no "
        "interval. An interval without an end mark goes on beyond the figure."
    )
    drawings = (_difference_drawing(lines, width, title, caption) for width in (WIDE, NARROW))
    return Figure(slug("difference", table.data), title, caption, *drawings)


def _lines(table: Table, place: int, series: dict[str, Series]) -> Iterator[_Line]:
    for row in table.rows:
        difference = row.cells[place].difference
        if difference is not None:
            own = series[row.recipe]
            name = f"{own.name}, averaged" if row.averaged else own.name
            kind = f"{own.kind} averaged" if row.averaged else own.kind
            unsure = "" if difference.verdict in (BETTER, WORSE) else " unsure"
            yield _Line(name, kind + unsure, table.sizes[place], difference)


def _difference_drawing(lines: Sequence[_Line], width: int, title: str, about: str) -> str:
    left = 136.0 if width == NARROW else 200.0
    sizes = len({line.size for line in lines})
    step = 25.0 if len(lines) <= 16 else 19.0
    bottom = step * len(lines) + 32 * sizes + 4
    canvas = Canvas(width, bottom + 40, title, about)
    x = axis_over(_ends([line.difference for line in lines]), left, width - 16)
    for tick in x.ticks():
        canvas.line((x(tick), 8), (x(tick), bottom), "rule" if tick == 0 else "grid")
        text = signed(tick, "g") if tick else "0"
        canvas.text((x(tick), bottom + 16), text, anchor="middle", kind="tick")
    middle = (left + width - 16) / 2
    canvas.text((middle, bottom + 36), "percentage points", anchor="middle", kind="name")
    y, size = 0.0, 0
    for line in lines:
        if line.size != size:
            y, size = y + 32, line.size
            canvas.text((4, y - 8), f"{size:,} images", kind="name")
        _draw_interval(canvas, x, line, y + 8)
        y += step
    return canvas.svg()


def _ends(differences: Sequence[Difference]) -> list[float]:
    """Return what the axis must hold: all means, and intervals but for far ends of wide ones."""
    limit = max(0.1, *(2.5 * abs(each.mean) for each in differences))
    ends = [end for each in differences for end in (each.mean, each.low, each.high) if end]
    return [0.0, *(max(-limit, min(limit, end)) for end in ends)]


def _draw_interval(canvas: Canvas, x: Axis, line: _Line, y: float) -> None:
    letters = int((x.start - 18) / CHARACTER)
    name = line.name if len(line.name) <= letters else line.name[: letters - 1] + "…"
    canvas.text((12, y + 4), name)
    canvas.open(f"series {line.kind}")
    low, high = line.difference.low, line.difference.high
    if low is not None and high is not None:
        canvas.line((x(max(low, x.low)), y), (x(min(high, x.high)), y), "bar")
        for end in (low, high):
            if x.low <= end <= x.high:
                canvas.line((x(end), y - 4), (x(end), y + 4), "bar")
    canvas.circle((x(line.difference.mean), y), 4.5, "dot", line.tip)
    canvas.close()


def learning_figures(runs: Sequence[RunRecord], series: dict[str, Series]) -> list[Figure]:
    """Draw cross-entropy on training images against epochs, one figure for each size."""
    figures = []
    for size in sorted({run.size for run in runs}):
        own = [run for run in runs if run.size == size]
        curves = {recipe: _mean_curve([r for r in own if r.recipe == recipe]) for recipe in series}
        found = {recipe: curve for recipe, curve in curves.items() if curve}
        if found:
            figures.append(_learning_figure(own, found, size, series))
    return figures


def _mean_curve(runs: Sequence[RunRecord]) -> list[tuple[float, float, float, float]]:
    """Return epoch, mean, smallest and largest cross-entropy over seeds."""
    values: dict[float, list[float]] = {}
    for run in runs:
        for line in run.curve:
            value = line.get("cross_entropy")
            if value is not None and math.isfinite(value):
                values.setdefault(line["epoch"], []).append(max(value, 1e-5))
    step = -(-len(values) // 150) or 1
    return [
        (epoch, fmean(seeds), min(seeds), max(seeds))
        for number, (epoch, seeds) in enumerate(sorted(values.items()))
        if number % step == 0 or number == len(values) - 1
    ]


def _learning_figure(
    runs: Sequence[RunRecord],
    curves: dict[str, list[tuple[float, float, float, float]]],
    size: int,
    series: dict[str, Series],
) -> Figure:
    data = runs[0].data
    title = f"Learning from {size:,} images, {data}"
    caption = (
        "Cross-entropy on training images, mean over seeds; the band reaches from the lowest to "
        "the highest seed. Epochs are passes over the full set."
    )
    entries = [(series[recipe].kind, series[recipe].name) for recipe in curves]
    width = 460
    top = legend_height(entries, 12, width - 8) + 34
    bottom = top + 220
    canvas = Canvas(width, bottom + 46, title, caption)
    legend(canvas, entries, left=12, top=12, right=width - 8)
    points = [point for curve in curves.values() for point in curve]
    last = max(point[0] for point in points)
    frame = Frame(
        Axis(0, last, 52, width - 16),
        axis_over([end for point in points for end in point[2:]], bottom, top, logarithmic=True),
    )
    frame.draw(canvas, x_name="epoch", y_name="cross-entropy")
    epochs = sorted({event["epoch"] for run in runs for event in run.selections})
    for epoch in epochs:
        canvas.line((frame.x(epoch), top), (frame.x(epoch), bottom), "event")
        if epoch == epochs[-1]:  # one word for all lines, which may be close to each other
            canvas.text((frame.x(epoch) + 4, top + 10), "selection", kind="tick")
    for recipe, curve in curves.items():
        canvas.open(f"series {series[recipe].kind}")
        band = [(frame.x(e), frame.y(high)) for e, _, _, high in curve]
        band += [(frame.x(e), frame.y(low)) for e, _, low, _ in reversed(curve)]
        canvas.path(band, "band", closed=True)
        canvas.path([(frame.x(e), frame.y(mean)) for e, mean, *_ in curve], "stroke")
        canvas.close()
    return Figure(slug("learning", data, size), title, caption, canvas.svg())
