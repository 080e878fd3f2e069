"""Small networks with monomials, and a problem of which it is known what carries the label."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from invint import Cyclic
from invint.models import Network
from invint.nn import GroupPool, LiftConv2d, MonomialIntegration, Monomials

MakeNetwork = Callable[..., Network]


def network_with_monomials(
    *, norm_before: bool = False, dropout: float = 0.0, dtype: torch.dtype = torch.float64
) -> Network:
    group = Cyclic(4)
    head = MonomialIntegration(3, 7, group, monomials=6, max_distance=3)
    dense: list[nn.Module] = [nn.BatchNorm1d(18)] if norm_before else []
    dense += [nn.Linear(18, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(dropout), nn.Linear(5, 4)]
    features = nn.Sequential(LiftConv2d(1, 3, 3, group), nn.BatchNorm3d(3), nn.ReLU())
    network = Network(features, nn.Sequential(GroupPool("max"), head), nn.Sequential(*dense))
    return network.to(dtype)


@pytest.fixture
def make_network() -> MakeNetwork:
    return network_with_monomials


@pytest.fixture
def batches() -> list[tuple[Tensor, Tensor]]:
    """Two batches, of different sizes."""
    images = torch.rand(13, 1, 7, 7, dtype=torch.float64)
    labels = torch.arange(13) % 4
    return [(images[:8], labels[:8]), (images[8:], labels[8:])]


@dataclass(frozen=True)
class Planted:
    """Maps whose label depends on a few of the candidates alone."""

    candidates: Monomials
    carriers: tuple[int, ...]
    maps: Tensor
    labels: Tensor

    def network(self) -> Network:
        head = MonomialIntegration(1, 9, Cyclic(4), monomials=self.candidates)
        count = len(self.candidates)
        dense = nn.Sequential(
            nn.BatchNorm1d(count), nn.Linear(count, 12), nn.BatchNorm1d(12), nn.ReLU()
        )
        return Network(nn.Identity(), head, nn.Sequential(dense, nn.Linear(12, 2)))

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        parts = torch.split(self.maps, 100), torch.split(self.labels, 100)
        return list(zip(*parts, strict=True))


@pytest.fixture(scope="session")
def planted() -> Planted:
    """Noise of equal brightness: products at different offsets are then nearly uncorrelated.

    The label is whether the features of three candidates add up to more than the median.
    """
    offsets = [(x, y) for x in range(1, 5) for y in range(4)]
    candidates = Monomials(
        tuple((0.0, math.hypot(x, y)) for x, y in offsets),
        tuple((0.0, math.atan2(y, x)) for x, y in offsets),
        tuple((1.0, 1.0) for _ in offsets),
    )
    carriers = (2, 7, 12)
    generator = torch.Generator().manual_seed(3)
    maps = torch.rand(1000, 1, 9, 9, generator=generator) ** 4
    maps /= maps.mean((1, 2, 3), keepdim=True)
    head = MonomialIntegration(1, 9, Cyclic(4), monomials=candidates)
    with torch.no_grad():
        features = head(maps)
    features = (features - features.mean(0)) / features.std(0)
    total = features[:, list(carriers)].sum(1)
    return Planted(candidates, carriers, maps, (total > total.median()).long())
