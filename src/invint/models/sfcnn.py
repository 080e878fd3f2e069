"""The steerable network for Rotated-MNIST, and a small one for digits on a CPU."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from invint.errors import ConfigError
from invint.groups import Cyclic, Group
from invint.models.network import Network, after_group, dense, halved
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d, SpatialPool, make_head
from invint.ops.steerable import Rings


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
    for number, (width, kernel) in enumerate(zip(widths, kernel_sizes, strict=True), start=1):
        if number == 1:
            layers.append(LiftConv2d(in_channels, width, kernel, group, rings=rings))
        else:
            layers.append(GroupConv2d(widths[number - 2], width, kernel, group, rings=rings))
        layers += [GroupBatchNorm(width), nn.ReLU()]
        layers += [SpatialPool("max")] if number in pool_after else []
    size = halved(image_size, len(pool_after))
    last = make_head(head, channels=widths[-1], size=size, group=group, **(head_options or {}))
    classifier = dense([last.out_features, n_fc, n_fc, num_classes], dropout)
    return Network(nn.Sequential(*layers), after_group(last), classifier)
