"""Networks as features, head and dense layers: plain CNNs, and the steerable CNN of the paper."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.groups import Cyclic, Group
from invint.nn import (
    GlobalPool,
    GroupBatchNorm,
    GroupConv2d,
    GroupPool,
    Head,
    LiftConv2d,
    SpatialPool,
    make_head,
)
from invint.ops.steerable import Rings


class Network(nn.Module):
    """A classifier of images in two halves that can be called apart.

    Args:
        features: Takes images to the last feature map.
        head: Takes that map to features of the image.
        classifier: Takes these to logits.

    Shape:
        `(b, c, h, w)` to `(b, classes)`.
    """

    def __init__(self, features: nn.Module, head: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features, self.head, self.classifier = features, head, classifier

    def forward_features(self, images: Float[Tensor, "b c h w"]) -> Tensor:
        """Return the last feature map: `(b, c, g, h, w)` of a steerable network."""
        features: Tensor = self.features(images)
        return features

    def forward_head(self, features: Tensor) -> Float[Tensor, "b classes"]:
        """Return the logits of a feature map."""
        logits: Tensor = self.classifier(self.head(features))
        return logits

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        return self.forward_head(self.forward_features(images))


def after_group(head: Head) -> nn.Module:
    """Put group pooling before a head, unless it takes the map with its group axis."""
    return head if head.takes_group else nn.Sequential(GroupPool("max"), head)


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
    return Network(nn.Sequential(*layers), head, nn.Linear(channels, num_classes))


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
    for layer, (width, kernel) in enumerate(zip(widths, kernel_sizes, strict=True), start=1):
        if layer == 1:
            layers.append(LiftConv2d(in_channels, width, kernel, group, rings=rings))
        else:
            layers.append(GroupConv2d(widths[layer - 2], width, kernel, group, rings=rings))
        layers += [GroupBatchNorm(width), nn.ReLU()]
        layers += [SpatialPool("max")] if layer in pool_after else []
    size = halved(image_size, len(pool_after))
    last = make_head(head, channels=widths[-1], size=size, group=group, **(head_options or {}))
    features = [last.out_features, n_fc, n_fc, num_classes]
    classifier = dense(features, dropout, norm_features=norm_features)
    return Network(nn.Sequential(*layers), after_group(last), classifier)
