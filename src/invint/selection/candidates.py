"""The monomials that a selection starts from."""

import itertools
import math

import torch

from invint.errors import ConfigError
from invint.nn.monomials import Monomials

INITIAL = ("random", "catalog")


def catalog_size(max_distance: int, factors: int = 3) -> int:
    r"""Return how many combinations of distances there are.

    The first factor is at distance 0. A combination is what distances the others have, regardless
    of their order and possibly the same: swapping two factors leaves a monomial as it is, and
    exponents are drawn alike for all. These are

    $$\binom{d_{\max} + n - 2}{n - 1}$$

    for $n$ factors: 45 for three factors and distances 1 … 9, which fits the paper's 50 monomials.

    Args:
        max_distance: Largest distance.
        factors: Factors of each monomial.
    """
    if max_distance < 1 or factors < 1:
        raise ConfigError(
            "catalog_size: max_distance and factors must be at least 1, "
            f"got {max_distance} and {factors}"
        )
    return math.comb(max_distance + factors - 2, factors - 1)


def initial_monomials(
    kind: str,
    count: int,
    *,
    max_distance: int,
    factors: int = 3,
    max_power: float = math.inf,
    generator: torch.Generator | None = None,
) -> Monomials:
    """Draw the candidates of a selection.

    Args:
        kind: `random`; or `catalog`, in which every combination of distances occurs, in
            lexicographic order, and the places that remain are filled at random.
        count: Number of monomials.
        max_distance: Largest distance.
        factors: Factors of each monomial.
        max_power: Scale exponents down where their sum is larger.
        generator: Source of random numbers; by default torch's own.
    """
    check_candidates(kind, count, max_distance=max_distance, factors=factors)
    drawn = Monomials.random(
        count, max_distance=max_distance, factors=factors, max_power=max_power, generator=generator
    )
    if kind == "random":
        return drawn
    combinations = itertools.combinations_with_replacement(range(1, max_distance + 1), factors - 1)
    catalog = tuple((0.0, *map(float, distances)) for distances in combinations)
    return Monomials(catalog + drawn.distances[len(catalog) :], drawn.angles, drawn.exponents)


def check_candidates(kind: str, count: int, *, max_distance: int, factors: int = 3) -> None:
    """Raise `ConfigError` if there is no such set, or if it does not fit `count` monomials."""
    if kind not in INITIAL:
        raise ConfigError(f"no initial set {kind!r}; there are {', '.join(INITIAL)}")
    if kind == "catalog" and catalog_size(max_distance, factors) > count:
        raise ConfigError(
            f"a catalog of {factors} factors with distances up to {max_distance} needs "
            f"{catalog_size(max_distance, factors)} monomials, got {count}; start with more, or "
            "with random ones"
        )
