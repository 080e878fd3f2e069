"""The loop with a function in the place of training: its optimum, its journal, its errors."""

import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from invint.errors import ConfigError, RunError
from invint.study.search import (
    OPTIMIZERS,
    Bohb,
    Choice,
    Configuration,
    RandomSearch,
    Range,
    check_scales,
    round_of_brackets,
)
from invint.study.tune import Budget, Journal, Measured, Trial, best_trial, cost, incumbents, tune

SPACE = (
    Range("train.lr", 1e-5, 1e-1, log=True),
    Range("model.dropout", 0.0, 0.8),
    Range("train.reg", 1e-6, 1.0, log=True),
    Choice("train.batch_size", (32, 64, 128)),
)
PAIR = SPACE[:2]
SCALES = (0.03, 1.0)


def bowl(configuration: Configuration, fidelity: float) -> Measured:
    """Lowest, at zero, for a rate of 3e-3, dropout 0.3, penalty 1e-3 and batches of 64."""
    error = (math.log10(configuration["train.lr"] / 3e-3) / 4) ** 2
    error += (configuration["model.dropout"] - 0.3) ** 2
    error += (math.log10(configuration.get("train.reg", 1e-3) / 1e-3) / 6) ** 2
    error += 0.05 * (configuration.get("train.batch_size", 64) != 64)
    return Measured(min(1.0, error + 0.1 * (1 - fidelity)), 1.0, "somewhere")


def lowest(trials: list[Trial]) -> float:
    best = best_trial(trials)
    assert best is not None
    assert best.validation_error is not None
    return best.validation_error


@pytest.mark.slow
def test_bohb_comes_nearer_to_a_known_optimum_than_random_search_at_equal_cost(
    tmp_path: Path,
) -> None:
    found: dict[str, list[float]] = {"bohb": [], "random": []}
    for seed in range(5):
        journal = Journal(tmp_path / f"bohb-{seed}")
        trials = tune(Bohb(SPACE, SCALES, seed), bowl, journal, Budget(trials=69))
        equal = math.ceil(cost(trials) - 1e-9)
        assert equal == 16
        journal = Journal(tmp_path / f"random-{seed}")
        drawn = tune(RandomSearch(SPACE, SCALES, seed), bowl, journal, Budget(trials=equal))
        assert cost(drawn) >= cost(trials)
        found["bohb"].append(lowest(trials))
        found["random"].append(lowest(drawn))
    wins = sum(a < b for a, b in zip(found["bohb"], found["random"], strict=True))
    assert wins >= 4
    assert sum(found["bohb"]) < 0.8 * sum(found["random"])


@pytest.mark.parametrize("scales", [(0.05, 0.15), (0.1, 0.9), (0.02, 0.17), (1.0, 1.0)])
def test_the_brackets_are_those_of_the_optimizer(
    tmp_path: Path, scales: tuple[float, float]
) -> None:
    stages = [stage for bracket in round_of_brackets(scales) for stage in bracket]
    wanted = [share for number, share in stages for _ in range(number)]
    journal = Journal(tmp_path / "trials")
    trials = tune(Bohb(SPACE, scales, 0), bowl, journal, Budget(trials=len(wanted)))
    assert wanted.count(scales[1]) >= 1
    assert [trial.fidelity for trial in trials] == wanted
    assert min(wanted) >= 0.999999 * scales[0] > min(wanted) / 3


class Killed(Exception):
    pass


@pytest.mark.parametrize("method", OPTIMIZERS)
@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_killed_tuning_resumes_with_the_same_proposals(
    tmp_path: Path, method: str, jobs: int
) -> None:
    def make() -> Bohb | RandomSearch:
        return OPTIMIZERS[method](PAIR, SCALES, 3)  # type: ignore[return-value]

    budget = Budget(trials=22)
    whole = Journal(tmp_path / "whole")
    tune(make(), bowl, whole, budget, jobs=jobs)

    calls = 0

    def mortal(configuration: Configuration, fidelity: float) -> Measured:
        nonlocal calls
        calls += 1
        if calls == 16:
            raise Killed
        return bowl(configuration, fidelity)

    path = tmp_path / "killed"
    with pytest.raises(Killed):
        tune(make(), mortal, Journal(path), budget, jobs=jobs)
    assert len(Journal(path).ended) < 16
    with path.open("a") as file:
        file.write('{"number": 99, "configu')  # a line that the kill cut off
    tune(make(), mortal, Journal(path), budget, jobs=jobs)

    def plain(journal: Journal) -> list[tuple[int, Configuration, float, float | None]]:
        return [
            (each.number, each.configuration, each.fidelity, each.validation_error)
            for each in journal.trials
        ]

    assert plain(Journal(path)) == plain(Journal(tmp_path / "whole"))
    assert calls <= 22 + jobs  # none that had ended was tried again


def test_a_larger_budget_resumes_as_if_it_had_been_given_at_first(tmp_path: Path) -> None:
    for budget in (9, 15):
        tune(Bohb(PAIR, SCALES, 0), bowl, Journal(tmp_path / "two"), Budget(trials=budget))
    tune(Bohb(PAIR, SCALES, 0), bowl, Journal(tmp_path / "one"), Budget(trials=15))
    one, two = Journal(tmp_path / "one").trials, Journal(tmp_path / "two").trials
    assert [each.configuration for each in one] == [each.configuration for each in two]


def test_a_spent_budget_tries_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "trials")
    tune(RandomSearch(SPACE, SCALES, 0), bowl, journal, Budget(trials=3))

    def never(_: Configuration, __: float) -> Measured:
        raise Killed

    tune(RandomSearch(SPACE, SCALES, 0), never, Journal(journal.path), Budget(trials=3))
    assert len(Journal(journal.path).ended) == 3


