"""The heads by name: from the last feature map to features that stay as the image turns."""

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from invint.errors import ConfigError, check_axes, did_you_mean
from invint.groups import Group
from invint.nn.convolution import GroupConv2d
from invint.nn.joint import JointMLPIntegration, JointMonomialIntegration, JointWeightedSum
from invint.nn.layers import GlobalPool
from invint.nn.maps import (
    Head,
    as_built,
    as_size,
    check_channels,
    check_fits,
    check_kernel,
    check_precision,
    full_precision,
    settled,
    upright,
)
from invint.nn.means import exp_mean_head, power_mean_head
from invint.nn.monomials import MonomialIntegration
from invint.ops.averages import (
    attention_average,
    local_average,
    mlp_average,
    neighbourhoods,
    relative_positions,
    token_grids,
    weighted_sum,
    window_sums,
)
from invint.ops.grids import averaged_rotation
from invint.ops.steerable import Rings, averaged_filters
from invint.ops.tensors import autocast_device, own_copy


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
        check_channels(channels, "LocalWeightedSum")
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
        check_precision(x, self.weight, "LocalWeightedSum")
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
        check_channels(channels, "GlobalWeightedSum")
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
        check_precision(x, self.weight, "GlobalWeightedSum")
        with torch.autocast(autocast_device(x), enabled=False):
            tensors = (full_precision(tensor) for tensor in (x, self.weight, self.average))
            out = weighted_sum(*tensors)
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, size={self.size}, group={self.group}"


