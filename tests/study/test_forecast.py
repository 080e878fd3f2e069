from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import place_in, tiny

from invint.recipes import find_recipe
from invint.recipes.recipe import Recipe
from invint.study import forecast as module
from invint.study.forecast import FEW, Forecast, Speed, forecast, measured, what_is_measured
from invint.train.run import Run


def test_the_time_of_a_run_is_that_of_its_steps_and_its_test_images() -> None:
    assert Speed(step=0.5, image=0.01, tests=200).seconds(10) == pytest.approx(7.0)


def test_each_network_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, told = list[Recipe](), list[str]()

    def pretend(recipe: Recipe, *_: object, **__: object) -> Speed:
        seen.append(recipe)
        return Speed(step=2.0, image=0.0, tests=0)

    monkeypatch.setattr(module, "measured", pretend)
    cells = [
        tiny(name, seed=seed, size=size)
        for name in ("digits/cnn", "digits/pooling")
        for seed in (0, 1)
        for size in (50, 100)
    ]
    found = forecast(cells, place_in(tmp_path), watch=lambda recipe: told.append(recipe.name))
    assert told == ["digits/cnn", "digits/pooling"]
    assert [recipe.model.name for recipe in seen] == ["cnn-small", "sfcnn-small"]
    assert [each.seconds for each in found] == [2.0 * cell.steps for cell in cells]
    assert {each.state for each in found} == {"to do"}


def test_what_is_done_takes_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measured", lambda *_, **__: Speed(2.0, 0.0, 0))
    place, cells = place_in(tmp_path), [tiny(seed=0), tiny(seed=1)]
    for cell in cells:
        place.folder(cell).mkdir(parents=True)
    (place.folder(cells[0]) / "result.json").write_text("{}")
    (place.folder(cells[1]) / "log.jsonl").write_text('{"epoch": 2.0, "step": 3}\n')
    assert cells[0].steps == 6
    assert forecast(cells, place) == [Forecast(cells[0], 6, 0.0), Forecast(cells[1], 3, 6.0)]
    assert [each.state for each in forecast(cells, place)] == ["done", "50% done"]


def test_monomials_are_measured_as_many_as_are_left_after_selection() -> None:
    recipe = find_recipe("digits/monomials")
    assert recipe.selection.start == 20
    assert what_is_measured(recipe).selection.start == 5
    assert what_is_measured(recipe).selection.method == "none"
    assert what_is_measured(find_recipe("digits/monomials-lse")).selection.start == 5
    assert what_is_measured(find_recipe("digits/cnn")).model == find_recipe("digits/cnn").model


@pytest.mark.slow
def test_real_steps_are_made_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.chdir(tmp_path)
    speed = measured(what_is_measured(find_recipe("digits/cnn")), place_in(tmp_path), threads=1)
    assert 0 < speed.step < 10
    assert 0 < speed.image < 1
    assert speed.tests == 797 * 17
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_where_a_step_takes_long_a_part_of_a_batch_stands_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()

    class Counted(Run):
        def __init__(self, recipe: Recipe, *rest: Any) -> None:
            made.append(recipe.train.batch_size)
            super().__init__(recipe, *rest)

    monkeypatch.setattr(module, "MOST", 2)
    monkeypatch.setattr(module, "Run", Counted)
    recipe = what_is_measured(find_recipe("digits/cnn"))
    whole = measured(recipe, place_in(tmp_path), threads=1)
    monkeypatch.setattr(module, "LONG", 0.0)
    part = measured(recipe, place_in(tmp_path), threads=1)
    assert made == [FEW, recipe.train.batch_size, FEW]
    assert part.tests == whole.tests
    assert part.step > 0
    assert part.image > 0