def test_seeds_differ_and_repeat() -> None:
    for make in (Bohb, RandomSearch):
        drawn = [make(SPACE, SCALES, seed).propose() for seed in (0, 0, 1)]
        configurations = [each.configuration for each in drawn if each is not None]
        assert configurations[0] == configurations[1] != configurations[2]


@pytest.mark.parametrize("method", OPTIMIZERS)
def test_failed_trials_count_and_tuning_continues(tmp_path: Path, method: str) -> None:
    def brittle(configuration: Configuration, fidelity: float) -> Measured:
        if configuration["train.lr"] > 1e-3:
            return Measured(None, 1.0, "somewhere", "the loss is nan")
        return bowl(configuration, fidelity)

    optimizer, journal = OPTIMIZERS[method](PAIR, SCALES, 0), Journal(tmp_path / "trials")
    trials = tune(optimizer, brittle, journal, Budget(trials=30))
    states = {trial.state for trial in trials}
    assert states == {"done", "failed"}
    assert len(trials) == 30
    best = best_trial(trials)
    assert best is not None
    assert best.configuration["train.lr"] <= 1e-3
    promoted = [trial for trial in trials if trial.fidelity > 0.04]
    assert {trial.state for trial in trials if trial.problem} == {"failed"}
    assert promoted


def test_nothing_but_failures_ends_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "trials")
    trials = tune(Bohb(PAIR, SCALES, 0), lambda *_: Measured(None), journal, Budget(trials=50))
    assert len(trials) == 50
    assert best_trial(trials) is None


def test_as_many_trials_are_under_way_as_there_are_jobs(tmp_path: Path) -> None:
    counts = []
    with ThreadPoolExecutor(4) as pool:
        journal = Journal(tmp_path / "trials")

        def count(_: Trial) -> None:
            counts.append(len(journal.trials) - len(journal.ended))

        tune(
            Bohb(PAIR, SCALES, 0),
            bowl,
            journal,
            Budget(trials=30),
            executor=pool,
            jobs=4,
            on_trial=count,
        )
    assert len(counts) == 30
    assert max(counts) == 3  # one has just ended
    assert Journal(journal.path).trials == journal.trials


def test_hours_end_a_tuning_and_count_over_all_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)

    def slow(configuration: Configuration, fidelity: float) -> Measured:
        nonlocal now
        now += 600
        return bowl(configuration, fidelity)

    journal = Journal(tmp_path / "trials")
    assert len(tune(RandomSearch(SPACE, SCALES, 0), slow, journal, Budget(hours=0.5))) == 3
    assert journal.elapsed == 1800
    journal = Journal(journal.path)
    assert len(tune(RandomSearch(SPACE, SCALES, 0), slow, journal, Budget(hours=1))) == 6


def test_the_journal_has_a_line_for_each_proposal_and_each_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "trials.jsonl")
    tune(RandomSearch(SPACE, SCALES, 0), bowl, journal, Budget(trials=2))
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert [line["state"] for line in lines] == ["proposed", "done"] * 2
    assert lines[0]["configuration"] == lines[1]["configuration"]
    wanted = {"number", "configuration", "fidelity", "state", "validation_error", "seconds"}
    assert wanted | {"folder"} <= set(lines[1])


def test_a_journal_of_other_proposals_is_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "trials.jsonl")
    tune(RandomSearch(SPACE, SCALES, 0), bowl, journal, Budget(trials=2))
    with pytest.raises(RunError, match=r"trial 0 is not what would be proposed now.*move it away"):
        tune(RandomSearch(SPACE, SCALES, 1), bowl, journal, Budget(trials=3))


@pytest.mark.parametrize("line", ["{}", "[1]", "nonsense", '{"number": 0}'])
def test_a_damaged_journal_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(RunError, match=r"trials.jsonl: a line is not a trial .*move the file away"):
        Journal(path)


def test_a_process_that_died_is_named(tmp_path: Path) -> None:
    def dying(_: Configuration, __: float) -> Measured:
        raise BrokenProcessPool

    with pytest.raises(RunError, match=r"a process was killed.*fewer --jobs"):
        tune(RandomSearch(SPACE, SCALES, 0), dying, Journal(tmp_path / "t"), Budget(trials=1))


def test_the_curve_counts_all_costs_but_only_full_trials() -> None:
    def trial(number: int, fidelity: float, error: float | None) -> Trial:
        return Trial(number=number, configuration={}, fidelity=fidelity, validation_error=error)

    ended = [trial(0, 0.5, 0.1), trial(1, 1.0, 0.3), trial(2, 1.0, None), trial(3, 1.0, 0.2)]
    assert incumbents(ended, 1.0) == [(1.5, 0.3), (3.5, 0.2)]
    assert best_trial(ended) == ended[3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either --trials or --hours"),
        ({"trials": 3, "hours": 1.0}, "either --trials or --hours"),
        ({"trials": 0}, "positive, got --trials 0"),
        ({"hours": -1.0}, "positive, got --hours -1"),
        ({"hours": math.nan}, "positive, got --hours nan"),
    ],
)
def test_a_wrong_budget_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("scales", [(0.0, 1.0), (0.5, 0.1), (0.1, 1.5), (math.nan, 1.0)])
def test_wrong_shares_of_the_iterations_are_refused(scales: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="0 < --min-scale ≤ --max-scale ≤ 1"):
        check_scales(*scales)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blackboxopt", None)
    with pytest.raises(ConfigError, match=r"invint tune: needs blackboxopt; pip .*invint\[tune\]"):
        Bohb(SPACE, SCALES, 0)
