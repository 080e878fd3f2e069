"""Figures of what networks answer: on turned images, by class, by confidence."""

from collections.abc import Sequence
from statistics import fmean

from invint.report.drawing import (
    CHARACTER,
    Axis,
    Canvas,
    Frame,
    Point,
    legend,
    legend_height,
    plain,
    polar,
)
from invint.report.figures import Figure, Series, slug
from invint.study.records import Bin, RunRecord


def angle_figure(
    turns: dict[str, tuple[tuple[float, float], ...]],
    series: dict[str, Series],
    *,
    data: str,
    caption: str,
) -> Figure:
    """Draw accuracy around the circle."""
    title = f"Accuracy against angle, {data}"
    lowest = min(accuracy for circle in turns.values() for _, accuracy in circle)
    floor = max(0.0, int((100 * lowest - 8) / 10) * 10.0)
    caption += f" The centre of the circle is at {floor:g} %." if floor else ""
    width, radius = 460, 165.0
    entries = [(series[recipe].kind, series[recipe].name) for recipe in turns]
    top = legend_height(entries, 12, width - 8) + 30
    canvas = Canvas(width, top + 2 * radius + 40, title, caption)
    legend(canvas, entries, left=12, top=12, right=width - 8)
    centre: Point = (width / 2, top + radius + 4)
    axis = Axis(floor, 100, 0, radius)
    for degrees in range(0, 360, 45):
        canvas.line(centre, polar(centre, radius, degrees), "grid")
        x, y = polar(centre, radius + 17, degrees)
        canvas.text((x, y + 4), f"{degrees}°", anchor="middle", kind="tick")
    for tick in axis.ticks():
        if axis(tick) > 1:
            canvas.circle(centre, axis(tick), "ring")
    for recipe, circle in turns.items():
        canvas.open(f"series {series[recipe].kind}")
        places = [polar(centre, axis(100 * share), angle) for angle, share in circle]
        canvas.path(places, "stroke", closed=True)
        for place, (angle, share) in zip(places, circle, strict=True):
            tip = f"{series[recipe].name} at {angle:g}°: {share:.1%}"
            canvas.circle(place, 4 if angle % 90 == 0 else 2.2, "dot", tip)
        canvas.close()
    for tick in axis.ticks():
        x, y = polar(centre, axis(tick), 67.5)
        canvas.text((x, y + 4), f"{plain(tick)} %", anchor="middle", kind="tick halo")
    return Figure(slug("angles", data), title, caption, canvas.svg())


def confusion_figure(runs: Sequence[RunRecord], own: Series) -> Figure | None:
    """Draw test images by true class and label, summed over seeds."""
    matrices = [run.confusion for run in runs if run.confusion]
    if not matrices:
        return None
    classes = len(matrices[0])
    names = [each.name for each in runs[0].per_class] or [str(k) for k in range(classes)]
    counts = [[sum(m[i][j] for m in matrices) for j in range(classes)] for i in range(classes)]
    title = f"Confusions of {own.name}, {runs[0].size:,} images"
    caption = (
        f"Test images by true class (rows) and label (columns), summed over {len(matrices)} "
        f"{'seed' if len(matrices) == 1 else 'seeds'}. Blue: right; red: mistaken, the deeper the "
        "larger the share of the true class."
    )
    longest = max(len(name) for name in names)
    left = min(110.0, 34 + CHARACTER * longest)
    width = 460.0
    side = (width - left - 8) / classes
    top = 48.0 if longest <= 3 else 30 + min(80.0, CHARACTER * longest)
    canvas = Canvas(width, top + side * classes + 10, title, caption)
    canvas.text((left + side * classes / 2, 14), "label", anchor="middle", kind="name")
    canvas.text(
        (13, top + side * classes / 2), "true class", anchor="middle", kind="name", turned=True
    )
    for i, row in enumerate(counts):
        place = side * (i + 0.5)
        canvas.text((left - 7, top + place + 4), names[i][:13], anchor="end", kind="tick")
        upright = longest <= 3
        canvas.text(
            (left + place + (0 if upright else 4), top - 7),
            names[i][:13],
            anchor="middle" if upright else "start",
            kind="tick",
            turned=not upright,
        )
        for j, count in enumerate(row):
            share = count / max(1, sum(row))
            corner = (left + side * j + 1, top + side * i + 1)
            kind = "right" if i == j else "mistaken"
            opacity = 0.10 + 0.55 * share if i == j else min(0.9, 1.9 * share**0.6)
            tip = f"{names[i]} labelled {names[j]}: {count:,} ({share:.1%})"
            canvas.rectangle(corner, (side - 2, side - 2), "cell", radius=3)
            if count:
                canvas.rectangle(
                    corner, (side - 2, side - 2), kind, opacity=opacity, tip=tip, radius=3
                )
                if classes <= 12:
                    middle = (corner[0] + side / 2 - 1, corner[1] + side / 2 + 3)
                    strong = " strong" if opacity > 0.6 and i != j else ""
                    canvas.text(middle, short(count), anchor="middle", kind=f"count{strong}")
    return Figure(slug("confusion", runs[0].data, own.name), title, caption, canvas.svg())


