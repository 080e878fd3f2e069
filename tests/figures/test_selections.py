import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from support.written_runs import write_run

from invint.figures.selections import draw_monomials, monomial_drawing, score_drawing
from invint.figures.style import FAINT, Series
from invint.nn import Monomials
from invint.study.records import read_run

OWN = Series("digits/monomials", "monomials", 2)


def marks(axes: Axes) -> list[tuple[float, float, float, bool]]:
    """Return place, area and whether it is filled, of each factor."""
    found = []
    for each in axes.collections:
        ((x, y),) = np.asarray(each.get_offsets())
        filled = bool(len(each.get_facecolor()))
        found.append((float(x), float(y), float(each.get_sizes()[0]), filled))  # type: ignore[attr-defined]
    return found


def test_factors_sit_at_their_distances_and_angles() -> None:
    ray = Monomials(((0, 1, 3),), ((0, 0, 0),), ((0.5, 1.0, -0.25),))
    axes = Figure().subplots()
    draw_monomials(axes, ray)
    places = marks(axes)
    assert [(x, y) for x, y, _, _ in places] == [(0, 0), (1, 0), (3, 0)]
    assert [filled for *_, filled in places] == [True, True, False]
    areas = [area for _, _, area, _ in places]
    assert (areas[1] - 1) == pytest.approx(2 * (areas[0] - 1)) == pytest.approx(4 * (areas[2] - 1))
    free = Monomials(((0, 2),), ((0, math.pi / 2),), ((0.5, 1.0),))
    axes = Figure().subplots()
    draw_monomials(axes, free)
    (x0, y0, *_), (x1, y1, *_) = marks(axes)
    assert x0 == pytest.approx(x1)
    assert y1 < y0  # y points down: above
    assert axes.yaxis_inverted()


def test_factors_at_one_place_lie_beside_each_other() -> None:
    axes = Figure().subplots()
    draw_monomials(axes, Monomials(((0, 1, 1),), ((0, 0, 0),), ((1.0, 1.0, 1.0),)))
    first, second, third = (x for x, *_ in marks(axes))
    assert first == 0
    assert third - second == pytest.approx(0.22)
    assert second + third == pytest.approx(2)


def test_rings_are_the_exponents_at_the_start() -> None:
    now = Monomials(((0, 1),), ((0, 0),), ((1.0, 0.5),))
    axes = Figure().subplots()
    draw_monomials(axes, now, start=Monomials(((0, 1),), ((0, 0),), ((0.25, 0.25),)), names=["7"])
    assert [filled for *_, filled in marks(axes)] == [False, True, False, True]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["7"]


def test_a_formula_stands_beside_each_monomial(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    rays = Monomials(((0, 1), (0, 2)), ((0, 0), (0, 0)), ((0.5, 1.0), (0.25, -0.1)))
    svg = monomial_drawing(rays, run, OWN).svg
    texts = [each.text for each in ET.fromstring(svg).iter("text")]
    assert "x(0)⁰·⁵⁰ x(1)¹·⁰⁰" in texts
    assert "x(0)⁰·²⁵ x(2)⁻⁰·¹⁰" in texts


def test_kept_monomials_are_the_coloured_ones(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "monomials"))
    drawing = score_drawing(run, OWN)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    names = [label.get_text() for label in axes.get_xticklabels()]
    colours = [to_hex(bar.get_facecolor(), keep_alpha=True) for bar in axes.patches]
    assert len(colours) == len(names) == 12
    coloured = [name for name, colour in zip(names, colours, strict=True) if colour != FAINT]
    assert set(map(int, coloured)) == set(run.selections[0]["kept"])
    heights = [bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    assert heights == sorted(run.selections[0]["scores"], reverse=True)
    assert score_drawing(read_run(write_run(tmp_path)), OWN) is None
