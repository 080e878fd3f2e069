import re
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from math import gcd
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from invint.errors import ConfigError
from invint.figures.style import (
    COLOURS,
    INK,
    MARKERS,
    PAPER,
    Drawing,
    draw_legend,
    log_ticks,
    new_figure,
    save_figure,
    series_of,
    shortened,
    styled,
    tie,
)


@styled
def a_figure(title: str = "a title") -> Figure:
    figure = new_figure(150)
    axes = figure.subplots()
    draw_legend(figure, {"s0": ("one", {"color": INK}), "s1": ("two", {"color": COLOURS[1]})})
    tie(axes.plot([1, 2, 3], [3, 1, 2], color=INK, marker="o", markerfacecolor=PAPER), "s0")
    axes.fill_between([1, 2, 3], [1, 1, 1], [2, 2, 2], color=COLOURS[1], alpha=0.2)
    axes.imshow([[0, 1]], extent=(1, 2, 1, 2))
    axes.set_title(title)
    return figure


def inlined(figure: Figure, name: str = "a", about: str = "") -> str:
    return Drawing(name, "A & B", about or "x < y", figure).svg


@pytest.mark.parametrize(("low", "high"), [(0.5, 1), (0.3, 18), (0.31, 0.34), (100, 73257)])
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    for tick in ticks:
        assert low <= tick <= high
        digits = f"{abs(tick):.9e}".partition("e")[0].rstrip("0").replace(".", "")
        assert len(digits) <= 3


def test_long_words_are_cut() -> None:
    assert [shortened(text, 5) for text in ("horse", "horses")] == ["horse", "hors…"]


def test_drawings_in_a_page_are_well_formed_and_named() -> None:
    root = ET.fromstring(inlined(a_figure("<b> & $5, $6")))
    assert root.attrib["viewBox"] == "0 0 360 174.5"  # with the legend
    assert "width" not in root.attrib  # as wide as the page has room
    assert root.attrib["role"] == "img"
    assert [each.text for each in root.iter("title")] == ["A & B"]
    assert [each.text for each in root.iter("desc")] == ["x < y"]
    texts = [each.text for each in root.iter("text")]
    assert "<b> & $5, $6" in texts  # not read as mathematics
    assert {"one", "two"} <= set(texts)


def test_the_page_decides_on_ink_paper_and_fonts() -> None:
    text = inlined(a_figure())
    assert INK not in text
    assert PAPER not in text.replace(f"var(--card, {PAPER})", "")
    assert text.count("currentColor") > 5
    assert "font-family" not in text
    assert "<style" not in text  # it would hold for all of the page
    written = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", text))
    assert written <= {"none", "currentColor", f"var(--card, {PAPER})", *COLOURS[1:]}


def test_names_in_the_legend_are_tied_to_curves() -> None:
    root = ET.fromstring(inlined(a_figure()))
    keys = [each.attrib["data-key"] for each in root.iter() if "data-key" in each.attrib]
    assert keys == ["s0", "s0", "s1", "s1"]  # a line and a name for each
    assert [e.attrib["data-series"] for e in root.iter() if "data-series" in e.attrib] == ["s0"]


def test_drawings_share_no_names_and_refer_to_their_own() -> None:
    found = []
    for name in ("a", "b"):
        text = inlined(a_figure(), name)
        ids = re.findall(r'\bid="([^"]+)"', text)
        assert len(ids) == len(set(ids)) > 0
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) == set(ids)
        found.append(set(ids))
    assert not found[0] & found[1]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_equal_figures_are_equal_files(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in ("first", "second")]
    for path in paths:
        save_figure(a_figure(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert inlined(a_figure()) == inlined(a_figure())


def test_a_file_has_colours_and_a_background_of_its_own(tmp_path: Path) -> None:
    save_figure(a_figure(), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "DejaVu Sans" in root.attrib["font-family"]
    assert "currentColor" not in text
    assert "var(" not in text
    assert "fill: #ffffff" in text
    with pytest.raises(ConfigError, match=r"expected a .png, .svg or .pdf file .* 'a.gif'"):
        save_figure(a_figure(), Path("a.gif"))


def test_settings_are_as_before(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    save_figure(a_figure(), tmp_path / "a.svg")
    assert dict(mpl.rcParams) == before


def test_threads_draw_the_same() -> None:
    alone = inlined(a_figure())
    before = dict(mpl.rcParams)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: inlined(a_figure()), range(12))) == {alone}
    assert dict(mpl.rcParams) == before


def test_letters_that_the_fonts_here_lack_are_left_to_the_reader() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "手" in inlined(a_figure("手"))


def test_letters_that_svg_may_not_hold_are_replaced() -> None:
    root = ET.fromstring(inlined(a_figure("a\x07b\x01")))
    assert "a�b�" in [each.text for each in root.iter("text")]


def test_long_names_stand_below_each_other() -> None:
    heights = []
    for name, count in (("a name of some length", 5), ("x", 3)):
        figure = new_figure(100)
        draw_legend(figure, {f"s{k}": (name, {"color": INK}) for k in range(count)})
        heights.append(72 * figure.get_figheight())
    assert heights[0] == pytest.approx(heights[1] + 2 * 16.5)


def test_names_leave_out_what_all_share() -> None:
    assert [each.name for each in series_of(["a/x", "a/y"]).values()] == ["x", "y"]
    assert [each.name for each in series_of(["a/x", "b/x"]).values()] == ["a/x", "b/x"]


def test_recipes_differ_with_and_without_colours() -> None:
    series = list(
        series_of([f"a/{index}" for index in range(len(COLOURS) * len(MARKERS))]).values()
    )
    assert len({(each.colour, each.marker) for each in series}) == len(series)
    assert gcd(len(COLOURS), len(MARKERS)) == 1
    assert len({each.marker for each in series[: len(MARKERS)]}) == len(MARKERS)
    assert (series[0].page_colour, series[1].page_colour) == ("currentColor", COLOURS[1])
    looks = [series[1].look(), series[1].row(averaged=True).look(), series[1].look(paper=True)]
    assert len({str(look.get("linestyle")) for look in looks}) == 3


def test_matplotlib_waits_until_something_is_drawn_and_pyplot_is_left_alone() -> None:
    code = (
        "import sys\n"
        "from invint.figures import charts, circles, selections, sheets, style, trials\n"
        "import invint.report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "style.styled(style.new_figure)(100)\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
