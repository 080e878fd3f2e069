"""The look of all figures, and how they get into files and pages.

Figures are made without pyplot, so that none stays open. matplotlib is slow to import and is
imported only where something is drawn.
"""

import io
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from xml.etree import ElementTree as ET

import numpy as np

from invint.errors import ConfigError
from invint.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pixels = np.ndarray[Any, np.dtype[Any]]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
SUFFIXES = (".png", ".svg", ".pdf")
INK, PAPER = "#1b1d21", "#fdfdfe"  # of no other use, so that a page can put its own in their place
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"  # Okabe and Ito
ORANGE, SKY = "#e69f00", "#56b4e9"
GREY = "#808080"  # faint, it is seen on light and on dark
COLOURS = (INK, BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = "osD^vPX*"  # their count and that of the colours share no factor: 56 different pairs
SOFT, FAINT = INK + "b0", INK + "28"  # with opacity
WIDTH = 360  # points; a phone shows 10 of them as 9 pixels, a desk as 14
STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "figure.constrained_layout.w_pad": 0.07,
    "figure.constrained_layout.h_pad": 0.07,
    "axes.facecolor": "none",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 10.0,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called "$5"
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": INK + "80",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": INK + "1c",
    "grid.linewidth": 0.8,
    "xtick.color": INK + "80",
    "ytick.color": INK + "80",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.columnspacing": 1.4,
    "image.interpolation": "none",
    "image.composite_image": False,
    "savefig.dpi": 150,
    "svg.fonttype": "none",  # text stays text: small, searchable, in the fonts of the reader
    "svg.hashsalt": "invint",
}
SETTINGS = threading.RLock()
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # in XML; in names of folders


def styled(draw: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Draw in the style of the package.

    matplotlib's settings belong to the whole process. They are changed as long as the function
    runs, and a lock keeps two threads from restoring each other's.
    """

    @wraps(draw)
    def drawn(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        from matplotlib import rc_context

        with SETTINGS, rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    """Return an empty figure; sizes in points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def check_suffix(path: Path) -> None:
    """Raise `ConfigError` unless a figure can be written to a file of this name."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"expected a .png, .svg or .pdf file for the figure, got {str(path)!r}")


@styled
def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as .png, .svg or .pdf, whole or not at all; equal figures as equal files."""
    check_suffix(path)
    if path.suffix == ".svg":
        root = _svg(figure)
        root.set("xmlns", "http://www.w3.org/2000/svg")
        root.set("font-family", "DejaVu Sans, Verdana, sans-serif")
        write_atomically(path, ET.tostring(root, encoding="unicode") + "\n")
        return
    picture = io.BytesIO()
    dates = {"CreationDate": None} if path.suffix == ".pdf" else {}
    figure.savefig(picture, format=path.suffix[1:], metadata=dates)
    write_atomically(path, picture.getvalue())


@dataclass(frozen=True)
class Drawing:
    """A figure of a report.

    Attributes:
        name: For the file it is saved as; no other drawing of a page has it.
        title: Heading.
        caption: What is drawn, and how to read it.
        figure: The drawing itself, in the style of the package.
    """

    name: str
    title: str
    caption: str
    figure: "Figure"

    @property
    @styled
    def svg(self) -> str:
        """An element of an HTML page, which decides on the colours and fonts of the figure.

        Figures are drawn in the colours `INK` and `PAPER`. Here the one becomes `currentColor`, the
        colour of the text around the figure, and the other the page's variable `--card`: the figure
        follows a page from light to dark. Fonts are left to the page, and the background is clear.
        """
        root = _svg(self.figure, salt=self.name, facecolor="none")
        root.set("role", "img")
        for place, (tag, words) in enumerate((("title", self.title), ("desc", self.caption))):
            element = ET.Element(tag)
            element.text = words  # for those who cannot see it
            root.insert(place, element)
        text = ET.tostring(root, encoding="unicode")
        return text.replace(INK, "currentColor").replace(PAPER, f"var(--card, {PAPER})")


def _svg(figure: "Figure", salt: str = "invint", **options: Any) -> ET.Element:
    """Return a figure as SVG that can stand in a page: nothing in it holds outside of it."""
    from matplotlib import rc_context

    stream = io.StringIO()
    about = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        # The reader's fonts write the text, and may have letters that the one here has not.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(stream, format="svg", metadata=about, **options)
    text = UNWRITABLE.sub("�", stream.getvalue()).replace("xlink:href", "href")
    text = re.sub(r' xmlns(:\w+)?="[^"]*"|<style.*?</style>|(?<=>)\s+(?=<)', "", text, flags=re.S)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    root = ET.fromstring(text)
    for element in root.iter():
        element.attrib = dict(_attributes(element.attrib, used))
    for name in ("width", "height", "version"):
        del root.attrib[name]
    # What the style sheet said, which would hold for the whole page.
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}
    return root


