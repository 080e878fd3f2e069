import math
import xml.etree.ElementTree as ET

import pytest

from invint.report.drawing import Axis, Canvas, axis_over, legend, legend_height, plain, polar


def test_axes_take_their_ends_to_their_ends() -> None:
    axis = Axis(2, 4, 100, 300)
    assert (axis(2), axis(3), axis(4)) == (100, 200, 300)
    down = Axis(1, 100, 200, 0, logarithmic=True)
    assert (down(1), down(10), down(100)) == pytest.approx((200, 100, 0))


def test_a_logarithm_of_nothing_stays_near_the_axis() -> None:
    axis = Axis(1, 100, 0, 200, logarithmic=True)
    assert axis(0) == axis(0.1) == pytest.approx(-100)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 18), (0.31, 0.34), (100, 73257)])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_ticks_are_round_and_inside(low: float, high: float, logarithmic: bool) -> None:
    if logarithmic and low <= 0:
        low = 0.5
    ticks = Axis(low, high, 0, 1, logarithmic).ticks()
    assert 2 <= len(ticks) <= 8
    assert ticks == sorted(set(ticks))
    for tick in ticks:
        assert low <= tick <= high
        digits = f"{abs(tick):e}".partition("e")[0].rstrip("0").replace(".", "")
        assert len(digits) <= 3


def test_one_value_has_room_around_it() -> None:
    for logarithmic in (False, True):
        axis = axis_over([5.0, 5.0], 0, 100, logarithmic=logarithmic)
        assert axis.low < 5 < axis.high
        assert axis(5.0) == pytest.approx(50)


def test_angles_run_against_the_clock() -> None:
    assert polar((10, 10), 5, 0) == pytest.approx((15, 10))
    assert polar((10, 10), 5, 90) == pytest.approx((10, 5))


def test_numbers_are_written_as_one_would() -> None:
    assert [plain(x) for x in (0.2, 5.0, 12000, 0.05)] == ["0.2", "5", "12,000", "0.05"]


def test_drawings_are_well_formed_and_named() -> None:
    canvas = Canvas(100, 50, "A & B", "x < y")
    canvas.open("series s1")
    canvas.circle((1, 2), 3, "dot", "1 < 2 & 3")
    canvas.close()
    canvas.text((5, 5), "<b>", turned=True)
    canvas.powers((5, 9), [("x(1)", "0.5"), ("x(2)", "1")])
    canvas.rectangle((0, 0), (5, 5), "cell", opacity=0.5, radius=2)
    root = ET.fromstring(canvas.svg())
    assert root.attrib["viewBox"] == "0 0 100 50"
    assert [each.text for each in root.iter("title")] == ["A & B", "1 < 2 & 3"]
    assert [each.text for each in root.iter("desc")] == ["x < y"]


def test_legends_break_before_the_right_edge() -> None:
    entries = [(f"s{k}", "a name of some length") for k in range(5)]
    canvas = Canvas(400, 200, "", "")
    legend(canvas, entries, left=10, top=10, right=390)
    root = ET.fromstring(canvas.svg())
    texts = [(float(t.attrib["x"]), float(t.attrib["y"]), t.text or "") for t in root.iter("text")]
    assert len(texts) == 5
    assert all(x + 6.7 * len(name) <= 390 for x, _, name in texts)
    height = max(y for _, y, _ in texts) - min(y for _, y, _ in texts)
    assert legend_height(entries, 10, 390) == pytest.approx(height + 20)
    assert math.isclose(legend_height(entries[:1], 10, 390), 20)
