"""Invariant integration of self-attention."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from invint.errors import ConfigError
from invint.groups import Group
from invint.nn.maps import Head, as_built, as_size, full_precision, settled
from invint.ops.attention import attention_average, relative_positions, token_grids
from invint.ops.constants import own_copy
from invint.ops.precision import autocast_device


class SelfAttentionIntegration(Head):
    """Average of self-attention over its tokens, the pixels of the map turned by every element.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; padded with zeros to a square.
        group: The symmetries.
        heads: Attention heads; several are joined by a matrix, one is not.
        head_channels: Channels of each head; by default `channels`.
        dropout: Share of attention weights set to zero while training.
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
