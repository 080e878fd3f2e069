from typing import Any

import pytest

from invint import ConfigError
from invint.selection import check_plan

PAPER: dict[str, Any] = {
    "method": "magnitude",
    "head": "monomials",
    "start": 50,
    "steps": ((10, 25), (15, 5)),
    "epochs": 100,
}
LSE: dict[str, Any] = {"method": "lse", "head": "monomials", "start": 5, "pretrain": 50.0}


@pytest.mark.parametrize(
    "plan",
    [
        PAPER,
        PAPER | {"initial": "catalog", "max_distance": 9},
        PAPER | {"method": "connectivity", "steps": ((0, 5),)},
        LSE,
        {"method": "none", "head": "max"},
        {"method": "none", "head": "monomials"},
    ],
)
def test_sensible_plans_pass(plan: dict[str, Any]) -> None:
    check_plan(**plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (PAPER | {"steps": ((10, 50),)}, "50 monomials cannot be chosen out of 50; start with"),
        (PAPER | {"steps": ((10, 60),)}, "60 monomials cannot be chosen out of 50"),
        (PAPER | {"steps": ((5, 10), (9, 10))}, "must fall at each step, got 50 → 10 → 10"),
        (PAPER | {"steps": ((5, 5), (9, 10))}, "must fall at each step, got 50 → 5 → 10"),
        (PAPER | {"steps": ((10, 25), (10, 5))}, "follow each other in time, got epochs 10, 10"),
        (PAPER | {"steps": ((10, 25), (100, 5))}, "epoch 100 does not fit a run of 100 epochs"),
        (PAPER | {"steps": ((-1, 25),)}, "epoch -1 does not fit a run of 100 epochs; use 0 to"),
        (PAPER | {"steps": ()}, r"there is no step; give one such as \(10, 5\)"),
        (PAPER | {"steps": ((10, 0),)}, "at least 1 monomial must be kept, got 0"),
        (PAPER | {"head": "max"}, "'magnitude' needs the head 'monomials', got 'max'"),
        (PAPER | {"method": "size"}, "no selection 'size'; there are none, magnitude,"),
        (PAPER | {"initial": "all"}, "no initial set 'all'; there are random, catalog"),
        (PAPER | {"initial": "catalog", "max_distance": 10}, "needs 55 monomials, got 50"),
        (PAPER | {"start": 0}, "start must be at least 1, got 0"),
        (PAPER | {"pretrain": 3.0}, "'magnitude' needs no pre-training; leave pretrain out"),
        (LSE | {"steps": ((10, 4),)}, "'lse' keeps the 5 monomials it starts with; leave steps"),
        (LSE | {"pretrain": -1.0}, "pretrain must not be negative, got -1"),
        (LSE | {"patience": 0}, "candidates and patience must be at least 1, got 1000 and 0"),
        (LSE | {"ridge": 0.0}, "ridge must be positive, got 0"),
    ],
)
def test_what_does_not_fit_gets_one_line(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_plan(**plan)
