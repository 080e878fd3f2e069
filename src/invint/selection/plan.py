"""Whether the numbers of a selection make sense, before anything is trained."""

import math
from collections.abc import Sequence
from itertools import pairwise

from invint.errors import ConfigError
from invint.selection.candidates import INITIAL, check_candidates

METHODS = ("none", "magnitude", "connectivity", "lse")
PRUNING = ("magnitude", "connectivity")
Steps = Sequence[tuple[float, int]]


def check_plan(  # noqa: PLR0913
    *,
    method: str,
    head: str | None,
    initial: str = "random",
    start: int = 5,
    steps: Steps = (),
    epochs: float = math.inf,
    max_distance: int | None = None,
    factors: int = 3,
    pretrain: float = 0.0,
    candidates: int = 1000,
    patience: int = 100,
    ridge: float = 1.0,
) -> None:
    """Raise `ConfigError` on the first number that does not fit the others.

    Args:
        method: `none`, `magnitude`, `connectivity` or `lse`.
        head: Name of the network's head.
        initial: `random` or `catalog`.
        start: Monomials before selection.
        steps: Pairs (epoch, monomials kept from then on).
        epochs: Epochs of the whole run.
        max_distance: Largest distance; only a catalog depends on it, and it is not checked without.
        factors: Factors of each monomial.
        pretrain: Epochs without integration before `lse` selects.
        candidates: Exchanges `lse` tries at most.
        patience: Rejected exchanges in a row after which `lse` stops.
        ridge: Strength of the ridge penalty of `lse`.
    """
    _check_known(method, initial)
    if start < 1:
        raise ConfigError(f"selection: start must be at least 1, got {start}")
    if method != "none" and head != "monomials":
        raise ConfigError(f"selection {method!r} needs the head 'monomials', got {head!r}")
    if head == "monomials" and max_distance is not None:
        check_candidates(initial, start, max_distance=max_distance, factors=factors)
    if method in PRUNING:
        check_steps(start, steps, epochs)
    elif steps:
        raise ConfigError(
            f"selection {method!r} keeps the {start} monomials it starts with; leave steps out, "
            f"got {steps}"
        )
    if method == "lse":
        _check_exchange(pretrain, candidates, patience, ridge)
    elif pretrain:
        raise ConfigError(
            f"selection {method!r} needs no pre-training; leave pretrain out, got {pretrain}"
        )


def check_steps(start: int, steps: Steps, epochs: float) -> None:
    """Raise `ConfigError` unless a schedule descends from `start` and fits the epochs.

    Args:
        start: Monomials before selection.
        steps: Pairs (epoch, monomials kept from then on).
        epochs: Epochs of the whole run.
    """
    if not steps:
        raise ConfigError("selection: there is no step; give one such as (10, 5)")
    times, counts = zip(*steps, strict=True)
    if counts[-1] < 1:
        raise ConfigError(f"selection: at least 1 monomial must be kept, got {counts[-1]}")
    if counts[-1] >= start:
        raise ConfigError(
            f"selection: {counts[-1]} monomials cannot be chosen out of {start}; start with more"
        )
    if any(after >= before for before, after in pairwise((start, *counts))):
        path = " → ".join(map(str, (start, *counts)))
        raise ConfigError(f"selection: the number of monomials must fall at each step, got {path}")
    if any(after <= before for before, after in pairwise(times)):
        path = ", ".join(f"{epoch:g}" for epoch in times)
        raise ConfigError(f"selection: steps must follow each other in time, got epochs {path}")
    if times[0] < 0 or times[-1] >= epochs:
        outside = times[0] if times[0] < 0 else times[-1]
        raise ConfigError(
            f"selection: a step at epoch {outside:g} does not fit a run of {epochs:g} epochs; "
            f"use 0 to less than {epochs:g}"
        )


def _check_known(method: str, initial: str) -> None:
    if method not in METHODS:
        raise ConfigError(f"no selection {method!r}; there are {', '.join(METHODS)}")
    if initial not in INITIAL:
        raise ConfigError(f"no initial set {initial!r}; there are {', '.join(INITIAL)}")


def _check_exchange(pretrain: float, candidates: int, patience: int, ridge: float) -> None:
    if pretrain < 0:
        raise ConfigError(f"selection 'lse': pretrain must not be negative, got {pretrain}")
    if candidates < 1 or patience < 1:
        raise ConfigError(
            "selection 'lse': candidates and patience must be at least 1, "
            f"got {candidates} and {patience}"
        )
    if not 0 < ridge < math.inf:
        raise ConfigError(f"selection 'lse': ridge must be positive, got {ridge}")
