"""Group average of self-attention with relative position codes.

Axes   b batch   c channel   g group element   n m token (query, key)   a attention head
       d channel of a head   s relative position   h w pixels   p pixel
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import dropout

from invint.groups import Group
from invint.ops.constants import constant
from invint.ops.interpolation import bilinear_matrix, grid_points, moved_points


@constant
def token_grids(group: Group, height: int, width: int) -> Float[Tensor, "g n p"]:
    """Return the matrices that turn a map, padded with zeros to a square, by every element."""
    side = max(height, width)
    points = grid_points(side, side)
    grids = [bilinear_matrix(moved_points(points, g), height, width) for g in group.elements]
    return torch.stack(grids)


@constant
def relative_positions(side: int) -> Int[Tensor, "n m"]:
    """Number the difference (key minus query) of every pair of tokens of a square grid."""
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    rows, columns = row.flatten(), column.flatten()
    down = rows[None, :] - rows[:, None] + side - 1
    right = columns[None, :] - columns[:, None] + side - 1
    return down * (2 * side - 1) + right


def attention_average(  # noqa: PLR0913
    x: Float[Tensor, "b c h w"],
    query: Float[Tensor, "a c d"],
    key: Float[Tensor, "a c d"],
    value: Float[Tensor, "a c d"],
    codes: Float[Tensor, "s c"],
    *,
    grids: Float[Tensor, "g n p"],
    positions: Int[Tensor, "n m"],
    scale: float,
    dropout_rate: float = 0.0,
) -> Float[Tensor, "b ad"]:
    r"""Average self-attention over its tokens and the group, heads side by side.

    $$A(x) = \frac{1}{|G|N} \sum_{g,n} \mathrm{softmax}(L_g\mathbf{A})_n\, L_g x\, W_V, \qquad
      \mathbf{A}_{nm} = x_n W_Q ((x_m + P_{m-n}) W_K)^T$$

    The averages run before $W_V$: they commute with it, and leave one vector per image and head.

    Args:
        x: Feature map.
        query: $W_Q$ of every head.
        key: $W_K$ of every head.
        value: $W_V$ of every head.
        codes: Relative position codes $P$, one per difference of positions.
        grids: `token_grids(group, h, w)`.
        positions: `relative_positions(side)`.
        scale: Factor on the scores before the softmax.
        dropout_rate: Share of attention weights set to zero.
    """
    flat = rearrange(x, "b c h w -> b c (h w)")
    tokens = einsum(flat, grids, "b c p, g n p -> b g n c")
    queries = einsum(tokens, query * scale, "b g n c, a c d -> b g a n d")
    keys = einsum(tokens, key, "b g m c, a c d -> b g a m d")
    code_keys = einsum(codes, key, "s c, a c d -> a s d")[:, positions]  # a n m d
    scores = einsum(queries, keys, "b g a n d, b g a m d -> b g a n m")
    scores = scores + einsum(queries, code_keys, "b g a n d, a n m d -> b g a n m")
    shares = dropout(scores.softmax(-1), dropout_rate, dropout_rate > 0).mean(dim=3)
    pooled = einsum(shares, tokens, "b g a m, b g m c -> b a c") / len(grids)
    return rearrange(einsum(pooled, value, "b a c, a c d -> b a d"), "b a d -> b (a d)")
