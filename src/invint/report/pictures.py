"""The figures of a report that need networks, predictions or images."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint.data.batches import scaled
from invint.data.dataset import Split
from invint.errors import ConfigError
from invint.groups import Group
from invint.nn import Monomials
from invint.report.drawing import Canvas
from invint.report.figures import Figure, Series, slug
from invint.study.records import RunRecord, read_predictions

HARDEST = 20
ACROSS = (10, 5)  # pictures side by side, on a desk and on a phone


@dataclass(frozen=True)
class Hard:
    """A test image that runs tend to get wrong.

    Attributes:
        number: Its place among the test images.
        label: Its class.
        found: The label most runs give it, the true one aside; none where all are right.
        wrong: Runs that get it wrong.
        runs: All runs that were asked.
    """

    number: int
    label: int
    found: int | None
    wrong: int
    runs: int


def hardest_images(runs: Sequence[RunRecord], count: int = HARDEST) -> list[Hard]:
    """Return the test images most runs get wrong, and among those the ones with the largest loss.

    Raises:
        ConfigError: No run has predictions.
    """
    pairs = [pair for pair in map(read_predictions, runs) if pair is not None]
    if not pairs:
        raise ConfigError("the predictions are not there: records do not hold them")
    labels = pairs[0][1]
    found = torch.stack([logits.argmax(dim=1) for logits, _ in pairs])
    losses = [cross_entropy(logits, labels, reduction="none") for logits, _ in pairs]
    wrong = (found != labels).sum(dim=0)
    loss = torch.stack(losses).nan_to_num(posinf=1e3).mean(dim=0)
    score = wrong + loss.clamp(max=1e3) / 1e4  # the loss only decides among equals
    chosen: list[int] = score.argsort(descending=True, stable=True)[:count].tolist()
    return [_hard(number, labels, found[:, number], len(pairs)) for number in chosen]


def _hard(number: int, labels: Tensor, found: Tensor, runs: int) -> Hard:
    label = int(labels[number])
    others = found[found != label]
    most = int(others.mode().values) if len(others) else None
    return Hard(number, label, most, len(others), runs)


def hardest_figure(hard: Sequence[Hard], images: Split, names: Sequence[str], data: str) -> Figure:
    """Draw test images with what they are and what they are taken for."""
    title = f"Hardest test images, {data}"
    caption = (
        f"The {len(hard)} test images that most of {hard[0].runs} runs, of all recipes and sizes, "
        "get wrong: true class → most frequent wrong label, and how many runs are wrong."
    )
    drawings = (_sheet(hard, images, names, title, caption, across) for across in ACROSS)
    return Figure(slug("hardest", data), title, caption, *drawings)


def _sheet(
    hard: Sequence[Hard], images: Split, names: Sequence[str], title: str, about: str, across: int
) -> str:
    side, gap = 72.0, 10.0
    height = side + 40
    rows = math.ceil(len(hard) / across)
    canvas = Canvas(across * (side + gap) - gap + 4, rows * height + 2, title, about)
    for place, each in enumerate(hard):
        x, y = 2 + (place % across) * (side + gap), 2 + (place // across) * height
        taken = "" if each.found is None else f" → {names[each.found]}"
        words = f"{names[each.label]}{taken}"
        share = f"{each.wrong} of {each.runs}"
        canvas.image((x, y), (side, side), picture_uri(images.images[each.number]), words)
        canvas.text((x + side / 2, y + side + 14), words[:13], anchor="middle", kind="name")
        canvas.text((x + side / 2, y + side + 28), share, anchor="middle", kind="tick")
    return canvas.svg()


def picture_uri(image: Tensor) -> str:
    """Return a stored image `(c, h, w)` as a PNG data URI."""
    from PIL import Image

    pixels = rearrange((scaled(image) * 255).round().to(torch.uint8), "c h w -> h w c")
    array = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., 0]
    buffer = io.BytesIO()
    Image.fromarray(array.contiguous().numpy()).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def monomial_figure(monomials: Monomials, run: RunRecord, own: Series) -> Figure:
    """Draw each monomial: its factors at their distances, as large as their exponents."""
    title = f"Learned monomials: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        f"The {len(monomials)} monomials of the trained network. Each row is one: factors sit at "
        "their distance in pixels from the first, the area of a mark grows with its exponent "
        "(open: negative). Their average over all positions and turns is what the head computes."
    )
    flat = all(angle == 0 for row in monomials.angles for angle in row)
    reach = max(max(row) for row in monomials.distances) or 1.0
    width, left, right = 460.0, 34.0, 250.0
    step = (right - left - 24) / reach if flat else 30 / reach
    height = 34.0 if flat else 76.0
    canvas = Canvas(width, height * len(monomials) + 40, title, caption)
    tables = zip(monomials.distances, monomials.angles, monomials.exponents, strict=True)
    for number, (distances, angles, exponents) in enumerate(tables):
        y = height * (number + 0.5)
        x = left if flat else left + 36
        canvas.text((6, y + 4), str(number + 1), kind="tick")
        if flat:
            canvas.line((x, y), (x + step * reach, y), "grid")
        canvas.open(f"series {own.kind}")
        for distance, angle, exponent in zip(distances, angles, exponents, strict=True):
            place = (
                x + step * distance * math.cos(angle),
                y - step * distance * math.sin(angle),
            )
            kind = "dot" if exponent >= 0 else "hollow"
            radius = min(14.0, 9 * math.sqrt(abs(exponent)) + 1)
            canvas.circle(place, radius, kind, f"distance {distance:g}, exponent {exponent:.2f}")
        canvas.close()
        canvas.powers((right + 12, y + 4), _powers(distances, exponents))
    bottom = height * len(monomials) + 8
    if flat:
        for tick in range(math.floor(reach) + 1):
            place = (left + step * tick, bottom + 8)
            canvas.text(place, str(tick), anchor="middle", kind="tick")
        middle = left + step * reach / 2
        canvas.text((middle, bottom + 25), "distance in pixels", anchor="middle", kind="name")
    return Figure(slug("monomials", run.data, own.name), title, caption, canvas.svg())


def _powers(distances: Sequence[float], exponents: Sequence[float]) -> list[tuple[str, str]]:
    if len(distances) > 4:
        return [(f"{len(distances)} factors", "")]
    return [(f"x({d:g})", f"{e:.2f}") for d, e in zip(distances, exponents, strict=True)]


def selection_figure(run: RunRecord, own: Series) -> Figure | None:
    """Draw the scores of all monomials at each selection, the survivors in colour."""
    events = [event for event in run.selections if event.get("scores")]
    if not events:
        return None
    title = f"Selection: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        "Scores of all monomials at each selection, largest first; in colour those that were kept."
    )
    width, height = 460.0, 150.0
    canvas = Canvas(width, height * len(events) + 6, title, caption)
    for number, event in enumerate(events):
        top, bottom = height * number + 30, height * (number + 1) - 12
        kept, scores = set(event["kept"]), [float(score) for score in event["scores"]]
        words = f"epoch {event['epoch']:g}: {len(scores)} → {len(kept)}, {event.get('method', '')}"
        canvas.text((12, top - 12), words, kind="name")
        order = sorted(range(len(scores)), key=lambda place: -scores[place])
        largest = max((abs(score) for score in scores), default=1.0) or 1.0
        step = (width - 28) / len(scores)
        for place, old in enumerate(order):
            size = max(1.0, (bottom - top) * abs(scores[old]) / largest)
            kind = f"area {own.kind} solid" if old in kept else "plain"
            tip = f"monomial {old}: {scores[old]:.4g}, {'kept' if old in kept else 'dropped'}"
            corner = (14 + step * place + 0.1 * step, bottom - size)
            canvas.rectangle(corner, (0.8 * step, size), kind, tip=tip, radius=1.5)
        canvas.line((12, bottom), (width - 12, bottom), "rule")
    return Figure(slug("selection", run.data, own.name), title, caption, canvas.svg())


def filter_figure(group: Group, filters: Tensor, run: RunRecord, own: Series) -> Figure:
    """Draw one filter at all elements of its group."""
    title = f"A filter turning: {own.name}, {run.size:,} images, seed {run.seed}"
    caption = (
        f"The strongest filter of the first layer at all {group.order} elements of {group}. "
        "Blue is positive, red negative. It is sampled anew at every angle, never interpolated."
    )
    across = min(group.order, 4 if group.order <= 8 else 8)
    gap = 9.0
    side = (460.0 - 4 - gap * (across - 1)) / across
    rows = math.ceil(group.order / across)
    canvas = Canvas(460, rows * (side + 28) + 4, title, caption)
    largest = filters.abs().max().clamp(min=1e-12)
    for number, (element, values) in enumerate(zip(group.elements, filters, strict=True)):
        x, y = 2 + (number % across) * (side + gap), 2 + (number // across) * (side + 28)
        canvas.rectangle((x, y), (side, side), "cell", radius=2)
        _draw_filter(canvas, (values / largest).tolist(), x, y, side)
        angle = f"{math.degrees(element.angle):g}°" + (" ⇅" if element.flip else "")
        canvas.text((x + side / 2, y + side + 15), angle, anchor="middle", kind="tick")
    return Figure(slug("filter", run.data, own.name), title, caption, canvas.svg())


def _draw_filter(canvas: Canvas, rows: list[list[float]], x: float, y: float, side: float) -> None:
    pixel = side / len(rows)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            if abs(value) > 0.004:
                corner = (x + pixel * j, y + pixel * i)
                kind = "positive" if value > 0 else "negative"
                canvas.rectangle(corner, (pixel + 0.15, pixel + 0.15), kind, opacity=abs(value))
