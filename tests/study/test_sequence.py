import math
from dataclasses import replace
from pathlib import Path

import pytest
from support.written_runs import write_run

from invint.errors import ConfigError
from invint.recipes import find_recipe
from invint.study.grid import Cell
from invint.study.power import deviation_bound, difference_at_any_time, seeds_to_see
from invint.study.records import RunRecord, read_run
from invint.study.sequence import Comparison, Goal, comparisons, outlook
from invint.study.statistics import BETTER

NAMES = ("digits/cnn", "digits/pooling", "digits/local-ws")


def cells(*, seeds: int = 2, sizes: tuple[int, ...] = (100, 200)) -> list[Cell]:
    return [
        Cell(find_recipe(name).replace(data={"size": size}), seed, 1000)
        for seed in range(seeds)
        for size in sizes
        for name in NAMES
    ]


def found(folder: Path, differences: list[float]) -> list[RunRecord]:
    """Return runs of Local-WS and pooling at 100 images whose errors differ by these points."""
    run = read_run(write_run(folder))
    second, first = [
        next(each.recipe for each in cells() if each.recipe.name == name) for name in NAMES[1:]
    ]
    pairs = enumerate(differences)
    return [
        replace(run, hash=recipe.hash, seed=seed, subset=str(seed), error=(10 + wide) / 100)
        for seed, points in pairs
        for recipe, wide in ((first, points), (second, 0.0))
    ]


def the_one() -> Comparison:
    (one,) = comparisons(cells(sizes=(100,)), "local-ws,pooling")
    return one


def test_every_recipe_is_compared_with_pooling_unless_two_are_named() -> None:
    labels = [(each.label, each.size) for each in comparisons(cells())]
    assert labels == [
        (f"{name} − pooling", size) for size in (100, 200) for name in ("cnn", "local-ws")
    ]
    named = comparisons(cells(sizes=(100,)), "digits/cnn, local-ws")
    assert [each.label for each in named] == ["cnn − local-ws"]


def test_settled_recipes_are_found_by_their_heads() -> None:
    names = [f"digits/settled-{each}" for each in ("local-ws", "pooling", "average")]
    settled = [Cell(find_recipe(name), 0, 1000) for name in names]
    (one,) = comparisons(settled, "local-ws,settled-average")
    assert one.label == "settled-local-ws − settled-average"
    assert len(comparisons(settled)) == 2


@pytest.mark.parametrize("asked", ["local-ws", "local-ws,pool", "pooling,pooling", "a,b,c"])
def test_what_is_not_two_recipes_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError) as caught:
        comparisons(cells(), asked)
    assert str(caught.value) == (
        f"--compare {asked}: expected two recipes of the study, as local-ws,pooling; there are "
        "cnn, pooling, local-ws"
    )


def test_the_outlook_is_from_the_deviation_at_hand_and_from_its_bound(tmp_path: Path) -> None:
    differences = [-0.4, 0.1, -0.5]
    seen = outlook(the_one(), found(tmp_path, differences), see=0.3)
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2)
    assert seen.at_hand is not None
    assert seen.at_hand.deviation == pytest.approx(deviation)
    assert seen.seeds == seeds_to_see(0.3, deviation)
    assert seen.most == seeds_to_see(0.3, deviation_bound(deviation, 3))
    assert (seen.seeds or 0) < (seen.most or 0)


def test_of_one_pair_and_of_pairs_all_alike_nothing_is_known(tmp_path: Path) -> None:
    assert outlook(the_one(), [], see=0.3).at_hand is None
    for number, differences in enumerate(([0.25], [0.25, 0.25, 0.25])):
        runs = found(tmp_path / str(number), differences)
        seen = outlook(the_one(), runs, see=0.3)
        assert (seen.seeds, seen.most) == (None, None)
        assert not Goal(comparison=the_one(), width=9, seeds=9).reached(runs)


def test_a_goal_is_reached_when_the_interval_is_narrow_and_not_before(tmp_path: Path) -> None:
    differences = [-1 - math.sin(seed) / 5 for seed in range(8)]
    runs = found(tmp_path, differences)
    zeros = dict.fromkeys(range(8), 0.0)
    truth = difference_at_any_time(dict(enumerate(differences)), zeros)
    assert truth is not None
    assert truth.low is not None
    assert truth.high is not None
    width = truth.high - truth.low
    one = the_one()
    assert Goal(comparison=one, width=width + 1e-9, seeds=9).reached(runs)
    assert not Goal(comparison=one, width=width - 1e-9, seeds=9).reached(runs)
    assert not Goal(comparison=one, width=100.0, seeds=9).reached(runs[:6])  # three pairs: none
    verdict = Goal(comparison=one, width=9.0, seeds=9).verdict(runs, 0.0)
    assert verdict.startswith("local-ws − pooling at 100 images, looked at after 8 seeds: −1.0")
    assert verdict.endswith(f"] {BETTER}; narrow enough")


def test_a_budget_ends_what_is_not_decided(tmp_path: Path) -> None:
    runs = found(tmp_path, [0.5, -0.5])
    goal = Goal(comparison=the_one(), width=0.1, seeds=3, minutes=5)
    assert goal.spent(runs, 4.9) == ""
    assert goal.spent(runs, 5.0) == "the 5 minutes are over"
    assert replace(goal, seeds=2).spent(runs, 0.0) == "all of 2 seeds are used"
    assert replace(goal, seeds=2).verdict(runs, 0.0) == (
        "local-ws − pooling at 100 images, looked at after 2 seeds: 0.00 too few pairs: no "
        "interval; all of 2 seeds are used"
    )
    assert goal.verdict([], 0.0) == "local-ws − pooling at 100 images: no pair of runs"


def test_seeds_are_added_to_the_two_recipes_alone() -> None:
    begun = cells(seeds=2, sizes=(100,))
    goal = Goal(comparison=the_one(), width=0.1, seeds=9)
    more = goal.next_cells(begun, 2)
    assert [(cell.seed, cell.recipe.name) for cell in more] == [
        (seed, name) for seed in (2, 3) for name in ("digits/local-ws", "digits/pooling")
    ]
    assert {cell.size for cell in more} == {100}
    assert [cell.seed for cell in goal.next_cells([*begun, *more])] == [4, 4]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"width": 0.0, "seeds": 9}, "--width 0: expected percentage points above 0, such as 0.3"),
        ({"width": 0.3}, "--width: say when to give up too, by --max-seeds or --minutes"),
        ({"width": 0.3, "seeds": 1}, "--max-seeds 1: expected 2 or more"),
        ({"width": 0.3, "minutes": 0.0}, "--minutes 0: expected more than 0"),
    ],
)
def test_goals_that_make_no_sense_are_refused(options: dict[str, float], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Goal(comparison=the_one(), **options)  # type: ignore[arg-type]
    assert str(caught.value) == line