class MLPIntegration(Head):
    """Average of a perceptron on the moved neighbourhoods of every pixel.

    Args:
        channels: Channels of the map, of every layer, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the neighbourhood in pixels; odd.
        layers: Linear layers, each followed by ReLU; without bias, as the formula is printed.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    samples: Tensor

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        kernel_size: int = 3,
        layers: int = 2,
    ) -> None:
        super().__init__()
        check_channels(channels, "MLPIntegration")
        check_kernel(kernel_size, as_size(size, "MLPIntegration"), "MLPIntegration")
        if layers < 1:
            raise ConfigError(f"MLPIntegration: layers must be at least 1, got {layers}")
        self.channels, self.out_features, self.group = channels, channels, group
        self.kernel_size = kernel_size
        samples = own_copy(neighbourhoods(group, kernel_size))
        self.register_buffer("samples", samples, persistent=False)
        first = torch.randn(channels, channels, kernel_size**2)
        rest = [torch.randn(channels, channels) for _ in range(layers - 1)]
        self.weights = nn.ParameterList(
            nn.Parameter(weight * math.sqrt(2 / weight[0].numel())) for weight in (first, *rest)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        check_axes(x, "b c h w", "MLPIntegration", c=self.channels)
        check_fits(self.kernel_size, (x.shape[-2], x.shape[-1]), "MLPIntegration")
        check_precision(x, self.weights[0], "MLPIntegration")
        with torch.autocast(autocast_device(x), enabled=False):
            weights = [full_precision(weight) for weight in self.weights]
            out = mlp_average(full_precision(x), weights, full_precision(self.samples))
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, group={self.group}, kernel_size={self.kernel_size}"


class SelfAttentionIntegration(Head):
    """Average of self-attention over its tokens, the pixels of the map turned by every element.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; padded with zeros to a square.
        group: The symmetries.
        heads: Attention heads; several are joined by a matrix, one is not.
        head_channels: Channels of each head; by default `channels`.
        dropout: Fraction of attention weights set to zero while training.
        scaled: Divide the scores by the root of `head_channels`. The paper does not print this; it
            keeps the softmax from saturating at the start.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`; with one head to `(b, head_channels)`.
    """

    grids: Tensor
    positions: Tensor

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        heads: int = 1,
        head_channels: int | None = None,
        dropout: float = 0.0,
        scaled: bool = True,
    ) -> None:
        super().__init__()
        owner = "SelfAttentionIntegration"
        check_channels(channels, owner)
        self.size = as_size(size, owner)
        self.channels, self.group, self.heads = channels, group, heads
        self.head_channels = channels if head_channels is None else head_channels
        if min(heads, self.head_channels) < 1:
            raise ConfigError(
                f"{owner}: heads and head_channels must be at least 1, got {heads} and "
                f"{self.head_channels}"
            )
        if not 0 <= dropout < 1:
            raise ConfigError(f"{owner}: dropout must be at least 0 and below 1, got {dropout}")
        self.dropout, self.scale = dropout, 1 / math.sqrt(self.head_channels) if scaled else 1.0
        self.out_features = self.head_channels if heads == 1 else channels
        side = max(self.size)
        positions = own_copy(relative_positions(side))
        self.register_buffer("grids", own_copy(token_grids(group, *self.size)), persistent=False)
        self.register_buffer("positions", positions, persistent=False)
        self.query, self.key, self.value = (
            nn.Parameter(torch.randn(heads, channels, self.head_channels) / math.sqrt(channels))
            for _ in range(3)
        )
        self.codes = nn.Parameter(0.02 * torch.randn((2 * side - 1) ** 2, channels))
        joined = heads * self.head_channels
        self.join = nn.Linear(joined, channels, bias=False) if heads > 1 else None

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        owner = "SelfAttentionIntegration"
        x = as_built(x, owner, channels=self.channels, size=self.size, group=self.group)
        check_precision(x, self.query, owner)
        with torch.autocast(autocast_device(x), enabled=False):
            matrices = (self.query, self.key, self.value, self.codes)
            pooled = attention_average(
                full_precision(x),
                *(full_precision(matrix) for matrix in matrices),
                grids=full_precision(self.grids),
                positions=self.positions,
                scale=self.scale,
                dropout_rate=self.dropout if self.training else 0.0,
            )
            if self.join is not None:
                pooled = linear(pooled, full_precision(self.join.weight))
        return settled(pooled, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return (
            f"{self.channels}, size={self.size}, group={self.group}, heads={self.heads}, "
            f"head_channels={self.head_channels}, dropout={self.dropout}"
        )


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
        check_channels(channels, "SteerableIntegration")
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
        check_precision(x, self.convolution.weight, "SteerableIntegration")
        with torch.autocast(autocast_device(x), enabled=False):
            flat = rearrange(full_precision(x), "b c g h w -> b (c g) h w")
            sums = window_sums(flat, kernel_size) / (height * width)
            layer = self.convolution
            weight, basis = full_precision(layer.weight), full_precision(layer.basis)
            filters = averaged_filters(weight, basis, layer.quotients)
            filters = rearrange(filters, "o c g i j -> o (c g) i j")
            out = einsum(sums, filters, "b cg i j, o cg i j -> b o")
        return settled(out, x)


Size = int | tuple[int, int]
COMMON = ("channels", "size", "group")  # the arguments of every head; the rest are options


def max_head(channels: int, size: Size, group: Group) -> GlobalPool:  # noqa: ARG001
    """Return the spatial maximum, the paper's "pooling"."""
    return GlobalPool(channels, "max")


def avg_head(channels: int, size: Size, group: Group) -> GlobalPool:  # noqa: ARG001
    """Return the spatial mean."""
    return GlobalPool(channels, "mean")


HEADS: dict[str, Callable[..., Head]] = {
    "max": max_head,
    "avg": avg_head,
    "monomials": MonomialIntegration,
    "global-ws": GlobalWeightedSum,
    "local-ws": LocalWeightedSum,
    "mlp": MLPIntegration,
    "attention": SelfAttentionIntegration,
    "sf-ii": SteerableIntegration,
    "power-mean": power_mean_head,
    "exp-mean": exp_mean_head,
    "joint-monomials": JointMonomialIntegration,
    "joint-ws": JointWeightedSum,
    "joint-mlp": JointMLPIntegration,
}


def make_head(name: str, *, channels: int, size: Size, group: Group, **options: Any) -> Head:
    """Build a head by its name.

    A head has `out_features`, and `takes_group`: false if it takes the map after group pooling,
    `(b, c, h, w)`, true if before it, `(b, c, g, h, w)` (`sf-ii` and the joint ones).

    Args:
        name: One of `HEADS`.
        channels: Channels of the map.
        size: Height and width of the map.
        group: The symmetries to average over.
        options: Keyword arguments of the head's class.
    """
    check_options(name, options)
    if channels < 1:
        raise ConfigError(f"make_head: channels must be at least 1, got {channels}")
    return HEADS[name](channels, size, group, **options)


def head_options(name: str) -> dict[str, Any]:
    """Return the options of a head with their defaults: its arguments beside those of all heads."""
    if name not in HEADS:
        hint = did_you_mean(name, HEADS)
        raise ConfigError(f"no head {name!r}; {hint}there are {', '.join(HEADS)}")
    arguments = inspect.signature(HEADS[name]).parameters
    return {name: each.default for name, each in arguments.items() if name not in COMMON}


def check_options(name: str, options: Iterable[str]) -> None:
    """Raise `ConfigError` unless a head has all of these options."""
    known = head_options(name)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"head {name!r} has no option {option!r}; it has {', '.join(known) or 'none'}"
            )
