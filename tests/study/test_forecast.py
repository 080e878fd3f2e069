from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import tiny, workspace_in

from invint.recipes import find_recipe
from invint.recipes.recipe import Recipe
from invint.study import forecast as module
from invint.study.forecast import FEW, Forecast, Speed, forecast, measure, representative
from invint.train import timing
from invint.train.setup import RunData
from invint.train.timing import seconds_per_step


def test_the_time_of_a_run_is_that_of_its_steps_and_its_test_images() -> None:
    assert Speed(step=0.5, image=0.01, tests=200).seconds(10) == pytest.approx(7.0)


def test_each_network_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, told = list[Recipe](), list[str]()

    def pretend(recipe: Recipe, *_: object, **__: object) -> Speed:
        seen.append(recipe)
        return Speed(step=2.0, image=0.0, tests=0)

    monkeypatch.setattr(module, "measure", pretend)
    cells = [
        tiny(name, seed=seed, size=size)
        for name in ("digits/cnn", "digits/pooling")
        for seed in (0, 1)
        for size in (50, 100)
    ]
    found = forecast(
        cells, workspace_in(tmp_path), on_recipe=lambda recipe: told.append(recipe.name)
    )
    assert told == ["digits/cnn", "digits/pooling"]
    assert [recipe.model.name for recipe in seen] == ["cnn-small", "sfcnn-small"]
    assert [each.seconds for each in found] == [2.0 * cell.steps for cell in cells]
    assert {each.state for each in found} == {"to do"}


def test_what_is_done_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure", lambda *_, **__: Speed(2.0, 0.0, 0))
    workspace, cells = workspace_in(tmp_path), [tiny(seed=0), tiny(seed=1)]
    for cell in cells:
        workspace.folder(cell).mkdir(parents=True)
    (workspace.folder(cells[0]) / "result.json").write_text("{}")
    (workspace.folder(cells[1]) / "log.jsonl").write_text('{"epoch": 2.0, "step": 3}\n')
    assert cells[0].steps == 6
    assert forecast(cells, workspace) == [Forecast(cells[0], 6, 0.0), Forecast(cells[1], 3, 6.0)]
    assert [each.state for each in forecast(cells, workspace)] == ["done", "50% done"]


def test_monomials_are_measured_as_many_as_are_left_after_selection() -> None:
    recipe = find_recipe("digits/monomials")
    assert recipe.selection.start == 20
    assert representative(recipe).selection.start == 5
    assert representative(recipe).selection.method == "none"
    assert representative(find_recipe("digits/monomials-lse")).selection.start == 5
    assert representative(find_recipe("digits/cnn")).model == find_recipe("digits/cnn").model


@pytest.mark.slow
def test_real_steps_are_made_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "MOST", 2)
    monkeypatch.chdir(tmp_path)
    speed = measure(representative(find_recipe("digits/cnn")), workspace_in(tmp_path), threads=1)
    assert 0 < speed.step < 10
    assert 0 < speed.image < 1
    assert speed.tests == 797 * 17
    assert list(tmp_path.iterdir()) == []


def test_noise_stands_for_images_that_are_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = list[tuple[int, ...]]()

    def pretend(_: Recipe, data: RunData, *__: object, **___: object) -> float:
        shapes.append(data.dataset.image_shape)
        return 0.5

    monkeypatch.setattr(module, "seconds_per_step", pretend)
    monkeypatch.setattr(module, "seconds_per_image", pretend)
    workspace = replace(workspace_in(tmp_path), data_dir=tmp_path)
    for name, turns in (("rotmnist/pooling", 1), ("svhn/wrn-rotate", 16)):
        speed = measure(find_recipe(name), workspace)
        tests = {"rotmnist/pooling": 50_000, "svhn/wrn-rotate": 26_032 * 17}
        assert (speed.tests, find_recipe(name).data.test_turns) == (tests[name], turns)
    assert set(shapes) == {(1, 28, 28), (3, 32, 32)}


@pytest.mark.slow
def test_where_a_step_takes_long_a_part_of_a_batch_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()

    def counted(recipe: Recipe, *rest: Any) -> float:
        made.append(recipe.train.batch_size)
        return seconds_per_step(recipe, *rest)

    monkeypatch.setattr(timing, "MOST", 2)
    monkeypatch.setattr(module, "seconds_per_step", counted)
    recipe = representative(find_recipe("digits/cnn"))
    whole = measure(recipe, workspace_in(tmp_path), threads=1)
    monkeypatch.setattr(module, "LONG", 0.0)
    part = measure(recipe, workspace_in(tmp_path), threads=1)
    assert made == [FEW, recipe.train.batch_size, FEW]
    assert part.tests == whole.tests
    assert part.step > 0
    assert part.image > 0
