"""Which monomials to start from, how good each of them is, and a network without the others.

Axes:  m monomial   c channel   o neuron of the first dense layer   cm a column of its weight
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from invint.errors import ConfigError, RunError, ShapeError
from invint.nn.maps import HeadsAtDepths
from invint.nn.modes import evaluating
from invint.nn.monomials import MonomialIntegration, Monomials

INITIAL = ("random", "catalog")


def catalog_size(max_distance: int, factors: int = 3) -> int:
    r"""Return how many combinations of distances there are.

    The first factor is at distance 0. A combination is what distances the others have, regardless
    of their order and possibly the same: swapping two factors leaves a monomial as it is, and
    exponents are drawn alike for all. These are

    $$\binom{d_{\max} + n - 2}{n - 1}$$

    for $n$ factors: 45 for three factors and distances 1 … 9, which fits the paper's 50 monomials.

    Args:
        max_distance: Largest distance.
        factors: Factors of each monomial.
    """
    if max_distance < 1 or factors < 1:
        raise ConfigError(
            "catalog_size: max_distance and factors must be at least 1, "
            f"got {max_distance} and {factors}"
        )
    return math.comb(max_distance + factors - 2, factors - 1)


def initial_monomials(
    kind: str,
    count: int,
    *,
    max_distance: int,
    factors: int = 3,
    **options: Any,
) -> Monomials:
    """Draw the candidates of a selection.

    Args:
        kind: `random`; or `catalog`, in which every combination of distances occurs, in
            lexicographic order, and the places that remain are filled at random.
        count: Number of monomials.
        max_distance: Largest distance.
        factors: Factors of each monomial.
        options: Further arguments of `Monomials.random`: `own_angles`, `exponents`, `max_power`,
            `generator`.
    """
    if kind not in INITIAL:
        raise ConfigError(f"no initial set {kind!r}; there are {', '.join(INITIAL)}")
    if kind == "catalog" and catalog_size(max_distance, factors) > count:
        raise ConfigError(
            f"a catalog of {factors} factors with distances up to {max_distance} needs "
            f"{catalog_size(max_distance, factors)} monomials, got {count}; start with more, or "
            "with random ones"
        )
    drawn = Monomials.random(count, max_distance=max_distance, factors=factors, **options)
    if kind == "random":
        return drawn
    combinations = itertools.combinations_with_replacement(range(1, max_distance + 1), factors - 1)
    catalog = tuple((0.0, *map(float, distances)) for distances in combinations)
    return Monomials(catalog + drawn.distances[len(catalog) :], drawn.angles, drawn.exponents)


# Between the monomials and the first dense layer, only what treats each feature by itself leaves it
# clear which columns of the dense layer belong to a monomial.
ALONE = (nn.Dropout, nn.Identity, nn.ReLU, nn.Flatten)
Change = tuple[Tensor, nn.Parameter, int, Tensor]  # old, new, axis, what is kept along it


def find_monomials(network: nn.Module) -> tuple[nn.Module, str, MonomialIntegration]:
    """Return the head with monomials, the module that holds it, and under which name.

    Args:
        network: Its `head` is the monomials, or a sequence that has them in it.
    """
    head = getattr(network, "head", None)
    if isinstance(head, MonomialIntegration):
        return network, "head", head
    if isinstance(head, HeadsAtDepths):
        raise ConfigError(
            f"selection: the network has heads at {len(head.heads)} depths; build it with depths=1"
        )
    if isinstance(head, nn.Sequential):
        for name, module in head.named_children():
            if isinstance(module, MonomialIntegration):
                return head, name, module
        head = head[-1] if len(head) else head
    raise ConfigError(
        f"selection: the head is {type(head).__name__} and has no monomials to choose from; "
        "build the network with head='monomials'"
    )


def first_dense(network: nn.Module) -> tuple[list[nn.BatchNorm1d], nn.Linear]:
    """Return the first dense layer after the monomials, and the normalisation before it."""
    norms: list[nn.BatchNorm1d] = []
    for module in _after_monomials(network):
        if isinstance(module, nn.Linear):
            return norms, module
        if isinstance(module, nn.BatchNorm1d):
            norms.append(module)
        elif not isinstance(module, ALONE):
            break
    raise ConfigError(
        "selection: expected a Linear after the monomials, with nothing but BatchNorm1d, ReLU or "
        f"Dropout between, got {type(module).__name__}"
    )


def prune(network: nn.Module, optimizer: Optimizer | None, keep: Sequence[int]) -> None:
    """Remove all monomials but some, in place; the smaller network computes what `masked` does.

    The survivors keep their exponents, their columns of the first dense layer, their entries of
    batch normalisation before it, and their state in the optimizer. Parameters that lose entries
    are new objects, in the place of the old ones in the optimizer.

    Args:
        network: Has a `head` with monomials and a `classifier`.
        optimizer: Holds parameters of the network; `None` if there is none yet.
        keep: Indices of the monomials that stay, in the order they will have.
    """
    parent, name, head = find_monomials(network)
    norms, dense = first_dense(network)
    columns = _columns(head, keep)
    smaller = head.keep(keep)
    rows = torch.tensor(list(keep), device=columns.device)
    changes = [_change(head.exponents, 0, rows), _change(dense.weight, 1, columns)]
    for norm in norms:
        changes += [_change(each, 0, columns) for each in norm.parameters(recurse=False)]
    # Nothing is changed before this can be done.
    states = {} if optimizer is None else _states(optimizer, changes)

    smaller.exponents = changes[0][1]
    setattr(parent, name, smaller)
    dense.weight, dense.in_features = changes[1][1], len(columns)
    for norm in norms:
        _shrink(norm, columns, changes)
    if optimizer is not None:
        _replace(optimizer, changes, states)


@contextmanager
def masked(network: nn.Module, keep: Sequence[int]) -> Iterator[None]:
    """Set the columns of all other monomials to zero within a `with` block, as if pruned.

    Args:
        network: Has a `head` with monomials and a `classifier`.
        keep: Indices of the monomials that stay.
    """
    _, _, head = find_monomials(network)
    weight = first_dense(network)[1].weight
    dropped = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
    dropped[_columns(head, keep)] = False
    values = weight.detach()[:, dropped].clone()
    with torch.no_grad():
        weight[:, dropped] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            weight[:, dropped] = values


def _after_monomials(network: nn.Module) -> list[nn.Module]:
    """Return the modules after the monomials, in the order they are applied."""
    parent, name, _ = find_monomials(network)
    modules: list[nn.Module] = []
    if isinstance(parent, nn.Sequential):
        names = [each for each, _ in parent.named_children()]
        modules += list(parent.children())[names.index(name) + 1 :]
    modules.append(network.get_submodule("classifier"))
    return [each for module in modules for each in _flat(module)]


def _flat(module: nn.Module) -> list[nn.Module]:
    if not isinstance(module, nn.Sequential):
        return [module]
    return [each for child in module for each in _flat(child)]


def _columns(head: MonomialIntegration, keep: Sequence[int]) -> Tensor:
    """Return the indices of the features that belong to some monomials, by channel."""
    if not keep or len(set(keep)) < len(keep):
        raise ConfigError(f"prune: expected indices of monomials, each once, got {list(keep)}")
    head.monomials.keep(keep)  # refuses indices out of range
    count, device = len(head.exponents), head.exponents.device
    indices = torch.arange(head.channels * count, device=device)
    chosen = rearrange(indices, "(c m) -> c m", m=count)[:, list(keep)]
    return rearrange(chosen, "c m -> (c m)")


def _change(old: Tensor, axis: int, kept: Tensor) -> Change:
    new = nn.Parameter(old.detach().index_select(axis, kept), requires_grad=old.requires_grad)
    if old.grad is not None:
        new.grad = old.grad.index_select(axis, kept)
    return old, new, axis, kept


def _shrink(norm: nn.BatchNorm1d, columns: Tensor, changes: Sequence[Change]) -> None:
    for name, parameter in list(norm.named_parameters(recurse=False)):
        setattr(norm, name, next(new for old, new, *_ in changes if old is parameter))
    for name, buffer in list(norm.named_buffers(recurse=False)):
        if buffer.ndim:
            setattr(norm, name, buffer[columns])
    norm.num_features = len(columns)


def _states(optimizer: Optimizer, changes: Sequence[Change]) -> dict[Tensor, dict[str, object]]:
    """Return the state of the optimizer about the survivors, by the new parameters."""
    states: dict[Tensor, dict[str, object]] = {}
    for old, new, axis, kept in changes:
        for name, value in optimizer.state.get(old, {}).items():
            survivors = value
            if isinstance(value, Tensor) and value.ndim:  # Adam counts its steps in a scalar
                if value.shape != old.shape:
                    raise ConfigError(
                        f"prune: the optimizer has {name!r} of shape {tuple(value.shape)} for a "
                        f"parameter of shape {tuple(old.shape)}, which cannot follow the "
                        "monomials; use Adam or SGD"
                    )
                survivors = value.index_select(axis, kept.to(value.device))
            states.setdefault(new, {})[name] = survivors
    return states


def _replace(
    optimizer: Optimizer,
    changes: Sequence[Change],
    states: dict[Tensor, dict[str, object]],
) -> None:
    """Put the new parameters where the old ones are, in groups and in the state."""
    new_of: dict[Tensor, Tensor] = {old: new for old, new, *_ in changes}
    every: dict[Tensor, dict[str, object]] = {}
    for group in optimizer.param_groups:
        parameters: list[Tensor] = group["params"]
        for place, old in enumerate(parameters):
            parameters[place] = new = new_of.get(old, old)
            if state := states.get(new) or optimizer.state.get(old):
                every[new] = state
    optimizer.state.clear()  # the old parameters are its keys, and would be kept alive
    optimizer.state.update(every)


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

    It is averaged over all samples before the absolute value is taken. Dropout is off. Nothing of
    the network changes: modes, gradients, running statistics, random numbers.

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
    with _scoring(network, statistics), _differentiable(dense.weight):
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
    """Return the indices of the highest scores, in ascending order; of ties the first stay."""
    if not 1 <= count <= len(scores):
        raise ConfigError(f"best: cannot keep {count} of {len(scores)} monomials")
    if scores.isnan().any():
        raise RunError("best: a score is NaN; the training has diverged")
    order = torch.argsort(scores.detach().cpu(), descending=True, stable=True)
    return sorted(order[:count].tolist())


def _gradient(
    network: nn.Module, weight: Tensor, images: Tensor, labels: Tensor, loss: Loss
) -> Tensor:
    """Return the gradient of the loss by the weight."""
    # Its gradient needs no graph of the layers before it, which are nearly all of the work.
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
def _scoring(network: nn.Module, statistics: str | None) -> Iterator[None]:
    """Evaluation mode but for normalisation, which is as asked; running statistics are put back."""
    norms = [module for module in network.modules() if hasattr(module, "num_batches_tracked")]
    statistics = _chosen(statistics, norms)
    buffers = [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
    kept = [buffer.clone() for buffer in buffers]
    with evaluating(network):
        for norm in norms:
            norm.train(statistics == "batch")
        try:
            yield
        finally:
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
