from pathlib import Path

import pytest
from PIL import Image
from support.trials import BOHB, RANDOM, SPACE

from invint.figures.style import save_figure
from invint.figures.trials import tuning_figure
from invint.study.tune import Trial


def test_the_curve_starts_where_the_first_full_trial_ended() -> None:
    figure = tuning_figure({"bohb": BOHB, "random": RANDOM}, SPACE)
    search, *panels = figure.axes
    curves = search.lines
    assert [list(line.get_xdata()) for line in curves] == [[2.0, 2.0], [1.0, 2.0, 2.0]]  # type: ignore[arg-type]
    assert list(curves[1].get_ydata()) == pytest.approx([15, 12.5, 12.5])  # type: ignore[arg-type]
    assert [panel.get_xlabel() for panel in panels[:2]] == ["train.lr", "train.batch_size"]


@pytest.mark.parametrize("ended", [{"bohb": BOHB, "random": RANDOM}, {"bohb": BOHB[1:2]}])
def test_figures_are_written(tmp_path: Path, ended: dict[str, list[Trial]]) -> None:
    for name in ("tuning.png", "tuning.svg"):
        save_figure(tuning_figure(ended, SPACE), tmp_path / name)
    with Image.open(tmp_path / "tuning.png") as picture:
        assert picture.size[0] == pytest.approx(1645, abs=1)
    assert "<svg" in (tmp_path / "tuning.svg").read_text()


def test_the_recipes_own_error_is_a_line_in_the_figure() -> None:
    search = tuning_figure({"bohb": BOHB}, SPACE, 0.12).axes[0]
    assert list(search.lines[-1].get_ydata()) == pytest.approx([12, 12])  # type: ignore[arg-type]
