"""The monomials that a selection starts from."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from einops import rearrange, reduce
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from invint.errors import ConfigError, RunError, ShapeError
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
    max_power: float = math.inf,
    generator: torch.Generator | None = None,
) -> Monomials:
    """Draw the candidates of a selection.

    Args:
        kind: `random`; or `catalog`, in which every combination of distances occurs, in
            lexicographic order, and the places that remain are filled at random.
        count: Number of monomials.
        max_distance: Largest distance.
        factors: Factors of each monomial.
        max_power: Scale exponents down where their sum is larger.
        generator: Source of random numbers; by default torch's own.
    """
    check_candidates(kind, count, max_distance=max_distance, factors=factors)
    drawn = Monomials.random(
        count, max_distance=max_distance, factors=factors, max_power=max_power, generator=generator
    )
    if kind == "random":
        return drawn
    combinations = itertools.combinations_with_replacement(range(1, max_distance + 1), factors - 1)
    catalog = tuple((0.0, *map(float, distances)) for distances in combinations)
    return Monomials(catalog + drawn.distances[len(catalog) :], drawn.angles, drawn.exponents)


def check_candidates(kind: str, count: int, *, max_distance: int, factors: int = 3) -> None:
    """Raise `ConfigError` if there is no such set, or if it does not fit `count` monomials."""
    if kind not in INITIAL:
        raise ConfigError(f"no initial set {kind!r}; there are {', '.join(INITIAL)}")
    if kind == "catalog" and catalog_size(max_distance, factors) > count:
        raise ConfigError(
            f"a catalog of {factors} factors with distances up to {max_distance} needs "
            f"{catalog_size(max_distance, factors)} monomials, got {count}; start with more, or "
            "with random ones"
        )


METHODS = ("none", "magnitude", "connectivity", "lse")
PRUNING = ("magnitude", "connectivity")
Steps = Sequence[tuple[float, int]]


def check_plan(  # noqa: PLR0913
    *,
    method: str,
    head: str | None,
    initial: str = "random",
    start: int = 5,
    steps: Steps = (),
    epochs: float = math.inf,
    max_distance: int | None = None,
    factors: int = 3,
    pretrain: float = 0.0,
    candidates: int = 1000,
    patience: int = 100,
    ridge: float = 1.0,
) -> None:
    """Raise `ConfigError` on the first number that does not fit the others.

    Args:
        method: `none`, `magnitude`, `connectivity` or `lse`.
        head: Name of the network's head.
        initial: `random` or `catalog`.
        start: Monomials before selection.
        steps: Pairs (epoch, monomials kept from then on).
        epochs: Epochs of the whole run.
        max_distance: Largest distance; only a catalog depends on it, and it is not checked without.
        factors: Factors of each monomial.
        pretrain: Epochs without integration before `lse` selects.
        candidates: Exchanges `lse` tries at most.
        patience: Rejected exchanges in a row after which `lse` stops.
        ridge: Strength of the ridge penalty of `lse`.
    """
    _check_known(method, initial)
    if start < 1:
        raise ConfigError(f"selection: start must be at least 1, got {start}")
    if method != "none" and head != "monomials":
        raise ConfigError(f"selection {method!r} needs the head 'monomials', got {head!r}")
    if head == "monomials" and max_distance is not None:
        check_candidates(initial, start, max_distance=max_distance, factors=factors)
    if method in PRUNING:
        check_steps(start, steps, epochs)
    elif steps:
        raise ConfigError(
            f"selection {method!r} keeps the {start} monomials it starts with; leave steps out, "
            f"got {steps}"
        )
    if method == "lse":
        _check_exchange(pretrain, candidates, patience, ridge)
    elif pretrain:
        raise ConfigError(
            f"selection {method!r} needs no pre-training; leave pretrain out, got {pretrain}"
        )


def check_steps(start: int, steps: Steps, epochs: float) -> None:
    """Raise `ConfigError` unless a schedule descends from `start` and fits the epochs.

    Args:
        start: Monomials before selection.
        steps: Pairs (epoch, monomials kept from then on).
        epochs: Epochs of the whole run.
    """
    if not steps:
        raise ConfigError("selection: there is no step; give one such as (10, 5)")
    times, counts = zip(*steps, strict=True)
    if counts[-1] < 1:
        raise ConfigError(f"selection: at least 1 monomial must be kept, got {counts[-1]}")
    if counts[-1] >= start:
        raise ConfigError(
            f"selection: {counts[-1]} monomials cannot be chosen out of {start}; start with more"
        )
    if any(after >= before for before, after in pairwise((start, *counts))):
        path = " → ".join(map(str, (start, *counts)))
        raise ConfigError(f"selection: the number of monomials must fall at each step, got {path}")
    if any(after <= before for before, after in pairwise(times)):
        path = ", ".join(f"{epoch:g}" for epoch in times)
        raise ConfigError(f"selection: steps must follow each other in time, got epochs {path}")
    if times[0] < 0 or times[-1] >= epochs:
        outside = times[0] if times[0] < 0 else times[-1]
        raise ConfigError(
            f"selection: a step at epoch {outside:g} does not fit a run of {epochs:g} epochs; "
            f"use 0 to less than {epochs:g}"
        )


def _check_known(method: str, initial: str) -> None:
    if method not in METHODS:
        raise ConfigError(f"no selection {method!r}; there are {', '.join(METHODS)}")
    if initial not in INITIAL:
        raise ConfigError(f"no initial set {initial!r}; there are {', '.join(INITIAL)}")


def _check_exchange(pretrain: float, candidates: int, patience: int, ridge: float) -> None:
    if pretrain < 0:
        raise ConfigError(f"selection 'lse': pretrain must not be negative, got {pretrain}")
    if candidates < 1 or patience < 1:
        raise ConfigError(
            "selection 'lse': candidates and patience must be at least 1, "
            f"got {candidates} and {patience}"
        )
    if not 0 < ridge < math.inf:
        raise ConfigError(f"selection 'lse': ridge must be positive, got {ridge}")


# What may stand between the monomials and the first dense layer: each feature by itself.
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
    """Remove all monomials but some, in place; the network is smaller, and goes on as masked.

    The survivors keep their exponents, their columns of the first dense layer, their entries of
    batch normalisation before it, and what the optimizer remembers about all of these. Parameters
    that lose entries are new objects, at the places of the old ones in the optimizer.

    Args:
        network: Has a `head` with monomials and a `classifier`.
        optimizer: Holds parameters of the network; none, if there is none yet.
        keep: Numbers of the monomials that stay, in the order they will have.
    """
    parent, name, head = find_monomials(network)
    norms, dense = first_dense(network)
    columns = _columns(head, keep)
    smaller = head.keep(keep)
    rows = torch.tensor(list(keep), device=columns.device)
    changes = [_change(head.exponents, 0, rows), _change(dense.weight, 1, columns)]
    for norm in norms:
        changes += [_change(each, 0, columns) for each in norm.parameters(recurse=False)]
    states = _states(optimizer, changes)  # nothing is changed before this can be done

    smaller.exponents = changes[0][1]
    setattr(parent, name, smaller)
    dense.weight, dense.in_features = changes[1][1], len(columns)
    for norm in norms:
        _shrink(norm, columns, changes)
    _replace(optimizer, changes, states)


@contextmanager
def masked(network: nn.Module, keep: Sequence[int]) -> Iterator[None]:
    """Set the columns of all other monomials to zero for a while: what pruning agrees with.

    Args:
        network: Has a `head` with monomials and a `classifier`.
        keep: Numbers of the monomials that stay.
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
    """Return the numbers of the features that belong to some monomials, by channel."""
    if not keep or len(set(keep)) < len(keep):
        raise ConfigError(f"prune: expected numbers of monomials, each once, got {list(keep)}")
    head.monomials.keep(keep)  # refuses numbers there are not
    count, device = len(head.exponents), head.exponents.device
    numbers = torch.arange(head.channels * count, device=device)
    chosen = rearrange(numbers, "(c m) -> c m", m=count)[:, list(keep)]
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


