import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint import ConfigError, ShapeError
from invint.errors import RunError
from invint.models import Network
from invint.selection import best, connectivity, magnitude
from invint.selection.pruning import first_dense

MakeNetwork = Callable[..., Network]
Batches = list[tuple[Tensor, Tensor]]


def settle(network: Network, batches: Batches) -> None:
    """Let batch normalisation see some batches."""
    network.train()
    for images, _ in batches * 5:
        network(images)


def mask_columns(network: Network, mask: Tensor) -> None:
    """Make the first dense layer multiply the columns of monomial j by `mask[j]`."""
    _, dense = first_dense(network)
    weight = nn.Parameter(dense.weight.detach().clone())
    del dense.weight
    dense.register_parameter("whole", weight)

    def multiply(layer: nn.Module, _: object) -> None:
        layer.weight = weight * mask.repeat(dense.in_features // len(mask))

    dense.register_forward_pre_hook(multiply)


def loss_over_all(network: Network, batches: Batches) -> Tensor:
    total = sum(len(labels) for _, labels in batches)
    losses = [len(y) * cross_entropy(network(x), y) for x, y in batches]
    return torch.stack(losses).sum() / total


def test_magnitude_is_the_mean_size_of_weights_of_a_monomial() -> None:
    weight = torch.randn(5, 12)  # four channels, three monomials
    expected = torch.zeros(3)
    for monomial in range(3):
        for channel in range(4):
            for neuron in range(5):
                expected[monomial] += weight[neuron, channel * 3 + monomial].abs() / 20
    torch.testing.assert_close(magnitude(weight, 3), expected)


@pytest.mark.parametrize("statistics", ["running", "batch"])
@pytest.mark.parametrize("norm_before", [False, True])
def test_connectivity_is_the_derivative_by_a_mask(
    make_network: MakeNetwork, batches: Batches, statistics: str, norm_before: bool
) -> None:
    network = make_network(norm_before=norm_before)
    settle(network, batches)
    signed = connectivity(network, batches, cross_entropy, signed=True, statistics=statistics)

    copied = copy.deepcopy(network).train(statistics == "batch")
    mask = torch.ones(6, dtype=torch.float64, requires_grad=True)
    mask_columns(copied, mask)
    (derivative,) = torch.autograd.grad(loss_over_all(copied, batches), mask)
    torch.testing.assert_close(signed, derivative)

    for monomial in range(6):
        losses = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                mask[monomial] += step
                losses.append(loss_over_all(copied, batches))
                mask[monomial] -= step
        difference = (losses[0] - losses[1]) / 2e-5
        torch.testing.assert_close(signed[monomial], difference, rtol=1e-5, atol=1e-8)

    unsigned = connectivity(network, batches, cross_entropy, statistics=statistics)
    torch.testing.assert_close(unsigned, derivative.abs())


def test_with_batch_statistics_signed_scores_cancel(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network()
    settle(network, batches)
    first_dense(network)[1].weight.data *= 100  # the epsilon of batch normalisation aside
    sums = {}
    for statistics in ("batch", "running"):
        scores = connectivity(network, batches, cross_entropy, signed=True, statistics=statistics)
        sums[statistics] = scores.sum().abs() / scores.abs().sum()
    assert sums["batch"] < 1e-3
    assert sums["running"] > 1e-2


def test_a_network_that_saw_no_batch_uses_those_of_the_batch(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network()
    for ready, statistics in ((False, "batch"), (True, "running")):
        if ready:
            settle(network, batches)
        chosen = connectivity(network, batches, cross_entropy)
        given = connectivity(network, batches, cross_entropy, statistics=statistics)
        torch.testing.assert_close(chosen, given, rtol=0, atol=0)


@pytest.mark.parametrize("statistics", ["running", "batch"])
def test_connectivity_leaves_the_network_as_it_was(
    make_network: MakeNetwork, batches: Batches, statistics: str
) -> None:
    network = make_network(dropout=0.5)
    settle(network, batches)
    network.features.eval()
    loss_over_all(network, batches).backward()  # type: ignore[no-untyped-call]
    first_dense(network)[1].weight.requires_grad_(False)
    before = copy.deepcopy(network)
    gradients = [each.grad.clone() for each in network.parameters() if each.grad is not None]
    random = torch.get_rng_state()
    connectivity(network, batches, cross_entropy, statistics=statistics)
    assert torch.equal(torch.get_rng_state(), random)
    assert [each.training for each in network.modules()] == [
        each.training for each in before.modules()
    ]
    torch.testing.assert_close(network.state_dict(), before.state_dict(), rtol=0, atol=0)
    assert [each.requires_grad for each in network.parameters()] == [
        each.requires_grad for each in before.parameters()
    ]
    for now, then in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(now.grad, then, rtol=0, atol=0)


def test_a_network_is_put_back_even_when_the_loss_fails(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network()
    network.train()
    with pytest.raises(ValueError, match="no loss"):
        connectivity(network, batches, fails)
    assert network.training
    assert network.classifier[1].num_batches_tracked == 0  # type: ignore[index]


def fails(logits: Tensor, labels: Tensor) -> Tensor:
    raise ValueError(f"no loss of {logits.shape} and {labels.shape}")


def test_the_best_keep_their_order_and_of_equals_the_first_stay() -> None:
    assert best(torch.tensor([0.1, 0.9, 0.5, 0.9, 0.5]), 3) == [1, 2, 3]


def test_wrong_calls_are_explained(make_network: MakeNetwork, batches: Batches) -> None:
    network = make_network()
    with pytest.raises(ShapeError, match=r"magnitude: expected weights .* · 5\), got \(4, 12\)"):
        magnitude(torch.zeros(4, 12), 5)
    with pytest.raises(ConfigError, match="connectivity: there is no batch"):
        connectivity(network, [], cross_entropy)
    with pytest.raises(ConfigError, match="no statistics 'own'; there are running, batch"):
        connectivity(network, batches, cross_entropy, statistics="own")
    with pytest.raises(ConfigError, match="cannot keep 3 of 2 monomials"):
        best(torch.zeros(2), 3)
    with pytest.raises(RunError, match="a score is NaN"):
        best(torch.tensor([1.0, torch.nan]), 1)