def short(count: int) -> str:
    """Return a count in at most four characters or so."""
    return str(count) if count < 10000 else f"{count / 1000:.0f}k"


def merged_bins(runs: Sequence[RunRecord]) -> tuple[Bin, ...]:
    """Return the calibration of several runs together."""
    merged = []
    for column in zip(*(run.calibration for run in runs if run.calibration), strict=True):
        count = sum(each.count for each in column)
        confidence = sum(each.count * each.confidence for each in column) / max(1, count)
        accuracy = sum(each.count * each.accuracy for each in column) / max(1, count)
        merged.append(Bin(count, confidence, accuracy))
    return tuple(merged)


def calibration_figure(runs: Sequence[RunRecord], own: Series) -> Figure | None:
    """Draw accuracy against confidence."""
    bins = merged_bins(runs)
    errors = [run.calibration_error for run in runs if run.calibration_error is not None]
    if not bins or not errors:
        return None
    title = f"Calibration of {own.name}, {runs[0].size:,} images"
    caption = (
        f"Accuracy of test images by confidence, {len(errors)} "
        f"{'seed' if len(errors) == 1 else 'seeds'} together; below the diagonal the network is "
        f"too sure of itself. Expected calibration error {fmean(errors):.2%}. The grey bars below "
        "show how many images each bin holds."
    )
    width, top, bottom = 460, 34.0, 304.0
    canvas = Canvas(width, bottom + 98, title, caption)
    frame = Frame(Axis(0, 1, 52, width - 16), Axis(0, 1, bottom, top))
    frame.draw(canvas, x_name="", y_name="accuracy", x_ticks=())
    canvas.line((frame.x(0), frame.y(0)), (frame.x(1), frame.y(1)), "diagonal")
    most = max(each.count for each in bins)
    step = 1 / len(bins)
    canvas.open(f"series {own.kind}")
    for number, each in enumerate(bins):
        if not each.count:
            continue
        left, right = frame.x(number * step) + 1.5, frame.x((number + 1) * step) - 1.5
        height = bottom - frame.y(each.accuracy)
        tip = (
            f"{each.count:,} images, confidence {each.confidence:.1%}, accuracy {each.accuracy:.1%}"
        )
        canvas.rectangle((left, bottom - height), (right - left, height), "area", tip=tip, radius=2)
        canvas.circle((frame.x(each.confidence), frame.y(each.accuracy)), 3.5, "dot", tip)
    canvas.close()
    for number, each in enumerate(bins):
        left, right = frame.x(number * step) + 1.5, frame.x((number + 1) * step) - 1.5
        height = 30 * each.count / most
        tip = f"{each.count:,} images"
        canvas.rectangle(
            (left, bottom + 46 - height), (right - left, max(height, 0.6)), "plain", tip=tip
        )
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        canvas.text((frame.x(tick), bottom + 64), plain(tick), anchor="middle", kind="tick")
    canvas.text(((52 + width - 16) / 2, bottom + 84), "confidence", anchor="middle", kind="name")
    canvas.text((width - 16, top - 9), f"ECE {fmean(errors):.2%}", anchor="end", kind="name")
    return Figure(slug("calibration", runs[0].data, own.name), title, caption, canvas.svg())
