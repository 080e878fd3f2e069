"""Taking monomials out of a network, with everything that belongs to them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.optim import Optimizer

from invint.errors import ConfigError
from invint.nn.monomials import MonomialIntegration

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
