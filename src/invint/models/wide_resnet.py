"""Wide residual networks (Zagoruyko and Komodakis, 2016): plain with strides, and steerable.

The steerable ones halve maps by pooling, so that they are exact on every image size.
"""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.groups import Cyclic, Group
from invint.models.networks import (
    Depth,
    Network,
    chosen_depths,
    cut,
    dense,
    halved,
    heads_at,
    linear,
)
from invint.nn import (
    GlobalPool,
    GroupBatchNorm,
    GroupConv2d,
    GroupDropout,
    LiftConv2d,
    SpatialPool,
)
from invint.ops.steerable import Rings


class Block(nn.Module):
    """Two convolutions with normalisation before each, beside a shortcut.

    Args:
        in_channels: Channels going in.
        out_channels: Channels coming out.
        stride: Of the first convolution.
        dropout: Fraction of values dropped between the convolutions.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, stride: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(in_channels), nn.ReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        )
        same = in_channels == out_channels and stride == 1
        self.shortcut = (
            None if same else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """Add the residual to the input, or to its projection."""
        active = self.activate(x)
        kept = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = kept + self.residual(active)
        return out


def blocks_per_stage(depth: int) -> int:
    """Return how many blocks each of three stages has."""
    if depth < 10 or (depth - 4) % 6:
        raise ConfigError(f"wide residual networks have depth 6n + 4 (10, 16, 22, …), got {depth}")
    return (depth - 4) // 6


def wide_resnet(
    *,
    depth: int,
    width: int,
    num_classes: int = 10,
    in_channels: int = 3,
    dropout: float = 0.0,
    norm_features: bool = False,
) -> Network:
    """Stem, three stages of residual blocks, average pooling, one dense layer."""
    blocks = blocks_per_stage(depth)
    channels = [16, 16 * width, 32 * width, 64 * width]
    layers: list[nn.Module] = [nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)]
    for stage in range(3):
        for block in range(blocks):
            before = channels[stage] if block == 0 else channels[stage + 1]
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(before, channels[stage + 1], stride=stride, dropout=dropout))
    layers += [nn.BatchNorm2d(channels[-1]), nn.ReLU()]
    features = nn.Sequential(*layers)
    for module in features.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    head = GlobalPool(channels[-1], "mean")
    return Network(features, head, linear(channels[-1], num_classes, norm_features=norm_features))


class SteerableBlock(nn.Module):
    """Two group convolutions with normalisation before each, beside a shortcut.

    Args:
        in_channels: Channels per element going in.
        out_channels: Channels per element coming out.
        kernel_size: Side of the filters; the shortcut has side 1.
        group: The symmetries.
        dropout: Fraction of channels dropped between the convolutions.
        rings: Ring widths and band limits of the filters.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        group: Group,
        *,
        dropout: float = 0.0,
        rings: Rings | None = None,
    ) -> None:
        super().__init__()
        self.activate = nn.Sequential(GroupBatchNorm(in_channels), nn.ReLU())
        self.residual = nn.Sequential(
            GroupConv2d(in_channels, out_channels, kernel_size, group, rings=rings),
            GroupBatchNorm(out_channels),
            nn.ReLU(),
            GroupDropout(dropout),
            GroupConv2d(out_channels, out_channels, kernel_size, group, rings=rings),
        )
        same = in_channels == out_channels
        self.shortcut = None if same else GroupConv2d(in_channels, out_channels, 1, group)

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b o g h w"]:
        """Add the residual to the input, or to its projection."""
        active = self.activate(x)
        kept = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = kept + self.residual(active)
        return out


def steerable_wide_resnet(  # noqa: PLR0913
    *,
    depth: int,
    stem: int,
    widths: Sequence[int],
    head: str = "max",
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: tuple[int, int] = (32, 32),
    group: Group | None = None,
    kernel_size: int = 7,
    n_fc: int | None = None,
    dropout: float = 0.0,
    norm_features: bool = False,
    depths: int = 1,
    group_pool: str = "max",
    head_options: dict[str, Any] | None = None,
    rings: Rings | None = None,
) -> Network:
    """Stem, three stages halved by exact pooling between them, a head, one or two dense layers."""
    group = group or Cyclic(8)
    blocks = blocks_per_stage(depth)
    layers: list[nn.Module] = [LiftConv2d(in_channels, stem, kernel_size, group, rings=rings)]
    found: list[Depth] = []
    channels, size = stem, image_size
    for stage, width in enumerate(widths):
        if stage:
            found.append(Depth(len(layers), channels, size, activated=False))
            layers.append(SpatialPool("mean"))
            size = halved(size, 1)
        for _ in range(blocks):
            layers.append(
                SteerableBlock(channels, width, kernel_size, group, dropout=dropout, rings=rings)
            )
            channels = width
    layers += [GroupBatchNorm(channels), nn.ReLU()]
    found.append(Depth(len(layers), channels, size))
    chosen = chosen_depths(found, depths, "sf-wrn")
    heads, features = heads_at(chosen, head, group, group_pool, head_options)
    hidden = [] if n_fc is None else [n_fc]
    classifier = dense([features, *hidden, num_classes], dropout, norm_features=norm_features)
    return Network(cut(layers, chosen), heads, classifier)
