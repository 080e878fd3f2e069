import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from invint import ConfigError, Cyclic, ShapeError, create_model
from invint.errors import RunError
from invint.nn import MonomialIntegration, Monomials
from invint.selection import exchange, features_of_maps, maps_of
from invint.selection.least_squares import Fit, centred_classes, fitted, standardised

RIDGE = 0.7


def objective_from_scratch(features: Tensor, labels: Tensor) -> float:
    """Solve the ridge problem with an intercept that is not penalised, as it is written."""
    columns = rearrange(features.double(), "n c m -> n (m c)")
    columns = (columns - columns.mean(0)) / columns.std(0, correction=0)
    columns = torch.cat([columns, torch.ones(len(columns), 1, dtype=torch.float64)], dim=1)
    targets = torch.nn.functional.one_hot(labels).double()
    penalty = RIDGE * torch.eye(columns.shape[1], dtype=torch.float64)
    penalty[-1, -1] = 0
    weights = torch.linalg.solve(columns.T @ columns + penalty, columns.T @ targets)
    error = (targets - columns @ weights).square().sum()
    value: float = (error + (penalty @ weights.square()).sum()).item()
    return value


def naive_exchange(
    features_of: Callable[[Monomials], Tensor],
    labels: Tensor,
    start: Monomials,
    draw: Callable[[], Monomials],
    *,
    patience: int,
    candidates: int,
) -> tuple[Monomials, list[bool], list[float]]:
    """Solve from scratch for every removal and every candidate."""
    features_of = one_by_one(features_of)
    chosen, accepted = start, list[bool]()
    objectives = [objective_from_scratch(features_of(start), labels)]
    rejected = 0
    while len(accepted) < candidates and rejected < patience:
        without = []
        for gone in range(len(chosen)):
            rest = [number for number in range(len(chosen)) if number != gone]
            without.append(objective_from_scratch(features_of(chosen.keep(rest)), labels))
        place = without.index(min(without))
        new = draw()
        rows = [
            tuple(new_table[0] if number == place else row for number, row in enumerate(table))
            for table, new_table in zip(vars(chosen).values(), vars(new).values(), strict=True)
        ]
        tried = Monomials(*rows)
        objective = objective_from_scratch(features_of(tried), labels)
        better = objective < objectives[-1]
        accepted.append(better)
        rejected = 0 if better else rejected + 1
        chosen = tried if better else chosen
        objectives.append(objective if better else objectives[-1])
    return chosen, accepted, objectives


def one_by_one(features_of: Callable[[Monomials], Tensor]) -> Callable[[Monomials], Tensor]:
    """Compute the features of each monomial once."""
    known = functools.cache(features_of)

    def features(monomials: Monomials) -> Tensor:
        numbers = range(len(monomials))
        return torch.cat([known(monomials.keep([number])) for number in numbers], dim=2)

    return features


def small_case(
    seed: int,
) -> tuple[Callable[[Monomials], Tensor], Tensor, Monomials, Callable[[], Monomials]]:
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(80, 3, 7, 7, generator=generator, dtype=torch.float64)
    labels = torch.arange(80) % 3
    maps[labels == 1, :, :, 1:] += maps[labels == 1, :, :, :-1]
    head = MonomialIntegration(3, 7, Cyclic(4), monomials=4, max_distance=3).double()

    def draw() -> Monomials:
        return Monomials.random(1, max_distance=3, generator=generator)

    start = Monomials.random(4, max_distance=3, generator=generator)
    return features_of_maps(head, maps, batch_size=32), labels, start, draw


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_choices_are_those_of_solving_from_scratch(seed: int) -> None:
    limits: Any = {"patience": 12, "candidates": 40}
    features_of, labels, start, draw = small_case(seed)
    found = exchange(features_of, labels, start, draw, ridge=RIDGE, **limits)
    features_of, labels, start, draw = small_case(seed)
    chosen, accepted, objectives = naive_exchange(features_of, labels, start, draw, **limits)
    assert found.monomials == chosen
    assert list(found.accepted) == accepted
    assert 3 <= sum(accepted) < len(accepted)
    torch.testing.assert_close(list(found.objectives), objectives, rtol=1e-9, atol=0)


