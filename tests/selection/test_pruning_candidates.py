import itertools
import math

import pytest
import torch

from invint import ConfigError
from invint.nn import Monomials
from invint.selection import catalog_size, initial_monomials


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("factors", [1, 2, 3, 4])
@pytest.mark.parametrize("max_distance", [1, 3, 5])
def test_a_catalog_has_every_combination_of_distances(factors: int, max_distance: int) -> None:
    wanted = {
        tuple(sorted(distances))
        for distances in itertools.product(range(1, max_distance + 1), repeat=factors - 1)
    }
    size = catalog_size(max_distance, factors)
    assert size == len(wanted)
    drawn = initial_monomials(
        "catalog", size + 4, max_distance=max_distance, factors=factors, generator=seeded(0)
    )
    assert len(drawn) == size + 4
    assert {tuple(sorted(row[1:])) for row in drawn.distances} == wanted
    assert all(row[0] == 0 for row in drawn.distances)


def test_the_papers_fifty_hold_three_factors_and_nine_distances() -> None:
    assert catalog_size(9) == 45


@pytest.mark.parametrize("kind", ["random", "catalog"])
def test_the_generator_alone_decides(kind: str) -> None:
    first, again, other = (
        initial_monomials(kind, 20, max_distance=4, generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert first == again != other
    assert initial_monomials("random", 20, max_distance=4, generator=seeded(1)) == (
        Monomials.random(20, max_distance=4, generator=seeded(1))
    )


def test_exponents_are_uniform_between_0_and_1() -> None:
    drawn = initial_monomials("catalog", 400, max_distance=4, generator=seeded(0))
    exponents = torch.tensor(drawn.exponents)
    assert 0 <= exponents.min() < 0.02
    assert 0.98 < exponents.max() <= 1
    assert abs(exponents.mean() - 0.5) < 0.03
    assert abs(exponents.std() - math.sqrt(1 / 12)) < 0.02


def test_exponents_obey_the_order_of_the_group() -> None:
    drawn = initial_monomials("catalog", 30, max_distance=4, max_power=1, generator=seeded(0))
    assert max(map(sum, drawn.exponents)) <= 1 + 1e-9


def test_a_catalog_that_does_not_fit_says_how_many_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"3 factors with distances up to 9 needs 45 .* got 44;"):
        initial_monomials("catalog", 44, max_distance=9)


def test_unknown_sets_and_sizes_are_refused() -> None:
    with pytest.raises(ConfigError, match="no initial set 'all'; there are random, catalog"):
        initial_monomials("all", 5, max_distance=3)
    with pytest.raises(ConfigError, match="must be at least 1, got 0 and 3"):
        catalog_size(0)
