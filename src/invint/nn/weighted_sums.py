"""Invariant integration of weighted sums: a kernel, moved over the group and averaged."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.axes import check_axes
from invint.groups import Group
from invint.nn.maps import (
    Head,
    as_built,
    as_size,
    check_fits,
    check_kernel,
    full_precision,
    settled,
    upright,
)
from invint.ops.constants import own_copy
from invint.ops.interpolation import averaged_rotation
from invint.ops.precision import autocast_device
from invint.ops.weighted_sum import local_average, weighted_sum, window_sums


class LocalWeightedSum(Head):
    """Average of a small kernel over all positions and all its moved copies (Local-WS).

    The integrand is linear, so the average is computed in closed form: one small matrix product.
    It sees no more than sums of the map and its borders: the theory page says what that means.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the kernel in pixels; odd.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    average: Tensor
    rotation: Tensor

    def __init__(
        self, channels: int, size: int | tuple[int, int], group: Group, *, kernel_size: int = 3
    ) -> None:
        super().__init__()
        self.size = as_size(size, "LocalWeightedSum")
        check_kernel(kernel_size, self.size, "LocalWeightedSum")
        self.channels, self.out_features, self.group = channels, channels, group
        self.kernel_size = kernel_size
        average = local_average(group, kernel_size, *self.size)
        rotation = averaged_rotation(group, kernel_size, kernel_size, kernel_size)
        self.register_buffer("average", own_copy(average), persistent=False)
        self.register_buffer("rotation", own_copy(rotation), persistent=False)
        self.weight = nn.Parameter(torch.empty(channels, channels, kernel_size**2))
        nn.init.normal_(self.weight, std=1 / math.sqrt(channels * kernel_size**2))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        check_axes(x, "b c h w", "LocalWeightedSum", c=self.channels)
        x = upright(x, self.size, self.group)
        size = (x.shape[-2], x.shape[-1])
        check_fits(self.kernel_size, size, "LocalWeightedSum")
        with torch.autocast(autocast_device(x), enabled=False):
            values, weight = full_precision(x), full_precision(self.weight)
            if size == self.size:
                out = weighted_sum(values, weight, full_precision(self.average))
            else:
                sums = window_sums(values, self.kernel_size) / (size[0] * size[1])
                out = weighted_sum(sums, weight, full_precision(self.rotation))
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, group={self.group}, kernel_size={self.kernel_size}"


class GlobalWeightedSum(Head):
    """Average of a kernel as large as the map over its moved copies, at the centre (Global-WS).

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; the kernel is the square that holds it.
        group: The symmetries.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    average: Tensor

    def __init__(self, channels: int, size: int | tuple[int, int], group: Group) -> None:
        super().__init__()
        self.size = as_size(size, "GlobalWeightedSum")
        self.channels, self.out_features, self.group = channels, channels, group
        side = max(self.size)
        average = averaged_rotation(group, side, *self.size)
        self.register_buffer("average", own_copy(average), persistent=False)
        self.weight = nn.Parameter(torch.empty(channels, channels, side**2))
        nn.init.normal_(self.weight, std=1 / math.sqrt(channels * side**2))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        x = as_built(
            x, "GlobalWeightedSum", channels=self.channels, size=self.size, group=self.group
        )
        with torch.autocast(autocast_device(x), enabled=False):
            tensors = (full_precision(tensor) for tensor in (x, self.weight, self.average))
            out = weighted_sum(*tensors)
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, size={self.size}, group={self.group}"
