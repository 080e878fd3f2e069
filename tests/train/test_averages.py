import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from invint import create_model
from invint.nn import GroupBatchNorm
from invint.train.averages import WeightAverage, with_statistics


def cpu_precision() -> torch.autocast:
    return torch.autocast("cpu", enabled=False)


def test_the_average_is_the_sum_written_out() -> None:
    network = nn.Linear(3, 2)
    values = [torch.randn(2, 3) for _ in range(40)]
    average = WeightAverage(network, 0.8)
    expected = network.weight.detach().clone()
    for step, value in enumerate(values, start=1):
        with torch.no_grad():
            network.weight.copy_(value)
        average.update(network, step)
        decay = min(0.8, step / (step + 9))
        expected = decay * expected + (1 - decay) * value
    torch.testing.assert_close(average.network.get_parameter("weight"), expected)


def test_the_average_starts_as_a_copy_and_never_learns_by_itself() -> None:
    network = create_model("sfcnn-small", group="C4", head="monomials")
    average = WeightAverage(network, 0.99)
    for mine, other in zip(average.network.parameters(), network.parameters(), strict=True):
        assert torch.equal(mine, other)
        assert mine.data_ptr() != other.data_ptr()
        assert not mine.requires_grad
    assert all(each.requires_grad for each in network.parameters())


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    return [(3 * torch.randn(8, 1, 20, 20) + 1, torch.zeros(8).long()) for _ in range(count)]


def test_statistics_are_the_means_over_the_batches() -> None:
    norm = nn.BatchNorm2d(1)
    images = batches(5)
    found = with_statistics(nn.Sequential(norm), images, cpu_precision).get_submodule("0")
    means = torch.stack([each.mean() for each, _ in images])
    variances = torch.stack([each.var() for each, _ in images])  # unbiased, as PyTorch keeps them
    torch.testing.assert_close(found.running_mean, means.mean()[None])
    torch.testing.assert_close(found.running_var, variances.mean()[None])
    assert torch.equal(norm.running_mean, torch.zeros(1))  # type: ignore[arg-type]


def test_dropout_is_off_while_statistics_are_found() -> None:
    network = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm2d(1))
    images = batches(3)
    alone = with_statistics(nn.Sequential(nn.BatchNorm2d(1)), images, cpu_precision)
    found = with_statistics(network, images, cpu_precision)
    expected, actual = alone.get_submodule("0"), found.get_submodule("1")
    assert torch.equal(actual.running_var, expected.running_var)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_network_given_is_left_alone_and_the_copy_evaluates() -> None:
    network = create_model("sfcnn-small", group="C4", norm_features=True).train()
    before = copy.deepcopy(network.state_dict())
    found = with_statistics(network, batches(2), cpu_precision)
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())
    assert network.training
    assert not any(module.training for module in found.modules())
    norms = [each for each in found.modules() if isinstance(each, GroupBatchNorm | nn.BatchNorm1d)]
    assert {norm.momentum for norm in norms} == {0.1}
    assert any(not torch.equal(before[name], each) for name, each in found.state_dict().items())


def test_statistics_found_twice_are_the_same() -> None:
    network, images = create_model("sfcnn-small", group="C4"), batches(2)
    first, second = (with_statistics(network, images, nullcontext) for _ in range(2))  # type: ignore[arg-type]
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)
