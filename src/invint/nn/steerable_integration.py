"""SF-II, the control: one more steerable convolution and the average of all its responses."""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from invint.axes import check_axes
from invint.groups import Group
from invint.nn.convolution import GroupConv2d
from invint.nn.maps import Head, as_size, check_fits, check_kernel, full_precision, settled
from invint.ops.precision import autocast_device
from invint.ops.steerable import Rings, averaged_filters
from invint.ops.weighted_sum import window_sums


class SteerableIntegration(Head):
    """Average of a steerable group convolution over positions and elements, before group pooling.

    Convolving and averaging are both linear. So the map is summed first, over the positions each
    tap of a filter meets, and the filters are averaged over the group: no convolution is left.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the filters; by default 7, or the largest odd number that fits.
        rings: Ring widths and band limits of the filters.

    Shape:
        `(b, channels, g, h, w)` to `(b, channels)`.
    """

    takes_group = True

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        kernel_size: int | None = None,
        rings: Rings | None = None,
    ) -> None:
        super().__init__()
        height, width = as_size(size, "SteerableIntegration")
        if kernel_size is None:
            kernel_size = min(7, (min(height, width) - 1) // 2 * 2 + 1)
        check_kernel(kernel_size, (height, width), "SteerableIntegration")
        self.channels, self.out_features, self.group = channels, channels, group
        self.convolution = GroupConv2d(channels, channels, kernel_size, group, rings=rings)

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        sizes = {"c": self.channels, "g": self.group.order}
        check_axes(x, "b c g h w", "SteerableIntegration", **sizes)
        kernel_size, (height, width) = self.convolution.kernel_size, x.shape[-2:]
        check_fits(kernel_size, (height, width), "SteerableIntegration")
        with torch.autocast(autocast_device(x), enabled=False):
            flat = rearrange(full_precision(x), "b c g h w -> b (c g) h w")
            sums = window_sums(flat, kernel_size) / (height * width)
            layer = self.convolution
            weight, basis = full_precision(layer.weight), full_precision(layer.basis)
            filters = averaged_filters(weight, basis, layer.quotients)
            filters = rearrange(filters, "o c g i j -> o (c g) i j")
            out = einsum(sums, filters, "b cg i j, o cg i j -> b o")
        return settled(out, x)
