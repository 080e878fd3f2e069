from typing import Any

import pytest
import torch

from invint.errors import ConfigError
from invint.fit.plan import (
    ENOUGH,
    EVALUATION,
    FEWEST,
    MOST,
    OVERHEAD,
    SEEDS,
    Plan,
    candidate_sides,
    make_plan,
    recipes,
    stopwatch,
)
from invint.recipes.recipe import DataChoice, Recipe
from invint.recipes.schedule import Schedule
from invint.train import Execution
from invint.train.setup import RunData
from invint.train.timing import seconds_per_step


def quadratic(side: int) -> float:
    return side**2 * 4e-5


def spent(plan: Plan) -> float:
    return plan.seeds * (plan.steps + EVALUATION) * plan.side**2 * 4e-5 + OVERHEAD


def test_sides_go_from_that_of_the_pictures_down_to_half() -> None:
    assert candidate_sides(20) == [20, 16]
    assert candidate_sides(33) == [34, 32, 28, 24, 20]
    assert candidate_sides(8) == [16]
    assert candidate_sides(500) == [64, 56, 48, 40, 32]


@pytest.mark.parametrize("seconds", [120.0, 300.0, 600.0, 3600.0])
@pytest.mark.parametrize("images", [40, 500, 9000])
def test_a_plan_keeps_to_the_time(images: int, seconds: float) -> None:
    plan = make_plan(images, candidate_sides(64), seconds, quadratic)
    assert plan.seconds == pytest.approx(spent(plan))
    assert plan.seconds <= seconds
    assert 1 <= plan.seeds <= SEEDS
    if plan.whole:
        assert ENOUGH <= plan.steps <= MOST


def test_more_time_gives_more_seeds_then_larger_images() -> None:
    plans = [make_plan(500, candidate_sides(64), each, quadratic) for each in (60, 300, 900, 9000)]
    assert [plan.whole for plan in plans] == [True, True, True, True]
    assert [plan.side for plan in plans] == sorted(plan.side for plan in plans)
    assert plans[-1] == Plan(side=64, batch_size=64, steps=300, seeds=5, seconds=plans[-1].seconds)


def test_too_little_time_gives_a_short_training_of_small_images() -> None:
    plan = make_plan(500, [20, 16], 1.0, quadratic)
    assert (plan.side, plan.steps, plan.seeds, plan.whole) == (16, FEWEST, 1, False)


def test_a_side_that_suits_is_the_last_one_measured() -> None:
    asked = []

    def clock(side: int) -> float:
        asked.append(side)
        return quadratic(side)

    make_plan(500, [64, 32, 16], 1e6, clock)
    assert asked == [64]


@pytest.mark.parametrize("images", [30, 500, 7000])
def test_recipes_take_the_planned_steps_and_differ_in_the_network_alone(images: int) -> None:
    plan = Plan(side=20, batch_size=32, steps=400, seeds=2)
    found = recipes(plan, DataChoice(name="arrays:x.npz"), images)
    assert [each.name for each in found] == [
        "fit/cnn",
        "fit/cnn-turned",
        "fit/pooling",
        "fit/local-ws",
    ]
    train = found[0].train
    assert all(each.train == train for each in found)
    assert [each.data.augment for each in found] == [(), *3 * [("rotate",)]]
    steps = Schedule(images=images, batch_size=32, epochs=train.epochs).steps
    assert steps == pytest.approx(400, abs=max(images / 64, 1))


@pytest.mark.slow
def test_the_stopwatch_times_every_network_and_leaves_the_generator_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_rng_state()
    timed = []

    def step(recipe: Recipe, data: RunData, execution: Execution, **options: Any) -> float:
        timed.append(recipe.name)
        return seconds_per_step(recipe, data, execution, **options)

    monkeypatch.setattr("invint.fit.plan.seconds_per_step", step)
    assert stopwatch(40, 1, 3)(16) > 0
    assert timed == ["fit/cnn", "fit/cnn-turned", "fit/pooling", "fit/local-ws"]
    assert torch.equal(torch.get_rng_state(), before)


def test_a_plan_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        Plan(side=16, batch_size=16, steps=0, seeds=1)
