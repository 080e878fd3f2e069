"""Networks as features, head and dense layers: plain CNNs, and the steerable CNN of the paper."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, did_you_mean
from invint.groups import Cyclic, Group
from invint.nn import (
    GlobalPool,
    GroupBatchNorm,
    GroupBispectrum,
    GroupConv2d,
    GroupPool,
    Head,
    LiftConv2d,
    SpatialPool,
    make_head,
)
from invint.nn.maps import HeadsAtDepths
from invint.ops.steerable import Rings


class Network(nn.Module):
    """A classifier of images in two halves that can be called apart.

    Args:
        features: Takes images to the last feature map, or to those of several depths.
        head: Takes what that returns to features of the image.
        classifier: Takes these to logits.

    Shape:
        `(b, c, h, w)` to `(b, classes)`.
    """

    def __init__(self, features: nn.Module, head: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features, self.head, self.classifier = features, head, classifier

    def forward_features(self, images: Float[Tensor, "b c h w"]) -> Any:
        """Return the last feature map: `(b, c, g, h, w)` of a steerable network.

        Where heads are at several depths it is a tuple of maps, the last one first.
        """
        return self.features(images)

    def forward_head(self, features: Any) -> Float[Tensor, "b classes"]:
        """Return the logits of what `forward_features` returns."""
        logits: Tensor = self.classifier(self.head(features))
        return logits

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        return self.forward_head(self.forward_features(images))


GROUP_POOLS = ("max", "mean", "bispectrum")


def make_group_pool(kind: str, channels: int, group: Group) -> nn.Module:
    """Return what takes a map off the group, by its name."""
    if kind not in GROUP_POOLS:
        hint = did_you_mean(kind, GROUP_POOLS)
        raise ConfigError(f"no group_pool {kind!r}; {hint}there are {', '.join(GROUP_POOLS)}")
    if kind == "bispectrum":
        return GroupBispectrum(channels, group)
    return GroupPool("mean" if kind == "mean" else "max")


def after_group(head: Head, name: str, group_pool: str, channels: int, group: Group) -> nn.Module:
    """Put group pooling before a head, unless it takes the map with its group axis."""
    pool = make_group_pool(group_pool, channels, group)
    if not head.takes_group:
        return nn.Sequential(pool, head)
    if group_pool != "max":
        raise ConfigError(
            f"head {name!r} takes the map on the group; leave group_pool={group_pool} out"
        )
    return head


class Stages(nn.Sequential):
    """Parts of a network in a row; returns the maps at the ends of all parts, the last one first.

    Shape:
        `(b, c, h, w)` to a tuple of `(b, c, g, h, w)`.
    """

    def forward(self, images: Float[Tensor, "b c h w"]) -> tuple[Tensor, ...]:
        """Return the maps."""
        maps: tuple[Tensor, ...] = ()
        x: Tensor = images
        for part in self:
            x = part(x)
            maps = (x, *maps)
        return maps


class Depth(NamedTuple):
    """A map that a head may be put on: the last one, or one before it is halved.

    Attributes:
        layers: Number of layers it comes from.
        channels: Its channels.
        size: Its height and width.
        activated: Whether these layers end in normalisation and ReLU.
    """

    layers: int
    channels: int
    size: tuple[int, int]
    activated: bool = True


def chosen_depths(found: Sequence[Depth], count: int, owner: str) -> Sequence[Depth]:
    """Return the last few depths."""
    if not 1 <= count <= len(found):
        raise ConfigError(
            f"{owner}: depths must be from 1 to {len(found)}, the number of sizes its maps have, "
            f"got {count}"
        )
    return found[-count:]


def cut(layers: Sequence[nn.Module], depths: Sequence[Depth]) -> nn.Module:
    """Return layers in a row, as features that end in the map of each depth."""
    ends = [0, *(depth.layers for depth in depths)]
    parts = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(ends)]
    return parts[0] if len(parts) == 1 else Stages(*parts)


def heads_at(
    depths: Sequence[Depth],
    name: str,
    group: Group,
    group_pool: str,
    options: dict[str, Any] | None,
) -> tuple[nn.Module, int]:
    """Return a head for the map of each depth, the last one first, and the number of features."""
    heads, features = [], 0
    for depth in reversed(depths):
        head = make_head(
            name, channels=depth.channels, size=depth.size, group=group, **(options or {})
        )
        features += head.out_features
        settle = () if depth.activated else (GroupBatchNorm(depth.channels), nn.ReLU())
        pooled = after_group(head, name, group_pool, depth.channels, group)
        heads.append(nn.Sequential(*settle, pooled) if settle else pooled)
    return heads[0] if len(heads) == 1 else HeadsAtDepths(heads), features


def dense(widths: list[int], dropout: float, *, norm_features: bool = False) -> nn.Sequential:
    """Return dense layers with batch normalisation, ReLU and dropout between them.

    Args:
        widths: Features going in, then those of each layer.
        dropout: Fraction of hidden values dropped.
        norm_features: Normalise what goes in as well.
    """
    layers: list[nn.Module] = [nn.BatchNorm1d(widths[0])] if norm_features else []
    for width, following in pairwise(widths[:-1]):
        layers += [nn.Linear(width, following), nn.BatchNorm1d(following), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def linear(features: int, classes: int, *, norm_features: bool) -> nn.Module:
    """Return one dense layer, behind batch normalisation where asked."""
    if norm_features:
        return dense([features, classes], 0.0, norm_features=True)
    return nn.Linear(features, classes)


def halved(size: tuple[int, int], times: int) -> tuple[int, int]:
    """Return the size after halving, rounded up each time."""
    height, width = size
    for _ in range(times):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


def cnn7(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (28, 28),
    channels: int = 20,
    dropout: float = 0.3,
    norm_features: bool = False,
) -> Network:
    """Seven convolutions of side 3, the last of side 4, as Cohen and Welling compare with."""
    left = [((side - 4) // 2) - 8 for side in image_size]  # what six convolutions leave
    if min(left) < 4:
        raise ConfigError(f"cnn7: images must be at least 28 x 28, got {image_size}")
    layers: list[nn.Module] = []
    for layer in range(1, 7):
        before = in_channels if layer == 1 else channels
        layers += [nn.Conv2d(before, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
        layers += [nn.MaxPool2d(2)] if layer == 2 else []
    layers += [nn.Conv2d(channels, channels, 4), nn.BatchNorm2d(channels), nn.ReLU()]
    head = GlobalPool(channels, "max")
    return Network(
        nn.Sequential(*layers), head, linear(channels, num_classes, norm_features=norm_features)
    )


def small_cnn(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    widths: Sequence[int] = (16, 24, 40),
    n_fc: int = 32,
    dropout: float = 0.0,
    norm_features: bool = False,
) -> Network:
    """Three convolutions with pooling between them, global maximum, three dense layers."""
    layers: list[nn.Module] = []
    before = in_channels
    for index, width in enumerate(widths):
        layers += [nn.Conv2d(before, width, 5, padding=2, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if index < 2 else []
        before = width
    features = [widths[-1], n_fc, n_fc, num_classes]
    classifier = dense(features, dropout, norm_features=norm_features)
    return Network(nn.Sequential(*layers), GlobalPool(widths[-1], "max"), classifier)


def sfcnn(  # noqa: PLR0913
    *,
    head: str = "max",
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (28, 28),
    group: Group | None = None,
    widths: Sequence[int] = (24, 32, 36, 36, 64),
    kernel_sizes: Sequence[int] = (9, 7, 7, 7, 7),
    pool_after: Sequence[int] = (2, 4),
    n_fc: int = 96,
    dropout: float = 0.0,
    norm_features: bool = False,
    depths: int = 1,
    group_pool: str = "max",
    head_options: dict[str, Any] | None = None,
    rings: Rings | None = None,
) -> Network:
    """Five steerable convolutions, a head, three dense layers (Weiler et al., Rath et al.)."""
    group = group or Cyclic(16)
    if len(widths) != len(kernel_sizes):
        raise ConfigError(
            f"sfcnn: expected one kernel size for each of {len(widths)} widths, "
            f"got {len(kernel_sizes)}"
        )
    layers: list[nn.Module] = []
    found: list[Depth] = []
    size = image_size
    for layer, (width, kernel) in enumerate(zip(widths, kernel_sizes, strict=True), start=1):
        if layer == 1:
            layers.append(LiftConv2d(in_channels, width, kernel, group, rings=rings))
        else:
            layers.append(GroupConv2d(widths[layer - 2], width, kernel, group, rings=rings))
        layers += [GroupBatchNorm(width), nn.ReLU()]
        if layer in pool_after:
            found.append(Depth(len(layers), width, size))
            layers.append(SpatialPool("max"))
            size = halved(size, 1)
    found.append(Depth(len(layers), widths[-1], size))
    chosen = chosen_depths(found, depths, "sfcnn")
    heads, features = heads_at(chosen, head, group, group_pool, head_options)
    classifier = dense([features, n_fc, n_fc, num_classes], dropout, norm_features=norm_features)
    return Network(cut(layers, chosen), heads, classifier)
