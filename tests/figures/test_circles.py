import math
from pathlib import Path

import numpy as np
import pytest

from invint.audit import Audit, Turn
from invint.figures.circles import angle_drawing, audit_figure, draw_audit
from invint.figures.style import series_of


def an_audit(*, mirrored: bool, accuracy: float | None, worst: float = 0.5) -> Audit:
    turns = [
        Turn(
            angle=float(angle),
            mirrored=flip,
            exact=angle % 90 == 0,
            mean_drift=0.1,
            max_drift=worst if angle == 45 else 0.2,
            changed=0.0,
            accuracy=accuracy,
        )
        for flip in ((False, True) if mirrored else (False,))
        for angle in range(0, 360, 45)
    ]
    return Audit("a $net", 4, (8, 9), "disc", "float64", tuple(turns))


def test_curves_of_an_audit_are_closed_and_exact_turns_have_dots() -> None:
    figure = audit_figure(an_audit(mirrored=True, accuracy=0.5))
    drift, accuracy = figure.axes
    labels = [line.get_label() for line in drift.lines if str(line.get_label())[0] != "_"]
    assert labels == ["largest", "largest, mirrored", "mean", "mean, mirrored"]
    curve, dots = drift.lines[:2]
    angles = np.degrees(np.asarray(curve.get_xdata(), float))
    assert list(angles) == pytest.approx([*range(0, 360, 45), 0])
    assert np.asarray(curve.get_ydata())[1] == 0.5
    assert list(np.degrees(np.asarray(dots.get_xdata(), float))) == pytest.approx([0, 90, 180, 270])
    assert set(np.asarray(accuracy.lines[0].get_ydata())) == {0.5}


def test_an_audit_without_labels_has_one_circle(tmp_path: Path) -> None:
    audit = an_audit(mirrored=False, accuracy=None, worst=math.inf)
    (drift,) = audit_figure(audit).axes
    assert np.isnan(np.asarray(drift.lines[0].get_ydata())[1])
    draw_audit(audit, tmp_path / "a.svg")
    assert "a $net, float64, border disc" in (tmp_path / "a.svg").read_text()


def test_accuracy_is_drawn_at_its_angle() -> None:
    turns = {"digits/cnn": [(float(angle), 0.9 - angle / 1000) for angle in range(0, 360, 15)]}
    drawing = angle_drawing(turns, series_of(["digits/cnn"]), data="digits", caption="Here.")
    assert drawing.caption == "Here. The centre of the circle is at 40 %."
    (axes,) = drawing.figure.axes
    line, exact = axes.lines
    assert np.degrees(np.asarray(line.get_xdata(), float))[6] == pytest.approx(90)
    assert np.asarray(line.get_ydata())[6] == pytest.approx(81)
    assert list(np.asarray(exact.get_ydata())) == pytest.approx([90, 81, 72, 63])
    assert axes.get_ylim() == (40, 100)


def test_confidence_is_named_as_such() -> None:
    turns = {"digits/cnn": [(float(angle), 0.5) for angle in range(0, 360, 15)]}
    series = series_of(["digits/cnn"])
    drawing = angle_drawing(turns, series, data="digits", caption="Here.", what="confidence")
    assert (drawing.name, drawing.title) == (
        "confidence-digits",
        "Confidence against angle, digits",
    )
