"""The bispectrum along the group axis, in the place of group pooling."""

import math

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ShapeError, check_axes
from invint.groups import Group
from invint.nn.maps import full_precision, settled
from invint.ops.bispectrum import bispectrum_size, group_bispectrum, group_waves
from invint.ops.tensors import autocast_device, own_copy


class GroupBispectrum(nn.Module):
    """Mix what does not change as the responses at a pixel move along the group.

    Pooling keeps one number of the responses of a channel to all elements. The selective
    bispectrum keeps all there is to know but how they are moved, each channel by itself. A learned
    matrix mixes these numbers of all channels. It begins as the mean, with a random share of the
    others.

    Args:
        channels: Channels of the map, and of what comes out.
        group: The symmetries.

    Shape:
        `(b, channels, g, h, w)` to `(b, channels, h, w)`.
    """

    waves: Tensor

    def __init__(self, channels: int, group: Group) -> None:
        super().__init__()
        self.channels, self.group = channels, group
        self.register_buffer("waves", own_copy(group_waves(group.n)), persistent=False)
        size = bispectrum_size(group)
        self.weight = nn.Parameter(torch.empty(channels, channels, size))
        nn.init.normal_(self.weight, std=1 / math.sqrt(channels * size))
        with torch.no_grad():
            self.weight[:, :, 0] = torch.eye(channels)

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c h w"]:
        """Mix."""
        check_axes(x, "b c g h w", "GroupBispectrum", c=self.channels)
        if x.shape[2] != self.group.order:
            raise ShapeError(
                f"GroupBispectrum: expected g={self.group.order}, the order of {self.group}, got "
                f"g={x.shape[2]}; build it with the group of the layers before it"
            )
        with torch.autocast(autocast_device(x), enabled=False):
            invariants = group_bispectrum(full_precision(x), full_precision(self.waves))
            out = einsum(full_precision(self.weight), invariants, "o c k, b c k h w -> b o h w")
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"{self.channels}, group={self.group}, invariants={self.weight.shape[2]}"