def test_costs_are_what_removing_raises_the_objective_by() -> None:
    features_of, labels, start, _ = small_case(0)
    features = features_of(start)
    columns = standardised(rearrange(features, "n c m -> n (m c)"))
    costs = fitted(columns, centred_classes(labels), RIDGE).costs(3)
    whole = objective_from_scratch(features, labels)
    for gone, cost in enumerate(costs):
        rest = [number for number in range(4) if number != gone]
        raised = objective_from_scratch(features[:, :, rest], labels) - whole
        assert cost == pytest.approx(raised, rel=1e-8)
    found = exchange(features_of, labels, start, lambda: start.keep([0]), ridge=RIDGE, candidates=0)
    assert found.monomials == start
    assert found.costs == pytest.approx(costs)
    assert found.objectives == pytest.approx((whole,), rel=1e-12)


def test_stops_after_rejections_in_a_row() -> None:
    features_of, labels, start, _ = small_case(0)
    same = exchange(
        features_of,
        labels,
        start,
        lambda: start.keep([0]),  # never better: it is there already
        patience=7,
    )
    assert same.accepted[-7:] == (False,) * 7
    assert True not in same.accepted or same.accepted.index(True) < 7
    assert len(same.objectives) == len(same.accepted) + 1


def test_many_updates_stay_accurate_on_columns_that_resemble_each_other() -> None:
    """Exchange blocks two hundred times, and compare with a factorisation of what came out."""
    targets = centred_classes(torch.randint(0, 5, (300,)))
    common = torch.randn(300, 1)

    def block() -> Tensor:
        return standardised(common + 0.01 * torch.randn(300, 4))

    fit = fitted(torch.cat([block() for _ in range(6)], dim=1), targets, RIDGE)
    for number in range(200):
        rest = fit.without(number % 6, 4)
        fit = rest.extended(rest.extension(block(), targets, RIDGE))
    afresh = fitted(fit.columns, targets, RIDGE)
    torch.testing.assert_close(fit.factor @ fit.factor.T, afresh.factor @ afresh.factor.T)
    torch.testing.assert_close(fit.costs(4), afresh.costs(4), rtol=1e-7, atol=0)
    assert objective(fit) == pytest.approx(objective(afresh), rel=1e-9)


def objective(fit: Fit) -> float:
    return fit.solved.square().sum().item()


def test_constant_features_count_for_nothing() -> None:
    features = torch.randn(50, 2, 3)
    features[:, 0, 1] = 1000.1
    columns = standardised(rearrange(features, "n c m -> n (m c)"))
    assert (columns[:, 2] == 0).all()
    others = columns[:, [0, 1, 3, 4, 5]]
    torch.testing.assert_close(others.mean(0), torch.zeros(5).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(others.std(0, correction=0), torch.ones(5).double())


def test_maps_are_those_before_the_head_and_the_network_stays_as_it_was() -> None:
    network = create_model("sfcnn-small", head="max").train()
    images, labels = torch.rand(5, 1, 20, 20), torch.arange(5)
    maps, numbers = maps_of(network, [(images[:3], labels[:3]), (images[3:], labels[3:])])
    assert network.training
    with torch.no_grad():
        expected = network.eval().forward_features(images).amax(2)
    torch.testing.assert_close(maps, expected)
    assert torch.equal(numbers, labels)


def test_wrong_calls_are_explained() -> None:
    features_of, labels, start, draw = small_case(0)
    with pytest.raises(ConfigError, match=r"ridge and patience must be positive .* got 0.0, 100"):
        exchange(features_of, labels, start, draw, ridge=0.0)
    with pytest.raises(ShapeError, match=r"exchange: expected features \(80, c, 4\), got \(80, 12"):
        exchange(lambda monomials: features_of(monomials).flatten(1), labels, start, draw)
    with pytest.raises(ConfigError, match="the ridge is too small for features that resemble"):
        exchange(features_of, labels, start.keep([0, 0]), draw, ridge=1e-300)
    with pytest.raises(RunError, match="some features are not finite; the pre-training has"):
        exchange(lambda monomials: features_of(monomials) / 0, labels, start, draw)
