"""Drawings as SVG text: shapes on a canvas, and axes that take numbers to places.

Colours are classes, so that the page decides them and a figure follows light and dark.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
CHARACTER = 6.7  # mean width of a character of 12 pixels


class Canvas:
    """Collects shapes; y points down, units are pixels.

    Args:
        width: Of the drawing.
        height: Of the drawing.
        title: Name for those who cannot see it.
        about: Description for those who cannot see it.
    """

    def __init__(self, width: float, height: float, title: str, about: str) -> None:
        self.width, self.height = width, height
        self.title, self.about = title, about
        self.parts: list[str] = []

    def line(self, start: Point, end: Point, kind: str = "rule") -> None:
        """Draw a straight line."""
        (x1, y1), (x2, y2) = start, end
        self.parts.append(
            f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        )

    def path(self, points: Sequence[Point], kind: str, *, closed: bool = False) -> None:
        """Draw lines from point to point."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        shape = "polygon" if closed else "polyline"
        self.parts.append(f'<{shape} class="{kind}" points="{places}"/>')

    def circle(self, centre: Point, radius: float, kind: str, tip: str = "") -> None:
        """Draw a circle; `tip` is shown where the pointer rests."""
        x, y = centre
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
        self.parts.append(f'<circle class="{kind}" {place}>{_tip(tip)}</circle>')

    def rectangle(
        self,
        corner: Point,
        size: Point,
        kind: str,
        *,
        opacity: float | None = None,
        tip: str = "",
        radius: float = 0,
    ) -> None:
        """Draw a rectangle from its upper left corner."""
        (x, y), (width, height) = corner, size
        extra = "" if opacity is None else f' fill-opacity="{opacity:.3f}"'
        extra += f' rx="{radius:g}"' if radius else ""
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"{extra}>{_tip(tip)}</rect>'
        )

    def text(
        self,
        place: Point,
        text: str,
        *,
        anchor: str = "start",
        kind: str = "label",
        turned: bool = False,
    ) -> None:
        """Write; `anchor` is the part of the text at `place`: start, middle or end."""
        x, y = place
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>'
            f"{escape(text)}</text>"
        )

    def powers(self, place: Point, factors: Sequence[tuple[str, str]]) -> None:
        """Write a product of powers, exponents raised."""
        x, y = place
        texts = (
            f'{escape(name)}<tspan dy="-4" class="raised">{escape(exponent)}</tspan>'
            '<tspan dy="4"> </tspan>'
            for name, exponent in factors
        )
        self.parts.append(f'<text class="label" x="{x:.1f}" y="{y:.1f}">{" ".join(texts)}</text>')

    def image(self, corner: Point, size: Point, source: str, tip: str = "") -> None:
        """Place a picture given as a data URI."""
        (x, y), (width, height) = corner, size
        self.parts.append(
            f'<image class="pixels" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" href="{source}">{_tip(tip)}</image>'
        )

    def open(self, kind: str) -> None:
        """Start a group of shapes."""
        self.parts.append(f'<g class="{kind}">')

    def close(self) -> None:
        """End the group."""
        self.parts.append("</g>")

    def svg(self) -> str:
        """Return the drawing."""
        head = (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" width="{self.width:g}" '
            f'height="{self.height:g}" role="img">'
            f"<title>{escape(self.title)}</title><desc>{escape(self.about)}</desc>"
        )
        return "".join([head, *self.parts, "</svg>"])


@dataclass(frozen=True)
class Axis:
    """Takes numbers to places along one direction.

    Attributes:
        low: Number at the start.
        high: Number at the end.
        start: Place of `low`.
        end: Place of `high`.
        logarithmic: Whether equal ratios are equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, number: float) -> float:
        """Return the place of a number."""
        if self.logarithmic:
            number = max(number, self.low / 10)
            share = math.log(number / self.low) / math.log(self.high / self.low)
        else:
            share = (number - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round numbers within the axis, three to eight or so."""
        return _log_ticks(self.low, self.high) if self.logarithmic else _ticks(self.low, self.high)


def axis_over(
    values: Sequence[float], start: float, end: float, *, logarithmic: bool = False
) -> Axis:
    """Return an axis with some room around the values."""
    low, high = min(values), max(values)
    if logarithmic:
        room = max(1.12, (high / low) ** 0.06) if high > low else 1.6
        return Axis(low / room, high * room, start, end, logarithmic=True)
    room = 0.06 * (high - low) or 0.5
    return Axis(low - room, high + room, start, end)


@dataclass(frozen=True)
class Frame:
    """The inside of a chart.

    Attributes:
        x: Horizontal axis.
        y: Vertical axis.
    """

    x: Axis
    y: Axis

    def draw(
        self,
        canvas: Canvas,
        *,
        x_name: str,
        y_name: str,
        x_ticks: Sequence[float] | None = None,
        unit: str = "",
    ) -> None:
        """Draw grid, numbers and names of the axes."""
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        for tick in self.y.ticks():
            canvas.line((left, self.y(tick)), (right, self.y(tick)), "grid")
            canvas.text((left - 7, self.y(tick) + 4), plain(tick) + unit, anchor="end", kind="tick")
        for tick in self.x.ticks() if x_ticks is None else x_ticks:
            canvas.line((self.x(tick), bottom), (self.x(tick), bottom + 4), "rule")
            canvas.text((self.x(tick), bottom + 18), plain(tick), anchor="middle", kind="tick")
        canvas.line((left, bottom), (right, bottom), "rule")
        canvas.text(((left + right) / 2, bottom + 37), x_name, anchor="middle", kind="name")
        canvas.text((left - 1, top - 9), y_name, anchor="start", kind="name")


def legend(
    canvas: Canvas, entries: Sequence[tuple[str, str]], *, left: float, top: float, right: float
) -> None:
    """Write names beside marks in rows; `entries` are pairs of class and name."""
    for (kind, name), (x, y) in zip(entries, _legend_places(entries, left, right), strict=True):
        canvas.open(f"key {kind}")
        canvas.line((x, top + y), (x + 18, top + y), "stroke")
        canvas.circle((x + 9, top + y), 3.6, "dot")
        canvas.text((x + 24, top + y + 4), name, kind="label")
        canvas.close()


def legend_height(entries: Sequence[tuple[str, str]], left: float, right: float) -> float:
    """Return the height `legend` will need."""
    places = _legend_places(entries, left, right)
    return (places[-1][1] if places else 0) + 20


def _legend_places(
    entries: Sequence[tuple[str, str]], left: float, right: float
) -> list[tuple[float, float]]:
    places = []
    x, y = left, 0.0
    for _, name in entries:
        width = 24 + CHARACTER * len(name) + 16
        if x > left and x + width - 16 > right:
            x, y = left, y + 20
        places.append((x, y))
        x += width
    return places


def plain(number: float) -> str:
    """Return a number as one would write it on an axis."""
    if abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.6g}"


def _ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
    found: list[float] = []
    for factors in choices:
        ticks = (round(factor * 10.0**decade, 12) for decade in decades for factor in factors)
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= 4:
            break
    return found if len(found) >= 2 else _ticks(low, high)


def _tip(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def polar(centre: Point, radius: float, degrees: float) -> Point:
    """Return the point at an angle, counter-clockwise from the right."""
    angle = math.radians(degrees)
    return centre[0] + radius * math.cos(angle), centre[1] - radius * math.sin(angle)
