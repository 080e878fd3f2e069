from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.groups import Cyclic
from invint.nn import OrbitFeatures
from invint.train.loop import TERMS, Batch, Meter, Objective, fit, make_optimizer, set_modes

COUNT = 12
C4 = Cyclic(4)


def perceptron() -> nn.Module:
    """A network without batch normalisation, for which parts of a batch add up."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3))
    return layers.double()


def batches(steps: range) -> Iterator[Batch]:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        images = torch.randn(COUNT, 1, 3, 3, generator=generator, dtype=torch.float64)
        yield images, torch.randint(3, (COUNT,), generator=generator)


def trained(*ranges: range, accumulate: int = 1, name: str = "adam") -> tuple[nn.Module, Meter]:
    network, meter = perceptron(), Meter(torch.device("cpu"))
    optimizer = make_optimizer(network, name, lr=0.01, weight_decay=5e-4)
    weights = torch.tensor([1.0, 2.0, 0.5])
    objective = Objective(network, class_weights=weights)
    for steps in ranges:
        done = fit(
            objective,
            optimizer,
            batches,
            steps=steps,
            rate=lambda step: 0.01 / (1 + step),
            meter=meter,
            accumulate=accumulate,
        )
        assert done == steps.stop
    return network, meter


@pytest.mark.parametrize("accumulate", [2, 3, 5, 12, 20])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_batch_in_parts_is_the_batch(accumulate: int, name: str) -> None:
    whole, whole_meter = trained(range(4), name=name)
    parts, parts_meter = trained(range(4), accumulate=accumulate, name=name)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # the loss itself is float32
    assert parts_meter.read() == pytest.approx(whole_meter.read(), rel=1e-5)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_going_on_is_not_stopping(name: str) -> None:
    whole, _ = trained(range(6), name=name)
    halves, _ = trained(range(3), range(3, 6), name=name)
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("nesterov", [True, False])
def test_sgd_makes_the_step_of_the_plain_networks(nesterov: bool) -> None:
    """Nesterov: v ← μv + g + λw, w ← w - η(g + λw + μv); the second step of two."""
    momentum, decay, lr = (0.9 if nesterov else 0.0), 0.01, 0.1
    network = nn.Linear(1, 1, bias=False)
    optimizer = make_optimizer(network, "sgd", lr=lr, momentum=momentum, weight_decay=decay)
    weight, velocity = network.weight.item(), 0.0
    for gradient in (0.3, -0.7):
        network.weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        full = gradient + decay * weight
        velocity = momentum * velocity + full
        weight -= lr * (full + momentum * velocity)
    assert network.weight.item() == pytest.approx(weight)


def test_the_loop_uses_the_rate_of_each_step() -> None:
    network = perceptron()
    optimizer = make_optimizer(network, "adam", lr=1.0)
    seen: list[float] = []

    def after(step: int) -> bool:
        del step
        seen.append(optimizer.param_groups[0]["lr"])
        return False

    meter = Meter(torch.device("cpu"))
    steps, objective = range(2, 5), Objective(network)
    fit(objective, optimizer, batches, steps=steps, rate=float, meter=meter, after_step=after)
    assert seen == [2.0, 3.0, 4.0]


def test_the_loop_stops_when_told() -> None:
    network, meter = perceptron(), Meter(torch.device("cpu"))
    optimizer, objective = make_optimizer(network, "adam", lr=1.0), Objective(network)
    step = fit(
        objective,
        optimizer,
        batches,
        steps=range(9),
        rate=lambda _: 0.1,
        meter=meter,
        after_step=lambda step: step == 4,
    )
    assert step == 4
    assert meter.sums[-1] == 4 * COUNT


def test_means_are_weighted_by_the_size_of_batches() -> None:
    meter = Meter(torch.device("cpu"))
    batches = [(torch.arange(5.0), 3), (torch.full((5,), 10.0), 1)]
    for terms, images in batches:
        meter.add(terms, images)
    expected = [(3 * value + 10) / 4 for value in range(5)]
    assert list(meter.read().values()) == expected
    assert meter.read() == dict.fromkeys(TERMS, 0.0)


def test_a_meter_keeps_no_graph() -> None:
    meter, weight = Meter(torch.device("cpu")), nn.Parameter(torch.ones(5))
    meter.add(weight * 2, 1)
    assert not meter.sums.requires_grad


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"name": "lion", "lr": 1.0}, "no optimizer 'lion'; there are adam, adamw and sgd"),
        ({"name": "adam", "lr": -1.0}, "of 0 or more, got -1, 0.9, 0 and 0"),
        ({"name": "sgd", "lr": 1.0, "weight_decay": -1.0}, "of 0 or more, got 1, 0.9, -1 and 0"),
    ],
)
def test_wrong_choices_of_an_optimizer_are_explained(
    choices: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_optimizer(perceptron(), **choices)  # type: ignore[arg-type]


def test_no_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match="fit: expected accumulate to be 1 or more, got 0"):
        trained(range(1), accumulate=0)


def test_labels_are_counted_as_tensors() -> None:
    """The terms are one tensor: nothing asks the device for a number inside the loop."""
    images, labels = next(batches(range(1)))
    terms = Objective(perceptron())(images, labels)
    assert isinstance(terms, Tensor)
    assert terms.shape == (len(TERMS),)


def test_long_gradients_are_scaled_down_to_the_norm_asked_for() -> None:
    network = nn.Linear(3, 1, bias=False)
    optimizer = make_optimizer(network, "sgd", lr=1.0, momentum=0.0, clip_norm=0.5)
    before = network.weight.detach().clone()
    for gradient, length in (([3.0, 0.0, 4.0], 0.5), ([0.0, 0.3, 0.0], 0.3)):
        network.weight.grad = torch.tensor([gradient])
        optimizer.step()
        moved = (before - network.weight.detach()).norm()
        torch.testing.assert_close(moved, torch.tensor(length))
        before = network.weight.detach().clone()


def test_decoupled_decay_shrinks_weights_and_adam_does_not() -> None:
    for name, expected in (("adamw", 0.95), ("adam", 1.0)):
        network = nn.Linear(2, 1, bias=False)
        before = network.weight.detach().clone()
        optimizer = make_optimizer(network, name, lr=0.1, weight_decay=0.5)
        network.weight.grad = torch.zeros(1, 2)
        optimizer.step()
        torch.testing.assert_close(network.weight.detach(), expected * before)


def test_statistics_may_stay_as_a_network_brings_them() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), OrbitFeatures(nn.ReLU(), C4))
    set_modes(network, keep_statistics=False, one_copy=False)
    assert all(each.training for each in network.modules())
    set_modes(network, keep_statistics=True, one_copy=True)
    network(torch.randn(4, 1, 6, 6))
    assert not network.state_dict()["1.running_mean"].any()
    assert network[1].weight.requires_grad
    assert network[2].training
    assert network[2].one_copy
