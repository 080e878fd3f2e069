import itertools
from pathlib import Path

import pytest
import torch

from invint.recipes import find_recipe
from invint.recipes.recipe import Recipe
from invint.train import Execution, timing
from invint.train.timing import random_data, seconds_per_image, seconds_per_step

HERE = Execution(device="cpu", threads=1)
DATA = random_data(40, side=20, channels=1, classes=3)


def small(name: str = "digits/cnn") -> Recipe:
    return find_recipe(name).replace(model={"widths": (2, 3, 4), "n_fc": 6})


@pytest.mark.parametrize("name", ["digits/cnn", "digits/local-ws", "digits/monomials"])
def test_a_recipe_is_measured_before_there_are_images(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe, before = small(name), torch.get_rng_state()
    assert 0 < seconds_per_step(recipe, DATA, HERE, enough=0.0, warm_up=1) < 10
    assert 0 < seconds_per_image(recipe, DATA, HERE, most=5) < 10
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(torch.get_rng_state(), before)


def test_the_median_of_the_steps_after_the_warm_up_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = itertools.accumulate([0.0, 100.0, 50.0, 1.0, 2.0, 9.0, *[3.0] * 100])
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    monkeypatch.setattr(timing, "MOST", 3)
    assert seconds_per_step(small(), DATA, HERE, enough=1e9) == 2.0


@pytest.mark.parametrize(("enough", "steps"), [(0.5, 1), (2.5, 3), (1e9, timing.MOST)])
def test_steps_are_made_until_it_is_enough(
    enough: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(moments)))
    assert seconds_per_step(small(), DATA, HERE, enough=enough) == 1.0
    assert next(moments) == 1 + timing.WARM_UP + steps
