from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from support.written_runs import write_run, write_study

from invint.figures.charts import (
    calibration_drawing,
    class_error_drawing,
    confusion_drawing,
    difference_drawing,
    error_drawing,
    learning_drawings,
    merged_bins,
)
from invint.figures.style import INK, series_of
from invint.study.records import RunRecord, read_run
from invint.study.tables import make_table, ordered_recipes
from invint.train.evaluate import Bin


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    return write_study(tmp_path_factory.mktemp("runs"))


def test_errors_are_those_of_the_table(runs: list[RunRecord]) -> None:
    table, series = make_table(runs), series_of(ordered_recipes(runs))
    drawing = error_drawing(table, series)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    assert len(axes.lines) == len(table.rows)
    for line, row in zip(axes.lines, table.rows, strict=True):
        assert list(np.asarray(line.get_xdata())) == list(table.sizes)
        means = [cell.ours.mean for cell in row.cells if cell.ours is not None]
        assert list(np.asarray(line.get_ydata())) == pytest.approx(means)
    bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
    assert len(bands) == len(table.rows)
    deviation = next(cell.ours.deviation for cell in table.rows[-1].cells if cell.ours)
    heights = np.asarray(bands[-1].get_paths()[0].vertices)
    first = heights[heights[:, 0] == table.sizes[0], 1]
    assert deviation is not None
    assert first.max() - first.min() == pytest.approx(2 * deviation)


def test_one_size_alone_is_no_curve(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=9 + seed)) for seed in range(2)]
    assert error_drawing(make_table(runs), series_of(["digits/pooling"])) is None


def test_without_a_pair_no_differences_are_drawn(tmp_path: Path) -> None:
    alone = [read_run(write_run(tmp_path))]
    assert difference_drawing(make_table(alone), series_of(["digits/pooling"])) is None


def test_differences_stand_under_their_size(runs: list[RunRecord]) -> None:
    table, series = make_table(runs), series_of(ordered_recipes(runs))
    drawing = difference_drawing(table, series)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    compared = ["cnn", "cnn, averaged", "monomials", "local-ws"]
    assert names == ["100 images", *compared, "1,000 images", *compared]
    weights = [label.get_fontweight() for label in axes.get_yticklabels()]
    assert weights == (["bold"] + ["normal"] * 4) * 2
    found = {(c.lines[0].get_xdata()[0], c.lines[0].get_ydata()[0]) for c in axes.containers}  # type: ignore[attr-defined]
    places = [place for place in range(10) if place % 5]
    means = [
        row.cells[column].difference.mean  # type: ignore[union-attr]
        for column in range(2)
        for row in table.rows
        if row.cells[column].difference
    ]
    assert found == set(zip(means, places, strict=True))


def test_learning_is_drawn_from_the_lowest_to_the_highest_seed(runs: list[RunRecord]) -> None:
    series = series_of(ordered_recipes(runs))
    small, large = learning_drawings(runs, series)
    assert (small.name, large.name) == ("learning-digits-100", "learning-digits-1000")
    (axes,) = small.figure.axes
    own = [run for run in runs if (run.recipe, run.size) == ("digits/cnn", 100)]
    lowest = min(run.curve[-1]["cross_entropy"] for run in own)
    highest = max(run.curve[-1]["cross_entropy"] for run in own)
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)
    last = band[band[:, 0] == 20.0, 1]
    assert (last.min(), last.max()) == pytest.approx((lowest, highest))
    (selection,) = (line for line in axes.lines if len(set(line.get_xdata())) == 1)  # type: ignore[arg-type]
    assert selection.get_xdata() == [5.0, 5.0]
    assert [each.get_text().strip() for each in axes.texts] == ["selection"]


