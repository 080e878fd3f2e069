"""Pictures in rows, each with its label: of a data set, hard images, a filter turning, saliency.

Axes:  n image   c channel   h w pixel
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from invint.errors import ShapeError
from invint.figures.style import (
    BLUE,
    GREY,
    VERMILLION,
    WIDTH,
    Drawing,
    Pixels,
    Series,
    blend,
    new_figure,
    shortened,
    slug,
    styled,
)
from invint.groups import Group
from invint.study.records import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL, GAP, LINE = 72.0, 6.0, 13.0  # points: of a picture, between two, of a line of text


@styled
def contact_sheet(
    images: Tensor, labels: Sequence[str], *, title: str = "", columns: int = 8
) -> "Figure":
    """Draw images in rows, with a label under each.

    Args:
        images: `(n, c, h, w)` of uint8, of uint16, or of floats in [0, 1]; one channel is grey,
            three are red, green and blue, of any others the first is shown.
        labels: One for each image; of several lines, if need be.
        title: Stands above.
        columns: Images per row.
    """
    if images.ndim != 4 or len(images) != len(labels):
        raise ShapeError(
            f"contact_sheet: expected (n, c, h, w) and n labels, "
            f"got {tuple(images.shape)} and {len(labels)}"
        )
    return _sheet(list(displayable(images)), labels, title=title, columns=columns)


def displayable(images: Tensor) -> Pixels:
    """Return stored or normalised images as `(n, h, w, 3)` of uint8."""
    if images.dtype == torch.uint16:
        images = images.to(torch.float32) / 65535
    if images.is_floating_point():
        images = (images.clamp(0, 1) * 255).round().byte()
    if images.shape[1] != 3:
        images = images[:, :1].expand(-1, 3, -1, -1)
    pixels: Pixels = rearrange(images, "n c h w -> n h w c").contiguous().numpy()
    return pixels


def _sheet(
    images: Sequence[Pixels | None],
    labels: Sequence[str],
    *,
    title: str = "",
    columns: int,
    cell: float = CELL,
    headings: Sequence[str] = (),
) -> "Figure":
    """Draw images in rows; `None` leaves a place free. Headings stand above the rows."""
    columns = max(1, min(columns, len(images)))
    rows = -(-len(images) // columns)
    head = 1.6 * LINE * bool(headings)
    below = GAP + LINE * max((label.count("\n") + 1 for label in labels), default=0)
    above = GAP + 1.7 * LINE * bool(title) + head
    width, height = columns * (cell + GAP) + GAP, above + rows * (cell + below + head) - head
    figure = new_figure(height, width)
    figure.set_layout_engine("none")  # which takes long for hundreds of pictures of one size
    figure.text(GAP / width, 1 - GAP / height, _fitted(title, width, 10), va="top")
    room = {"left": GAP / width, "right": 1 - GAP / width, "wspace": GAP / cell}
    room |= {"bottom": below / height, "top": 1 - above / height, "hspace": (below + head) / cell}
    panels = list(figure.subplots(rows, columns, squeeze=False, gridspec_kw=room).flat)
    for panel in panels:
        panel.set(xticks=[], yticks=[], facecolor="none")
        panel.grid(visible=False)
        panel.spines[:].set_visible(False)
    for panel, heading in zip(panels[::columns], headings, strict=False):
        panel.set_title(_fitted(heading, width, 10), fontsize=10, pad=4)
    for panel, pixels, label in zip(panels, images, labels, strict=False):
        if pixels is not None:
            _show(panel, pixels, label, cell)
    return figure


def _show(panel: "Axes", pixels: Pixels, label: str, cell: float) -> None:
    """Draw one image in a square place, its label below."""
    height, width = pixels.shape[:2]
    side = max(height, width)
    panel.imshow(
        pixels,
        extent=(-width / 2, width / 2, -height / 2, height / 2),
        interpolation="none" if side <= 2 * cell else "auto",  # else averaged down
    )
    square = (-side / 2, side / 2)  # grey, where the picture leaves some of it free
    panel.set(xlim=square, ylim=square, facecolor="none" if height == width else GREY + "40")
    text = "\n".join(_fitted(line, cell) for line in label.split("\n"))
    panel.set_xlabel(text, fontsize=9, labelpad=2)


def _fitted(text: str, width: float, size: float = 9) -> str:
    """Shorten a text to about a width in points; letters are 0.6 of their size wide."""
    return shortened(" ".join(text.split()), max(1, int(width / (0.6 * size))))


@dataclass(frozen=True)
class Hard:
    """A test image that runs tend to get wrong.

    Attributes:
        index: Its place among the test images.
        label: Its class.
        found: The label most runs give it, the true one aside; `None` where all are right.
        wrong: Runs that get it wrong.
        runs: All runs that were asked.
    """

    index: int
    label: int
    found: int | None
    wrong: int
    runs: int


@styled
def hardest_drawing(
    hard: Sequence[Hard], images: Tensor, names: Sequence[str], data: str
) -> Drawing:
    """Draw test images with what they are and what they are taken for.

    Args:
        hard: Which ones.
        images: All test images, `(n, c, h, w)`.
        names: Of the classes.
        data: Name of the set.
    """
    taken = ["" if each.found is None else f"→ {names[each.found]}" for each in hard]
    own = [names[each.label] for each in hard]
    pairs = [" ".join(both).strip() for both in zip(own, taken, strict=True)]
    if any(_fitted(pair, CELL) != pair for pair in pairs):
        pairs = ["\n".join(both) for both in zip(own, taken, strict=True)]
    labels = [
        f"{pair}\n{each.wrong} of {each.runs}" for pair, each in zip(pairs, hard, strict=True)
    ]
    shown = displayable(images[[each.index for each in hard]])
    figure = _sheet(list(shown), labels, columns=5)
    title = f"Hardest test images, {data}"
    caption = (
        f"The {len(hard)} test images that most of {hard[0].runs} runs, of all recipes and sizes, "
        "get wrong: true class → most frequent wrong label, and how many runs are wrong."
    )
    return Drawing(slug("hardest", data), title, caption, figure)


@dataclass(frozen=True)
class Missed:
    """A class and the test images of it that runs get wrong most often.

    Attributes:
        label: The class.
        error: Fraction of its test images with a wrong answer, mean over runs.
        images: Number of its test images.
        hard: The images, the most often wrong first.
    """

    label: int
    error: float
    images: int
    hard: tuple[Hard, ...]


@styled
def missed_drawing(
    missed: Sequence[Missed], images: Tensor, names: Sequence[str], data: str
) -> Drawing:
    """Draw, class by class, the test images most often wrong.

    Args:
        missed: The classes, one row each.
        images: All test images, `(n, c, h, w)`.
        names: Of the classes.
        data: Name of the set.
    """
    columns = max(len(each.hard) for each in missed)
    rows: list[tuple[Pixels | None, str]] = []
    for each in missed:
        shown = displayable(images[[hard.index for hard in each.hard]])
        rows += zip(shown, map(partial(_mistaken, names), each.hard), strict=True)
        rows += [(None, "")] * (columns - len(each.hard))
    heads = [f"{names[m.label]}: {m.error:.1%} wrong ({m.images:,} images)" for m in missed]
    figure = _sheet(*zip(*rows, strict=True), columns=columns, headings=heads)
    caption = (
        "For each class the test images that runs, of all recipes and sizes, get wrong most often: "
        "what they are taken for, and by how many runs. The classes with the largest errors; those "
        "without any are left out."
    )
    return Drawing(slug("missed", data), f"Most often wrong, by class, {data}", caption, figure)


def _mistaken(names: Sequence[str], hard: Hard) -> str:
    found = "" if hard.found is None else f"→ {names[hard.found]}"
    return f"{found}\n{hard.wrong} of {hard.runs}"


@dataclass(frozen=True)
class Unsure:
    """Where a network is least sure of itself as images turn.

    Attributes:
        angle: In degrees, counter-clockwise.
        confidence: Mean probability of the answers there.
        images: The least sure images, turned, `(n, c, h, w)`.
        labels: Their classes.
        found: Their answers.
        sure: The probabilities of these.
    """

    angle: float
    confidence: float
    images: Tensor
    labels: tuple[int, ...]
    found: tuple[int, ...]
    sure: tuple[float, ...]


@styled
def unsure_drawing(
    unsure: Sequence[tuple[Series, Unsure]], names: Sequence[str], data: str
) -> Drawing:
    """Draw the images each network is least sure of, at the angle where it is least sure."""
    columns = max(len(each.labels) for _, each in unsure)
    labels = []
    for _, each in unsure:
        answers = zip(each.labels, each.found, each.sure, strict=True)
        labels += [_answer(names, *answer) for answer in answers]
    heads = [f"{own.name}: {each.angle:g}°, {each.confidence:.1%}" for own, each in unsure]
    shown = [pixels for _, each in unsure for pixels in displayable(each.images)]
    figure = _sheet(shown, labels, columns=columns, headings=heads)
    caption = (
        "The angle at which each network is least sure of its answers, and its mean confidence "
        "there; below, turned to it, the test images it is least sure of, with their class, the "
        "answer if it is another, and its probability."
    )
    return Drawing(slug("unsure", data), f"Least sure, {data}", caption, figure)


def _answer(names: Sequence[str], label: int, found: int, sure: float) -> str:
    taken = "" if label == found else f" → {names[found]}"
    return f"{names[label]}{taken}\n{sure:.0%} sure"


@styled
def saliency_drawing(
    images: Tensor, relevance: Tensor, labels: Sequence[str], run: RunRecord, own: Series
) -> Drawing:
    """Draw images, and under each what speaks for and against its answer.

    Args:
        images: `(n, c, h, w)`, between 0 and 1.
        relevance: `(n, h, w)`: positive for the answer, negative against it.
        labels: One for each image.
        run: Whose network it is.
        own: Its look.
    """
    pictures = displayable(images)
    grey = 255 - 0.2 * (255 - pictures.mean(axis=-1, keepdims=True))  # as a pale print
    strength = relevance / relevance.abs().amax(dim=(1, 2), keepdim=True).clamp(min=1e-12)
    values = strength.double().cpu().numpy()
    tints = np.where(values[..., None] > 0, blend(BLUE, 1.0), blend(VERMILLION, 1.0))[..., :3]
    weight = np.abs(values)[..., None] ** 0.7
    overlays = ((1 - weight) * grey + weight * 255 * tints).round().astype(np.uint8)
    shown = [*pictures, *overlays]
    figure = _sheet(shown, [*labels, *([""] * len(labels))], columns=len(labels))
    title = f"What answers rest on: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        "Gradient times input, averaged over the four quarter turns: blue speaks for the answer, "
        "orange against it. As an image turns by quarters, so does this picture of it, exactly."
    )
    return Drawing(slug("saliency", run.data, own.name), title, caption, figure)


@styled
def filter_drawing(group: Group, filters: Tensor, run: RunRecord, own: Series) -> Drawing:
    """Draw one filter `(g, k, k)` at all elements of its group."""
    title = f"A filter turning: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        f"The strongest filter of the first layer at all {group.order} elements of {group}. "
        "Blue is positive, orange negative. It is sampled again at every angle, never interpolated."
    )
    values = (filters / filters.abs().max().clamp(min=1e-12)).double().numpy()
    colours = np.where(
        values[..., None] > 0, blend(BLUE, abs(values)), blend(VERMILLION, abs(values))
    )
    labels = [
        f"{math.degrees(each.angle):g}°" + (" ⇅" if each.flip else "") for each in group.elements
    ]
    columns = min(group.order, 4 if group.order <= 8 else 8)
    cell = (WIDTH - GAP) / columns - GAP
    figure = _sheet(list(colours), labels, columns=columns, cell=cell)
    return Drawing(slug("filter", run.data, own.name), title, caption, figure)
