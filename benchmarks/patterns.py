"""Pairs of patterns that some heads tell apart and others do not.

The theory page draws them, `tests/docs/test_theory.py` holds what it says about them. The
patterns of a pair have the same mean and the same maximum, keep off the border of the map, and are
not turned copies of each other.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from invint import Group
from invint.nn import HEADS, LiftConv2d, make_head
from invint.ops.steerable import Rings

SIDE, CHANNELS = 15, 4
Place = tuple[int, int]


class Pair(NamedTuple):
    """Two maps `(1, c, h, w)`, what tells them apart, and how many of their channels differ."""

    first: Tensor
    second: Tensor
    difference: str
    channels: int = 1


def dots(*places: Place) -> Tensor:
    """Return a map that is 1 at some places (right, up) of the centre and 0 elsewhere."""
    x = torch.zeros(SIDE, SIDE, dtype=torch.float64)
    for right, up in places:
        x[SIDE // 2 - up, SIDE // 2 + right] = 1.0
    return x


def stack(*channels: Tensor) -> Tensor:
    """Return a map whose channels are these, over and over."""
    return torch.stack([channels[c % len(channels)] for c in range(CHANNELS)])[None]


CORNER, LINE = dots((2, 0), (0, 2)), dots((2, 0), (-2, 0))
HOOK = dots((-1, 0), (0, 0), (1, 0), (1, 1))
PAIRS = {
    "angle": Pair(stack(CORNER), stack(LINE), "same radius"),
    "radius": Pair(stack(LINE), stack(dots((1, 0), (-1, 0))), "same angle"),
    "moved": Pair(stack(LINE), stack(dots((3, 0), (-1, 0))), "by one pixel"),
    "far": Pair(stack(dots((5, 0), (0, 5))), stack(dots((5, 0), (-5, 0))), "angle again"),
    "mirror": Pair(stack(HOOK), stack(HOOK.flip(1)), "about an axis"),
    "channels": Pair(stack(HOOK, HOOK), stack(HOOK, HOOK.rot90()), "rings turned", 2),
}

Variant = tuple[str, dict[str, Any]]  # the name of a head and its options
VARIANTS: dict[str, Variant] = {
    "max": ("max", {}),
    "avg": ("avg", {}),
    "local-ws": ("local-ws", {}),
    "global-ws": ("global-ws", {}),
    "monomials, ray": ("monomials", {"max_distance": 4}),
    "monomials, own angles": ("monomials", {"max_distance": 4, "own_angles": True}),
    "mlp": ("mlp", {}),
    "attention": ("attention", {}),
}
ON_GROUP: dict[str, Variant] = {  # these take the map before group pooling
    "sf-ii": ("sf-ii", {"kernel_size": 5}),  # does not reach the border
    "joint-monomials": ("joint-monomials", {"max_distance": 4}),
    "joint-ws": ("joint-ws", {}),
    "joint-mlp": ("joint-mlp", {}),
}


def random_head(variant: Variant, group: Group, seed: int, *, size: int = SIDE) -> nn.Module:
    """Return a head for maps of `CHANNELS` channels, with random weights, in float64."""
    name, options = variant
    torch.manual_seed(seed)
    return make_head(name, channels=CHANNELS, size=size, group=group, **options).double()


def difference(head: nn.Module, pair: Pair) -> float:
    """Return how far apart the features of a pair are, relative to what the first adds to zero."""
    with torch.no_grad():
        first, second = head(pair.first), head(pair.second)
        empty = head(torch.zeros_like(pair.first))
    change: Tensor = (first - second).norm() / (first - empty).norm()
    return change.item()


def crosses() -> tuple[Tensor, Tensor]:
    """Return two images of two crosses each; in the second one of them is turned where it stands.

    Of a cross one bar is bright and the other dark: turned by a quarter, it is its own negative.
    """
    cross = dots((1, 0), (-1, 0)) - dots((0, 1), (0, -1))
    left, right = cross.roll(-2, 1), cross.roll(3, 1)
    return (left + right)[None, None], (left - right)[None, None]


def edges(images: Tensor, group: Group, seed: int) -> Tensor:
    """Return the responses of random edge filters, ReLU included, before group pooling.

    A half turn makes an edge filter its own negative. So the strongest response to an image and to
    its negative are the same, at another element.
    """
    torch.manual_seed(seed)
    layer = LiftConv2d(1, CHANNELS, 3, group, rings=Rings((0, 1), (0.6, 0.4))).double()
    with torch.no_grad():
        layer.weight[..., :2] = 0  # the functions that look alike from all sides
        response: Tensor = layer(images).relu()
    return response


def crossing(variant: Variant, group: Group, seed: int) -> Pair:
    """Return what a head is given of the two images with crosses."""
    maps = [edges(image, group, seed) for image in crosses()]
    if not takes_group(variant):
        maps = [x.amax(2) for x in maps]
    return Pair(maps[0], maps[1], "a cross turned where it stands")


def takes_group(variant: Variant) -> bool:
    """Say whether a head takes the map before group pooling."""
    return getattr(HEADS[variant[0]], "takes_group", False)
