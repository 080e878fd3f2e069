"""How much a network uses each monomial: from its weights, or from the gradient of the loss.

Axes:  b batch   c channel   m monomial   o neuron of the first dense layer
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, RunError, ShapeError
from invint.selection.prune import find_monomials, first_dense

Loss = Callable[[Tensor, Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]
STATISTICS = ("running", "batch")


def magnitude(weight: Float[Tensor, "o cm"], monomials: int) -> Float[Tensor, " m"]:
    r"""Average the size of the weights that start at each monomial.

    $$s_j = \frac{1}{C_i C_o} \sum_{c, o} |w_{o, (c, j)}|$$

    Args:
        weight: Of the first dense layer; its columns are ordered by channel, then by monomial.
        monomials: Their number.
    """
    return _by_monomial(weight.detach().abs(), monomials, "mean", "magnitude")


def connectivity(
    network: nn.Module,
    batches: Batches,
    loss: Loss,
    *,
    signed: bool = False,
    statistics: str | None = None,
) -> Float[Tensor, " m"]:
    r"""Differentiate the training loss by a mask on the columns of each monomial.

    With a mask $c$ on the columns of the first dense layer, $w_{o, (k, j)} c_j$, the chain rule
    gives the derivatives for all monomials from one gradient, that of the weights:

    $$\frac{\partial L}{\partial c_j} \Big|_{c = 1}
      = \sum_{o, k} w_{o, (k, j)} \frac{\partial L}{\partial w_{o, (k, j)}}$$

    It is averaged over all samples before the absolute value is taken. Dropout is off. The network
    is left as it was: modes, gradients, running statistics, random numbers.

    Args:
        network: Has `features`, a `head` with monomials and a `classifier`.
        batches: Pairs of images and labels, together the training set.
        loss: Takes logits and labels to the mean loss of a batch.
        signed: Return the derivative with its sign, as printed in the paper. The highest are then
            those of the monomials the loss would most like to be weaker.
        statistics: Whether batch normalisation uses its `running` statistics, with which the loss
            is that of the network as it predicts and a sum over samples; or those of the `batch`,
            with which the loss does not change when all monomials are scaled together, so that
            derivatives of both signs cancel to about zero. By default `running`, unless some layer
            has seen no batch yet and has none to use.
    """
    _, _, head = find_monomials(network)
    _, dense = first_dense(network)
    count = len(head.exponents)
    total = torch.zeros(count, dtype=torch.float64, device=dense.weight.device)
    samples = 0
    with _at_rest(network, statistics), _differentiable(dense.weight):
        for images, labels in batches:
            gradient = _gradient(network, dense.weight, images, labels, loss)
            product = dense.weight.detach().double() * gradient.double()
            total += len(labels) * _by_monomial(product, count, "sum", "connectivity")
            samples += len(labels)
    if not samples:
        raise ConfigError("connectivity: there is no batch to differentiate the loss of")
    scores = total / samples
    return scores if signed else scores.abs()


def best(scores: Float[Tensor, " m"], count: int) -> list[int]:
    """Return the numbers of the highest scores, in ascending order; of equals the first stay."""
    if not 1 <= count <= len(scores):
        raise ConfigError(f"best: cannot keep {count} of {len(scores)} monomials")
    if scores.isnan().any():
        raise RunError("best: a score is not a number; the training has diverged")
    order = torch.argsort(scores.detach().cpu(), descending=True, stable=True)
    return sorted(order[:count].tolist())


def _gradient(
    network: nn.Module, weight: Tensor, images: Tensor, labels: Tensor, loss: Loss
) -> Tensor:
    """Return the gradient of the loss by the weight, which needs none of what comes before it."""
    with torch.no_grad():
        maps = network.get_submodule("features")(images)
        features = network.get_submodule("head")(maps)
    with torch.enable_grad():
        logits = network.get_submodule("classifier")(features)
        (gradient,) = torch.autograd.grad(loss(logits, labels), weight)
    return gradient


def _by_monomial(values: Tensor, monomials: int, how: str, owner: str) -> Tensor:
    if values.ndim != 2 or monomials < 1 or values.shape[1] % monomials:
        raise ShapeError(
            f"{owner}: expected weights (o, channels · {monomials}), got {tuple(values.shape)}"
        )
    return reduce(values, "o (c m) -> m", how, m=monomials)


@contextmanager
def _differentiable(weight: Tensor) -> Iterator[None]:
    """Ask for the gradient of a weight, even of a frozen one."""
    required = weight.requires_grad
    weight.requires_grad_(True)
    try:
        yield
    finally:
        weight.requires_grad_(required)


@contextmanager
def _at_rest(network: nn.Module, statistics: str | None) -> Iterator[None]:
    """Put a network into evaluation mode, its normalisation as asked, and back."""
    norms = [module for module in network.modules() if hasattr(module, "num_batches_tracked")]
    statistics = _chosen(statistics, norms)
    modes = {module: module.training for module in network.modules()}
    buffers = [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
    kept = [buffer.clone() for buffer in buffers]
    network.eval()
    for norm in norms:
        norm.train(statistics == "batch")
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for buffer, value in zip(buffers, kept, strict=True):
            buffer.copy_(value)


def _chosen(statistics: str | None, norms: Sequence[nn.Module]) -> str:
    if statistics is None:
        tracked = [norm.num_batches_tracked for norm in norms]
        fresh = any(isinstance(count, Tensor) and not count.item() for count in tracked)
        return "batch" if fresh else "running"
    if statistics not in STATISTICS:
        raise ConfigError(
            f"connectivity: no statistics {statistics!r}; there are {', '.join(STATISTICS)}"
        )
    return statistics
