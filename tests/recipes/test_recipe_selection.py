"""Which plans for a selection of monomials a recipe refuses."""

from typing import Any

import pytest

from invint import ConfigError
from invint.recipes import Recipe

PAPER: dict[str, Any] = {"method": "magnitude", "start": 50, "steps": ((10, 25), (15, 5))}
LSE: dict[str, Any] = {"method": "lse", "start": 5, "pretrain": 50.0}


def planned(plan: dict[str, Any]) -> Recipe:
    """Return a recipe with a head and a selection."""
    values: dict[str, Any] = {
        "name": "own/plan",
        "model": {"head": plan.get("head", "monomials"), "depths": plan.get("depths", 1)},
        "train": {"epochs": 100, "batch_size": 32, "lr": 0.1},
        "selection": {
            name: value for name, value in plan.items() if name not in ("head", "depths")
        },
    }
    return Recipe(**values)


@pytest.mark.parametrize(
    "plan",
    [
        PAPER,
        PAPER | {"initial": "catalog"},
        PAPER | {"method": "connectivity", "steps": ((0, 5),)},
        LSE,
        {"method": "none", "head": "max"},
        {"method": "none", "head": "monomials"},
        {"method": "none", "depths": 2},
    ],
)
def test_sensible_plans_pass(plan: dict[str, Any]) -> None:
    assert planned(plan).selection.method == plan["method"]


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
        (PAPER | {"depths": 2}, "'magnitude' needs all monomials on one map, got model.depths=2;"),
        (PAPER | {"signed": True}, "'magnitude' differentiates no loss; leave signed and stat"),
        (LSE | {"statistics": "batch"}, "'lse' differentiates no loss; leave signed and stat"),
        (PAPER | {"method": "size"}, "no method 'size'; there are none, magnitude, connectivity"),
        (PAPER | {"initial": "all"}, "no initial 'all'; there are random and catalog"),
        (PAPER | {"start": 0}, "selection.start must be from 1 to 100,000, got 0"),
        (PAPER | {"pretrain": 3.0}, "'magnitude' needs no pre-training; leave pretrain out"),
        (LSE | {"steps": ((10, 4),)}, "'lse' keeps the 5 monomials it starts with; leave steps"),
        (LSE | {"pretrain": -1.0}, "selection.pretrain must be at least 0, got -1"),
        (LSE | {"patience": 0}, "selection.patience must be at least 1, got 0"),
        (LSE | {"candidates": 0}, "selection.candidates must be at least 1, got 0"),
        (LSE | {"ridge": 0.0}, r"selection.ridge must be above 0 and at most 1e\+09, got 0"),
    ],
)
def test_what_does_not_fit_gets_one_line(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        planned(plan)
    assert "\n" not in str(caught.value)
