import csv
import re

import pytest
from support.trials import BOHB, RANDOM, SPACE, trial

from invint.study.tune import Measured, Trial, against_own, trials_csv, verdict


def test_the_table_has_every_trial_with_all_its_digits() -> None:
    rows = list(csv.DictReader(trials_csv({"bohb": BOHB, "random": RANDOM}, SPACE).splitlines()))
    assert [row["method"] for row in rows] == ["bohb"] * 3 + ["random"] * 2
    assert [row["number"] for row in rows] == ["0", "1", "2", "0", "1"]
    assert rows[1]["train.lr"] == "0.002"
    assert rows[1]["validation_error"] == "0.2"
    assert (rows[0]["validation_error"], rows[0]["problem"]) == ("", "the loss is nan")


def test_the_outcome_is_said_plainly() -> None:
    lines = verdict({"bohb": BOHB, "random": RANDOM})
    assert lines[0] == (
        "BOHB: 10.00% validation error with all iterations, trial 2 "
        "(3 trials that cost 2.0 full ones, 1 failed)"
    )
    assert lines[1].startswith("random search: 12.50% validation error")
    assert "BOHB found 2.50 percentage points less" in lines[2]
    assert "nothing about chance" in lines[2]


def test_random_search_may_win_or_draw() -> None:
    assert "random search found 5.00" in verdict({"bohb": BOHB, "random": [trial(0, 1, 0.05)]})[2]
    assert "both found the same" in verdict({"bohb": BOHB, "random": [trial(0, 1, 0.1)]})[2]


def test_trials_of_different_lengths_are_not_compared() -> None:
    assert "not compared" in verdict({"bohb": BOHB[:1], "random": RANDOM})[2]
    assert "not compared" in verdict({"bohb": BOHB[1:2], "random": RANDOM})[2]


def test_one_method_has_one_line() -> None:
    assert len(verdict({"bohb": BOHB})) == 1
    failed = verdict({"bohb": BOHB[1:2]})
    assert failed == ["BOHB: no trial succeeded (one trial that cost 0.5 full ones, 1 failed)"]


@pytest.mark.parametrize(
    ("best", "own", "line"),
    [
        (BOHB[2], Measured(0.12), "12.00% .* with all iterations, 2.00 percentage points more"),
        (BOHB[2], Measured(0.1), "tuning found nothing better"),
        (BOHB[0], Measured(0.12), "12.00% validation error with all iterations$"),
        (None, Measured(0.12), "12.00% validation error with all iterations$"),
        (BOHB[2], Measured(None, problem="the loss is nan"), r"failed \(the loss is nan\)"),
    ],
)
def test_the_recipes_own_values_are_set_beside(
    best: Trial | None, own: Measured, line: str
) -> None:
    assert re.search(f"the recipe's own values: .*{line}", against_own(best, own, 1.0))
