"""The heads by name: from the last feature map to features that stay as the image turns."""

import inspect
from collections.abc import Callable
from typing import Any

from invint.errors import ConfigError, did_you_mean
from invint.groups import Group
from invint.nn.attention import SelfAttentionIntegration
from invint.nn.maps import Head
from invint.nn.mlp import MLPIntegration
from invint.nn.monomials import MonomialIntegration
from invint.nn.pooling import GlobalPool
from invint.nn.steerable_integration import SteerableIntegration
from invint.nn.weighted_sums import GlobalWeightedSum, LocalWeightedSum

Size = int | tuple[int, int]
COMMON = ("channels", "size", "group")  # the arguments of every head; the rest are options


def max_head(channels: int, size: Size, group: Group) -> GlobalPool:  # noqa: ARG001
    """Return the spatial maximum, the paper's "pooling"."""
    return GlobalPool(channels, "max")


def avg_head(channels: int, size: Size, group: Group) -> GlobalPool:  # noqa: ARG001
    """Return the spatial mean."""
    return GlobalPool(channels, "mean")


HEADS: dict[str, Callable[..., Head]] = {
    "max": max_head,
    "avg": avg_head,
    "monomials": MonomialIntegration,
    "global-ws": GlobalWeightedSum,
    "local-ws": LocalWeightedSum,
    "mlp": MLPIntegration,
    "attention": SelfAttentionIntegration,
    "sf-ii": SteerableIntegration,
}


def make_head(name: str, *, channels: int, size: Size, group: Group, **options: Any) -> Head:
    """Build a head by its name.

    A head has `out_features`, and `takes_group`: false if it takes the map after group pooling,
    `(b, c, h, w)`, true if before it, `(b, c, g, h, w)` (only `sf-ii`).

    Args:
        name: One of `HEADS`.
        channels: Channels of the map.
        size: Height and width of the map.
        group: The symmetries to average over.
        options: Keyword arguments of the head's class.
    """
    if name not in HEADS:
        hint = did_you_mean(name, HEADS)
        raise ConfigError(f"no head {name!r}; {hint}there are {', '.join(HEADS)}")
    if channels < 1:
        raise ConfigError(f"make_head: channels must be at least 1, got {channels}")
    build = HEADS[name]
    known = [option for option in inspect.signature(build).parameters if option not in COMMON]
    for option in options:
        if option not in known:
            raise ConfigError(
                f"head {name!r} has no option {option!r}; it has {', '.join(known) or 'none'}"
            )
    return build(channels, size, group, **options)