def test_confusions_are_summed_over_seeds(runs: list[RunRecord]) -> None:
    own = [run for run in runs if (run.recipe, run.size) == ("digits/cnn", 1000)]
    drawing = confusion_drawing(own, series_of(["digits/cnn"])["digits/cnn"])
    assert drawing is not None
    axes = drawing.figure.axes[0]
    written = {each.get_position(): int(each.get_text()) for each in axes.texts}
    expected = {
        (j, i): sum(run.confusion[i][j] for run in own) for i in range(10) for j in range(10)
    }
    assert written == {place: count for place, count in expected.items() if count}
    cells = np.asarray(axes.images[0].get_array())
    for i in range(10):
        right, total = expected[i, i], sum(expected[j, i] for j in range(10))
        assert cells[i, i, 3] == pytest.approx(0.1 + 0.55 * right / total)
        assert cells[i, i, 2] > cells[i, i, 0]  # blue
        assert cells[i, (i + 1) % 10, 0] > cells[i, (i + 1) % 10, 2]  # orange
    errors = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert errors[0] == f"{1 - expected[0, 0] / 36:.1%}"


def test_many_classes_are_drawn_without_counts(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    wide = RunRecord(**vars(run) | {"confusion": tuple((1,) * 40 for _ in range(40))})
    wide = RunRecord(**vars(wide) | {"per_class": ()})
    drawing = confusion_drawing([wide], series_of([run.recipe])[run.recipe])
    assert drawing is not None
    assert list(drawing.figure.axes[0].texts) == []
    assert drawing.svg.startswith("<svg")


def test_calibration_is_of_all_seeds_together(runs: list[RunRecord]) -> None:
    own = [run for run in runs if (run.recipe, run.size) == ("digits/pooling", 1000)]
    bins = merged_bins([run.calibration for run in own])
    assert sum(each.count for each in bins) == 3 * 120
    right = sum(run.test_images * (1 - run.error) for run in own)
    assert sum(each.count * each.accuracy for each in bins) == pytest.approx(right)
    drawing = calibration_drawing(own, series_of(["digits/pooling"])["digits/pooling"])
    assert drawing is not None
    upper, lower = drawing.figure.axes
    assert [bar.get_height() for bar in lower.patches] == [each.count for each in bins]  # type: ignore[attr-defined]
    dots = [each for each in bins if each.count]
    assert list(np.asarray(upper.lines[1].get_xdata())) == [each.confidence for each in dots]
    assert list(np.asarray(upper.lines[1].get_ydata())) == [each.accuracy for each in dots]
    assert INK not in drawing.svg


def test_scaled_answers_are_drawn_beside_those_as_trained(runs: list[RunRecord]) -> None:
    own = [run for run in runs if (run.recipe, run.size) == ("digits/cnn", 1000)]
    scaled = [(2.0, (Bin(60, 0.25, 0.5), Bin(60, 0.75, 0.75)))] * 3
    drawing = calibration_drawing(own, series_of(["digits/cnn"])["digits/cnn"], scaled)
    assert drawing is not None
    upper = drawing.figure.axes[0]
    assert list(np.asarray(upper.lines[2].get_xdata())) == [0.25, 0.75]
    assert list(np.asarray(upper.lines[2].get_ydata())) == [0.5, 0.75]
    assert upper.get_title(loc="right").endswith(" → 12.50%")
    assert "divided by a temperature, 2.00 on average" in drawing.caption


def test_errors_of_classes_are_means_over_seeds_the_worst_above(runs: list[RunRecord]) -> None:
    look = series_of(ordered_recipes(runs))
    networks = [
        ([run for run in runs if (run.recipe, run.size) == (recipe, 100)], own)
        for recipe, own in look.items()
    ]
    drawing = class_error_drawing(networks, most=4)
    assert drawing is not None
    (axes,) = drawing.figure.axes
    errors = np.array(
        [
            [100 * np.mean([r.per_class[k].error for r in own]) for k in range(10)]
            for own, _ in networks
        ]
    )
    worst = np.argsort(-errors.mean(axis=0), kind="stable")[:4]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"{k} (12)" for k in worst]
    for line, expected in zip(axes.lines, errors, strict=True):
        assert list(np.asarray(line.get_xdata())) == pytest.approx(list(expected[worst]))
    assert "The 4 worst of 10 classes." in drawing.caption


def test_one_class_alone_is_not_compared(runs: list[RunRecord]) -> None:
    alone = replace(runs[0], per_class=runs[0].per_class[:1])
    assert class_error_drawing([([alone], series_of([alone.recipe])[alone.recipe])]) is None
