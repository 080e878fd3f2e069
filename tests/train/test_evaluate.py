import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax

from invint.ops.grids import rotate
from invint.train.evaluate import (
    Bin,
    calibration_bins,
    calibration_error,
    logits_of,
    scores_of,
    temperature_of,
)


def test_scores_count_wrong_answers_in_all_and_class_by_class() -> None:
    logits = torch.tensor([[3.0, 0, 0, 0], [0, 3, 0, 0], [3, 0, 0, 0], [0, 0, 3, 0], [0, 3, 0, 0]])
    labels = torch.tensor([0, 1, 1, 2, 1])
    scores = scores_of(logits, labels)
    assert scores.error == pytest.approx(1 / 5)
    assert scores.images == (1, 3, 1, 0)
    assert scores.per_class[:3] == pytest.approx((0, 1 / 3, 0))
    assert math.isnan(scores.per_class[3])
    right, wrong = (math.log(math.exp(3) + 3) - answer for answer in (3, 0))
    assert scores.cross_entropy == pytest.approx((4 * right + wrong) / 5)


def test_evaluation_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    before = {key: value.clone() for key, value in network.state_dict().items()}
    batches = [(torch.randn(n, 1, 2, 2), torch.zeros(n, dtype=torch.int64)) for n in (3, 2)]
    logits, labels = logits_of(network, batches)
    assert network.training
    assert (logits.shape, labels.shape) == ((5, 2), (5,))
    assert not logits.requires_grad
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])


def test_evaluation_leaves_frozen_parts_in_evaluation_mode() -> None:
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    network[1].eval()  # frozen: its statistics must not change while the rest is trained
    logits_of(network, [(torch.randn(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64))])
    assert [module.training for module in network] == [True, False, True]
    assert network.training


def test_evaluation_puts_the_mode_back_when_it_fails() -> None:
    network = nn.Linear(4, 2)
    with pytest.raises(RuntimeError):
        logits_of(network, [(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64))])
    assert network.training


def test_averages_over_turned_copies_are_those_of_probabilities() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(25, 3))
    images, background = torch.randn(4, 1, 5, 5), -0.7
    logits, _ = logits_of(
        network, [(images, torch.zeros(4, dtype=torch.int64))], turns=4, background=background
    )
    total = torch.zeros(4, 3)
    for turn in range(4):
        turned = rotate(images - background, turn * math.pi / 2) + background
        torch.testing.assert_close(turned, torch.rot90(images, turn, (2, 3)))
        total += network(turned).softmax(dim=1).detach()
    torch.testing.assert_close(logits.exp(), total / 4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_short_last_batch_has_the_logits_of_its_own_images(device: str) -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.Flatten()).double().eval()
    images = torch.randn(7, 1, 3, 3, dtype=torch.float64)
    seen = []
    network.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    batches = [(some.to(device), torch.zeros(len(some)).long()) for some in torch.split(images, 3)]
    logits, _ = logits_of(network.to(device), batches)
    assert seen == ([3, 3, 1] if device == "cpu" else [3, 3, 3])
    torch.testing.assert_close(logits, network.cpu()(images).detach().float())


def test_bins_match_loops() -> None:
    logits, labels = 3 * torch.randn(200, 4), torch.randint(4, (200,))
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(5)]
    for row, label in zip(logits, labels.tolist(), strict=True):
        chances = softmax(row.double(), dim=0).tolist()
        found = chances.index(max(chances))
        bins[min(4, int(5 * max(chances)))].append((max(chances), found == label))
    for result, members in zip(calibration_bins(logits, labels, bins=5), bins, strict=True):
        assert result.count == len(members)
        if members:
            assert result.confidence == pytest.approx(sum(c for c, _ in members) / len(members))
            assert result.accuracy == pytest.approx(sum(r for _, r in members) / len(members))


def test_the_calibration_error_is_the_weighted_gap() -> None:
    bins = (Bin(3, 0.5, 1.0), Bin(0, 0.0, 0.0), Bin(1, 0.9, 0.0))
    assert calibration_error(bins) == pytest.approx((3 * 0.5 + 1 * 0.9) / 4)
    assert calibration_error((Bin(0, 0.0, 0.0),)) is None


def noisy(scale: float, count: int = 400) -> tuple[Tensor, Tensor]:
    """Return logits that are too sure by a factor, and labels drawn from the honest ones."""
    honest = 2 * torch.randn(count, 5, dtype=torch.float64)
    return scale * honest, torch.multinomial(honest.softmax(dim=1), 1)[:, 0]


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_best_of_a_fine_grid(scale: float) -> None:
    logits, labels = noisy(scale)
    grid = torch.logspace(math.log10(0.05), math.log10(20), 4001, dtype=torch.float64).tolist()
    losses = [cross_entropy(logits / each, labels).item() for each in grid]
    best = losses.index(min(losses))
    found = temperature_of(logits, labels)
    assert grid[best - 1] < found < grid[best + 1]
    assert cross_entropy(logits / found, labels).item() <= losses[best]
    assert found == pytest.approx(scale, rel=0.2)  # what the labels were drawn with


def test_temperature_scaling_lessens_the_calibration_error_and_changes_no_answer() -> None:
    logits, labels = noisy(4.0, count=2000)
    scaled = logits / temperature_of(logits, labels)
    assert torch.equal(scaled.argmax(dim=1), logits.argmax(dim=1))
    before, after = (calibration_error(calibration_bins(each, labels)) for each in (logits, scaled))
    assert before is not None
    assert after is not None
    assert after < before / 4


def test_the_temperature_is_the_same_for_logits_moved_and_in_float32() -> None:
    logits, labels = noisy(4.0)
    found = temperature_of(logits, labels)
    moved = logits + 1e3 * torch.randn(len(logits), 1, dtype=torch.float64)
    assert temperature_of(moved, labels) == pytest.approx(found, rel=1e-9)
    assert temperature_of(logits.float(), labels) == pytest.approx(found, rel=1e-5)


def test_a_temperature_without_a_minimum_stays_within_bounds() -> None:
    labels = torch.tensor([0, 1, 2])
    assert temperature_of(torch.eye(3), labels) == pytest.approx(0.05)  # each right
    assert temperature_of(-torch.eye(3), labels) == pytest.approx(20)  # each the least likely
    assert 0.05 <= temperature_of(1e4 * torch.eye(3), labels) <= 20


def test_the_temperature_is_one_where_nothing_can_be_learned() -> None:
    labels = torch.tensor([0, 1, 2])
    assert temperature_of(torch.ones(3, 3), labels) == 1
    assert temperature_of(torch.full((3, 3), torch.nan), labels) == 1
    assert temperature_of(torch.zeros(0, 3), labels[:0]) == 1
