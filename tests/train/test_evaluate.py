import math

import pytest
import torch
from torch import nn

from invint.ops.grids import rotate
from invint.train.evaluate import logits_of, scores_of


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
