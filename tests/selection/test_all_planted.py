"""Only three of sixteen candidates carry the label: which selections find them."""

from collections.abc import Iterator
from typing import Protocol

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint import Cyclic
from invint.models import Network
from invint.nn import MonomialIntegration, Monomials
from invint.selection import (
    best,
    connectivity,
    exchange,
    features_of_maps,
    find_monomials,
    magnitude,
    prune,
)
from invint.selection.pruning import first_dense

pytestmark = pytest.mark.slow


class Planted(Protocol):
    candidates: Monomials
    carriers: tuple[int, ...]
    maps: Tensor
    labels: Tensor

    def network(self) -> Network: ...

    def batches(self) -> list[tuple[Tensor, Tensor]]: ...


def train(
    network: Network, optimizer: torch.optim.Optimizer, problem: Planted, epochs: int
) -> None:
    network.train()
    for _ in range(epochs):
        for maps, labels in problem.batches():
            optimizer.zero_grad()
            cross_entropy(network(maps), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def scores_of(network: Network, problem: Planted, method: str) -> Tensor:
    if method == "connectivity":
        return connectivity(network, problem.batches(), cross_entropy)
    return magnitude(first_dense(network)[1].weight, len(find_monomials(network)[2].exponents))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("method", ["magnitude", "connectivity"])
def test_iterative_pruning_finds_the_carriers(planted: Planted, method: str, seed: int) -> None:
    torch.manual_seed(seed)
    network = planted.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    numbers = list(range(len(planted.candidates)))
    for epochs, count in ((6, 8), (2, 3)):
        train(network, optimizer, planted, epochs)
        kept = best(scores_of(network, planted, method), count)
        prune(network, optimizer, kept)
        numbers = [numbers[number] for number in kept]
    assert tuple(numbers) == planted.carriers


def test_least_squares_finds_the_carriers(planted: Planted) -> None:
    head = MonomialIntegration(1, 9, Cyclic(4), monomials=planted.candidates)
    features_of = features_of_maps(head, planted.maps)
    others = [n for n in range(len(planted.candidates)) if n not in planted.carriers]
    order = torch.Generator().manual_seed(0)
    drawn = shuffled(len(planted.candidates), order)
    found = exchange(
        features_of,
        planted.labels,
        planted.candidates.keep(others[:3]),
        lambda: planted.candidates.keep([next(drawn)]),
        patience=50,
    )
    expected = planted.candidates.keep(planted.carriers)
    assert set(found.monomials.distances) == set(expected.distances)
    assert found.objectives[-1] < 0.75 * found.objectives[0]


def test_choosing_at_random_does_not_find_them(planted: Planted) -> None:
    generator = torch.Generator().manual_seed(0)
    hits = 0
    for _ in range(20):
        chosen = torch.randperm(len(planted.candidates), generator=generator)[:3]
        hits += set(chosen.tolist()) == set(planted.carriers)
    assert hits == 0


def shuffled(count: int, generator: torch.Generator) -> Iterator[int]:
    while True:
        yield from torch.randperm(count, generator=generator).tolist()
