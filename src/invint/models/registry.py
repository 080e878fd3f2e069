"""The networks by name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from invint.errors import ConfigError, did_you_mean
from invint.groups import Group, parse_group
from invint.models.cnn import cnn7, small_cnn
from invint.models.network import Network
from invint.models.sfcnn import sfcnn
from invint.models.steerable_wide_resnet import steerable_wide_resnet
from invint.models.wide_resnet import wide_resnet


@dataclass(frozen=True)
class Entry:
    """How a network is built, and what the paper's appendix says of it head by head.

    Attributes:
        build: Takes keyword arguments to a network.
        group: The paper's group; none for a plain network.
        monomials: The paper's number of monomials.
        n_fc: Width of the hidden dense layers by head; other heads have that of `max`.
    """

    build: Callable[..., Network]
    group: str | None = None
    monomials: int = 10
    n_fc: dict[str, int] = field(default_factory=dict)


ROTMNIST = {"max": 96, "monomials": 90, "global-ws": 85, "local-ws": 30, "mlp": 85}
ROTMNIST |= {"attention": 95, "sf-ii": 85}
SVHN = {"max": 32, "monomials": 85, "global-ws": 64, "local-ws": 36}
CIFAR10 = {"monomials": 30, "local-ws": 90}
STL10 = {"monomials": 10, "local-ws": 16}
steerable = steerable_wide_resnet
small = partial(
    sfcnn, widths=(8, 12, 16), kernel_sizes=(5, 5, 5), pool_after=(1, 2), image_size=(20, 20)
)

MODELS: dict[str, Entry] = {
    "cnn7": Entry(cnn7),
    "sfcnn": Entry(sfcnn, "C16", 5, ROTMNIST),
    "wrn16-4": Entry(partial(wide_resnet, depth=16, width=4)),
    "wrn16-8": Entry(partial(wide_resnet, depth=16, width=8)),
    "wrn28-10": Entry(partial(wide_resnet, depth=28, width=10)),
    "sf-wrn16-4": Entry(partial(steerable, depth=16, stem=9, widths=(14, 28, 49)), "C8", 10, SVHN),
    "sf-wrn16-8": Entry(
        partial(steerable, depth=16, stem=3, widths=(26, 52, 102), image_size=(96, 96)),
        "C8",
        10,
        STL10,
    ),
    "sf-wrn28-10": Entry(
        partial(steerable, depth=28, stem=9, widths=(32, 64, 129)), "C8", 10, CIFAR10
    ),
    "cnn-small": Entry(small_cnn),
    "sfcnn-small": Entry(small, "C8", 5, {"max": 32}),
}


def list_models() -> list[str]:
    """Return the names of all networks."""
    return list(MODELS)


def create_model(
    name: str,
    *,
    head: str | None = None,
    num_classes: int = 10,
    in_channels: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    group: Group | str | None = None,
    **options: Any,
) -> Network:
    """Build a network by its name.

    Args:
        name: One of `list_models()`.
        head: Name of the head of a steerable network; `max` by default.
        num_classes: Number of classes.
        in_channels: Channels of the images; by default those of the paper's data.
        image_size: Height and width of the images; by default those of the paper's data.
        group: The symmetries, as an object or as `"C8"`; by default the paper's.
        options: Further keyword arguments of the network: widths, dropout, `head_options`, …

    Example:
        >>> model = create_model("sfcnn-small", head="monomials", group="D4")
    """
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        raise ConfigError(f"no network {name!r}; {hint}there are {', '.join(MODELS)}")
    entry = MODELS[name]
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    given = {"in_channels": in_channels, "image_size": size, "num_classes": num_classes}
    arguments = {key: value for key, value in given.items() if value is not None} | options
    if entry.group is None:
        if head is not None or group is not None:
            raise ConfigError(f"{name} is a plain network: it takes neither a head nor a group")
    else:
        arguments = _steerable_arguments(entry, head or "max", group) | arguments
    known = inspect.signature(entry.build).parameters
    arguments = {k: v for k, v in arguments.items() if k in known or k not in given}
    for option in arguments:
        if option not in known:
            raise ConfigError(f"{name} has no option {option!r}; it has {', '.join(known)}")
    return entry.build(**arguments)


def _steerable_arguments(entry: Entry, head: str, group: Group | str | None) -> dict[str, Any]:
    chosen = entry.group if group is None else group
    arguments: dict[str, Any] = {"head": head}
    arguments["group"] = parse_group(chosen) if isinstance(chosen, str) else chosen
    n_fc = entry.n_fc.get(head, entry.n_fc.get("max"))
    if n_fc is not None:
        arguments["n_fc"] = n_fc
    if head == "monomials":
        arguments["head_options"] = {"monomials": entry.monomials}
    return arguments