def _states(
    optimizer: Optimizer | None, changes: Sequence[Change]
) -> dict[Tensor, dict[str, object]]:
    """Return what the optimizer remembers about the survivors, by the new parameters."""
    if optimizer is None:
        return {}
    states: dict[Tensor, dict[str, object]] = {}
    for old, new, axis, kept in changes:
        if old in optimizer.state:
            memory = optimizer.state[old]
            states[new] = {
                name: _survivors(name, value, old, axis, kept) for name, value in memory.items()
            }
    return states


def _survivors(name: str, value: object, old: Tensor, axis: int, kept: Tensor) -> object:
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    if value.shape != old.shape:
        raise ConfigError(
            f"prune: the optimizer remembers {name!r} of shape {tuple(value.shape)} about a "
            f"parameter of shape {tuple(old.shape)}, which cannot follow the monomials; use Adam "
            "or SGD"
        )
    return value.index_select(axis, kept.to(value.device))


def _replace(
    optimizer: Optimizer | None,
    changes: Sequence[Change],
    states: dict[Tensor, dict[str, object]],
) -> None:
    """Put the new parameters where the old ones are, in groups and in the state."""
    if optimizer is None:
        return
    swap: dict[Tensor, Tensor] = {old: new for old, new, *_ in changes}
    remembered: dict[Tensor, dict[str, object]] = {}
    for group in optimizer.param_groups:
        places: list[Tensor] = group["params"]
        for place, old in enumerate(places):
            places[place] = new = swap.get(old, old)
            state = states.get(new) or optimizer.state.get(old)
            if state:
                remembered[new] = state
    optimizer.state.clear()
    optimizer.state.update(remembered)


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