def _attributes(found: Mapping[str, str], used: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what is kept: an identifier that is used, or one of `tie`, as an attribute."""
    for key, value in found.items():
        kind, _, name = value.partition(":")
        if key == "id" and kind in ("series", "key"):
            yield f"data-{kind}", name
        elif key != "id" or value in used:
            value = re.sub(r"font-family: [^;]+;? ?", "", value)
            short = re.sub(r"\d+\.\d{3,}(?![\de])", lambda x: f"{round(float(x[0]), 3):g}", value)
            yield key, " ".join(short.split())


@dataclass(frozen=True)
class Series:
    """A recipe in figures: always of the same name, colour and marker.

    Attributes:
        recipe: Its name.
        name: What figures call it.
        index: Its place among the recipes.
        averaged: Whether its answers are averaged over rotated copies of an image.
    """

    recipe: str
    name: str
    index: int
    averaged: bool = False

    @property
    def colour(self) -> str:
        """The colour."""
        return COLOURS[self.index % len(COLOURS)]

    @property
    def page_colour(self) -> str:
        """The colour, as a page that decides on its own ink writes it."""
        return self.colour.replace(INK, "currentColor")

    @property
    def marker(self) -> str:
        """The marker, by which it is known where colours are not."""
        return MARKERS[self.index % len(MARKERS)]

    @property
    def key(self) -> str:
        """What ties its curve to its name in a legend."""
        return f"s{self.index}{'a' if self.averaged else ''}"

    def row(self, *, averaged: bool) -> "Series":
        """Return it as a row of a table has it: of averaged answers or of single ones."""
        return replace(self, name=f"{self.name}, averaged", averaged=True) if averaged else self

    def look(self, *, paper: bool = False) -> dict[str, Any]:
        """Return how `plot` draws it: averaged ones dotted, the paper's dashed, both hollow."""
        line: dict[str, Any] = {"color": self.colour, "marker": self.marker}
        if paper:
            line |= {"linestyle": (0, (4, 3)), "linewidth": 1.1}
        elif self.averaged:
            line |= {"linestyle": (0, (1, 1.5))}
        return line | {"markerfacecolor": PAPER} if self.averaged or paper else line


def series_of(recipes: Sequence[str], names: Mapping[str, str] | None = None) -> dict[str, Series]:
    """Return the look of each recipe; names leave the set out where all share it.

    Args:
        recipes: Their names.
        names: What to call some of them instead.
    """
    sets = {recipe.partition("/")[0] for recipe in recipes}
    short = [recipe.partition("/")[2] if len(sets) == 1 else recipe for recipe in recipes]
    return {
        recipe: Series(recipe, (names or {}).get(recipe) or name or recipe, index)
        for index, (recipe, name) in enumerate(zip(recipes, short, strict=True))
    }


def slug(*words: object) -> str:
    """Return words as a file name."""
    text = "-".join(str(word) for word in words).lower()
    return "".join(letter if letter.isalnum() else "-" for letter in text)


def tie(artists: Iterable[Any], *keys: str) -> None:
    """Tie artists to names in the legend: a click on one of these hides them in a page."""
    for artist in artists:
        artist.set_gid(f"series:{' '.join(keys)}")


def draw_legend(figure: "Figure", entries: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
    """Write names above everything, which makes the figure higher.

    Args:
        figure: As high as it is without them.
        entries: Names and looks by the keys that `tie` was given.
    """
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=name, **look) for name, look in entries.values()]
    longest = max(len(name) for name, _ in entries.values())
    columns = max(1, min(len(handles), WIDTH // (6 * longest + 42)))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + (8 + 16.5 * rows) / 72)
    legend = figure.legend(handles=handles, loc="outside upper left", ncols=columns)
    for key, handle, text in zip(entries, legend.legend_handles, legend.get_texts(), strict=True):
        for artist in (handle, text):
            if artist is not None:
                artist.set_gid(f"key:{key}")


def log_ticks(low: float, high: float) -> list[float]:
    """Return about four to eight round numbers within a logarithmic axis."""
    from matplotlib.ticker import MaxNLocator

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        ticks = (round(factor * 10.0**decade, 12) for decade in decades for factor in factors)
        found = [tick for tick in ticks if low <= tick <= high]
        if len(found) >= 4:
            return found
    return [float(tick) for tick in MaxNLocator(5).tick_values(low, high) if low <= tick <= high]


def shortened(text: str, letters: int) -> str:
    """Return at most so many letters of a text, and say so where it goes on."""
    return text if len(text) <= letters else text[: letters - 1] + "…"


def blend(colour: str, opacity: Any) -> Pixels:
    """Return a colour `(…, 4)` for each opacity, for images that let the page shine through."""
    from matplotlib.colors import to_rgb

    weights = np.asarray(opacity, dtype=float)[..., None]
    return np.concatenate([np.broadcast_to(to_rgb(colour), (*weights.shape[:-1], 3)), weights], -1)
