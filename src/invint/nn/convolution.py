"""Steerable convolutions: from images to a group, and on a group."""

import math

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, check_axes
from invint.groups import Group
from invint.nn.layers import check_steps
from invint.ops.convolve import convolve
from invint.ops.steerable import Rings, check_size, default_rings, turned_basis, turned_filters
from invint.ops.tensors import own_copy


class _SteerableConv2d(nn.Module):
    """What the two convolutions share: everything but the axes of their input."""

    lifts: bool  # whether the input is an image, without a group axis
    basis: Tensor
    quotients: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        group: Group,
        *,
        stride: int = 1,
        padding: int | None = None,
        bias: bool = False,
        rings: Rings | None = None,
    ) -> None:
        super().__init__()
        check_size(kernel_size, type(self).__name__)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.group, self.stride = kernel_size, group, stride
        self.padding = kernel_size // 2 if padding is None else padding
        self._check_counts()
        self.rings = rings or default_rings(kernel_size)
        sampled = turned_basis(kernel_size, group, self.rings)
        self._energy = sampled[0].square().sum().item()
        basis = own_copy(sampled)
        quotients = torch.tensor(group.quotients)
        if self.lifts:
            quotients = torch.zeros(group.order, 1, dtype=torch.long)
        self.register_buffer("basis", basis, persistent=False)
        self.register_buffer("quotients", quotients, persistent=False)
        shape = (out_channels, in_channels, quotients.shape[1], basis.shape[1])
        self.weight = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights that keep the variance of white noise, and set the bias to zero.

        A response to white noise has variance Σ‖Σ_q w_q β_q‖² over input channels and elements: on
        average their number times Var(w) · Σ_q ‖β_q‖², for every output element alike.
        """
        inputs = self.in_channels * self.quotients.shape[1]
        nn.init.normal_(self.weight, std=1 / math.sqrt(inputs * self._energy))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filters(self) -> Float[Tensor, "og ch k k"]:
        """Return the weight an ordinary `nn.Conv2d` needs to compute the same map."""
        filters = turned_filters(self.weight, self.basis, self.quotients)
        return rearrange(filters, "o g c h y x -> (o g) (c h) y x")

    def fold(self) -> nn.Conv2d:
        """Return the ordinary convolution that computes the same map.

        Group axes are folded into channels, `(b, (c g), h, w)`, the element running fastest.
        """
        filters, bias = self.filters().detach(), self._spread_bias()
        folded: nn.Conv2d = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Conv2d,
            filters.shape[1],
            filters.shape[0],
            self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            bias=bias is not None,
            dtype=filters.dtype,
            device=filters.device,
        )
        folded.weight.data = filters
        if folded.bias is not None and bias is not None:
            folded.bias.data = bias.detach()
        return folded.train(self.training)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"group={self.group}, stride={self.stride}, padding={self.padding}, "
            f"bias={self.bias is not None}, n_F={self.rings.functions} "
            f"({self.basis.shape[1]} real functions)"
        )

    def _convolve(self, x: Float[Tensor, "b ch h w"]) -> Float[Tensor, "b o g y x"]:
        if self.group.order > 1:
            check_steps(
                x,
                type(self).__name__,
                kernel_size=self.kernel_size,
                stride=self.stride,
                padding=self.padding,
                cure="pool first, then convolve with stride 1",
            )
        # On a GPU convolutions are fastest with channels last; what is so already is not copied.
        x = x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x
        out = convolve(
            x, self.filters(), self._spread_bias(), stride=self.stride, padding=self.padding
        )
        if x.is_cuda:  # an image of one channel has no layout to go by
            out = out.contiguous(memory_format=torch.channels_last)
        return rearrange(out, "b (o g) y x -> b o g y x", g=self.group.order)

    def _spread_bias(self) -> Tensor | None:
        return None if self.bias is None else repeat(self.bias, "o -> (o g)", g=self.group.order)

    def _check_counts(self) -> None:
        for name, least in (("in_channels", 1), ("out_channels", 1), ("stride", 1), ("padding", 0)):
            count = getattr(self, name)
            if count < least:
                owner = type(self).__name__
                raise ConfigError(f"{owner}: {name} must be at least {least}, got {count}")


class LiftConv2d(_SteerableConv2d):
    """Steerable convolution from images to feature maps on a group: one response per element.

    Moving the image by an element moves the output in the plane and along `g`: exactly for quarter
    turns and mirrors, up to the sampling of the filters for other angles.

    Args:
        in_channels: Channels of the image.
        out_channels: Channels per group element coming out.
        kernel_size: Side of the filters in pixels; odd.
        group: The symmetries.
        stride: Step between output pixels; refused at sizes where it breaks the symmetry.
        padding: Zeros added on every side; by default as many as keep the size.
        bias: Add a learnable number to each channel, the same for every element.
        rings: Ring widths and band limits of the filters; by default `default_rings(kernel_size)`.

    Shape:
        `(b, in_channels, h, w)` to `(b, out_channels, g, h', w')`.
    """

    lifts = True

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o g y x"]:
        """Convolve."""
        check_axes(x, "b c h w", "LiftConv2d", c=self.in_channels)
        return self._convolve(x)


class GroupConv2d(_SteerableConv2d):
    """Steerable convolution between feature maps on a group.

    Moving the input by an element, in the plane and along `g`, moves the output likewise.

    Args:
        in_channels: Channels per group element going in.
        out_channels: Channels per group element coming out.
        kernel_size: Side of the filters in pixels; odd.
        group: The symmetries.
        stride: Step between output pixels; refused at sizes where it breaks the symmetry.
        padding: Zeros added on every side; by default as many as keep the size.
        bias: Add a learnable number to each channel, the same for every element.
        rings: Ring widths and band limits of the filters; by default `default_rings(kernel_size)`.

    Shape:
        `(b, in_channels, g, h, w)` to `(b, out_channels, g, h', w')`.
    """

    lifts = False

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b o g y x"]:
        """Convolve."""
        check_axes(x, "b c g h w", "GroupConv2d", c=self.in_channels, g=self.group.order)
        return self._convolve(rearrange(x, "b c g h w -> b (c g) h w"))
