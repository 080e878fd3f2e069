"""The loop, and what it needs at hand: an optimizer, a meter, a way to stop."""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.train.objective import TERMS

Batch = tuple[Tensor, Tensor]


class Meter:
    """Means of the terms of the loss, kept on the device until they are read."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(len(TERMS) + 1, dtype=torch.float64, device=device)

    def add(self, terms: Tensor, images: int) -> None:
        """Count a batch; nothing is waited for."""
        self.sums[:-1] += terms.detach() * images
        self.sums[-1] += images

    def read(self) -> dict[str, float]:
        """Return the means and start anew; waits for the device."""
        *sums, images = self.sums.tolist()
        self.sums.zero_()
        return {term: total / max(images, 1) for term, total in zip(TERMS, sums, strict=True)}


def make_optimizer(
    network: nn.Module, name: str, *, lr: float, momentum: float = 0.9, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    """Return Adam, or stochastic gradient descent with Nesterov momentum."""
    if not all(0 <= each < math.inf for each in (lr, momentum, weight_decay)):
        raise ConfigError(
            "optimizer: expected learning rate, momentum and weight decay of 0 or more, "
            f"got {lr:g}, {momentum:g} and {weight_decay:g}"
        )
    parameters = [each for each in network.parameters() if each.requires_grad]
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr, fused=parameters[0].is_cuda)
    if name == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=lr,
            momentum=momentum,
            nesterov=momentum > 0,
            weight_decay=weight_decay,
            fused=parameters[0].is_cuda,
        )
    raise ConfigError(f"no optimizer {name!r}; there are adam and sgd")


def channels_last(network: nn.Module) -> None:
    """Lay out plain convolutions as a GPU likes them; steerable ones see to it themselves."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=torch.channels_last)


def _go_on(step: int) -> bool:  # noqa: ARG001
    return False


def fit(
    objective: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    batches: Callable[[range], Iterable[Batch]],
    *,
    steps: range,
    rate: Callable[[int], float],
    meter: Meter,
    accumulate: int = 1,
    after_step: Callable[[int], bool] = _go_on,
) -> int:
    """Train in place, and return the number of the next step.

    Args:
        objective: Takes images and labels to the terms of the loss, the loss first.
        optimizer: Holds the parameters.
        batches: The batches of given steps; a step always gets the same batch.
        steps: Which steps to make: `range(0, 100)`, or `range(40, 100)` to go on from 40.
        rate: The learning rate at a step.
        meter: Counts the terms.
        accumulate: Parts a batch is worked through in.
        after_step: Told the next step; true stops the loop there.
    """
    if accumulate < 1:
        raise ConfigError(f"fit: expected accumulate to be 1 or more, got {accumulate}")
    for step, (images, labels) in zip(steps, batches(steps), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad(set_to_none=True)
        for part, answers in _parts(images, labels, accumulate):
            terms = objective(part, answers)
            (terms[0] * (len(part) / len(images))).backward()  # type: ignore[no-untyped-call]
            meter.add(terms, len(part))
        optimizer.step()
        if after_step(step + 1):
            return step + 1
    return steps.stop


def _parts(images: Tensor, labels: Tensor, count: int) -> Iterator[Batch]:
    if count == 1:
        return iter([(images, labels)])
    count = min(count, len(images))
    return zip(images.tensor_split(count), labels.tensor_split(count), strict=True)
