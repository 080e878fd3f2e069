"""Group averages of weighted sums, perceptrons and self-attention.

The average of a linear function is a linear function of averages: the mean over the group of the
moved kernel is a fixed matrix times its weights, and a sum over positions is a sum of `x` over the
map less its border strips. Both together are one matrix, known before any image is. Perceptron and
attention are not linear: they are evaluated for every group element.

Axes   b batch   c channel   o output channel   g group element   h w pixels   p pixel
       i j pixel of the kernel   n pixel of a neighbourhood
       y x pixel of the wider kernel that turning needs
       n m token (query, key)   a attention head   d channel of a head   s relative position
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import conv2d, dropout

from invint.groups import Group
from invint.ops.grids import averaged_rotation, bilinear_matrix, grid_points, moved_points
from invint.ops.tensors import constant


def window_sums(x: Float[Tensor, "b c h w"], size: int) -> Float[Tensor, "b c i j"]:
    r"""Sum what each tap of a kernel meets as it passes over all positions, zero outside.

    $$s_{ij} = \sum_{u,v} x[u + i, v + j], \qquad |i|, |j| \le (k-1)/2$$
    """
    rows, columns = (_met(side, size, x) for side in x.shape[-2:])
    return einsum(rows, x, columns, "i h, b c h w, j w -> b c i j")


def _met(side: int, size: int, like: Tensor) -> Float[Tensor, "i side"]:
    """Mark the pixels of a line that each tap meets."""
    tap = torch.arange(size, device=like.device)[:, None] - size // 2
    position = torch.arange(side, device=like.device) - tap  # of the kernel, at that moment
    return ((position >= 0) & (position < side)).to(like.dtype)


@constant
def local_average(group: Group, size: int, height: int, width: int) -> Float[Tensor, "hw p"]:
    r"""Return what each pixel of a map contributes to each weight of a small kernel.

    Row by row the matrix $M$ of the average over positions and the group,

    $$\frac{1}{UV|G|} \sum_{g,u,v} \sum_y x[(u,v) + y]\,\psi(g^{-1}y) = x^T M \psi.$$
    """
    rotation = averaged_rotation(group, size, size, size)
    rows, columns = (_met(side, size, rotation) for side in (height, width))
    met = rearrange(einsum(rows, columns, "i h, j w -> h w i j"), "h w i j -> (h w) (i j)")
    return met @ rotation / (height * width)


def weighted_sum(
    x: Float[Tensor, "b c h w"],
    kernel: Float[Tensor, "o c p"],
    average: Float[Tensor, "hw p"],
) -> Float[Tensor, "b o"]:
    r"""Average weighted sums over the group: $A_o(x) = \sum_c x_c^T M \psi_{oc}$.

    Args:
        x: Feature map; zero outside.
        kernel: One square kernel per pair of channels, pixels row by row.
        average: $M$: `local_average` for a small kernel that passes over all positions, or
            `averaged_rotation` for one as large as the map, at its centre.
    """
    averaged = _times(rearrange(x, "b c h w -> b c (h w)"), average)
    return einsum(averaged, kernel, "b c p, o c p -> b o")


def _times(x: Float[Tensor, "b c hw"], average: Float[Tensor, "hw p"]) -> Float[Tensor, "b c p"]:
    """Multiply with a matrix that, compiled for a GPU, may be too small to fill it as a product."""
    if torch.compiler.is_compiling() and x.is_cuda and average.numel() < 1024:
        return (x[..., None] * average).sum(dim=-2)  # one pass over x, its conversion included
    return x @ average


@constant
def neighbourhoods(group: Group, size: int) -> Float[Tensor, "g n y x"]:
    """Return, for each element, the kernels that sample a moved `size` × `size` neighbourhood."""
    points = grid_points(size, size)
    moved = [moved_points(points, element) for element in group.elements]
    reach = math.ceil(max(float(each.abs().max()) for each in moved) - 1e-9)
    side = 2 * reach + 1
    kernels = torch.stack([bilinear_matrix(each, side, side) for each in moved])
    return rearrange(kernels, "g n (y x) -> g n y x", y=side)


def moved_sums(
    x: Float[Tensor, "b c h w"],
    kernel: Float[Tensor, "o c n"],
    samples: Float[Tensor, "g n y x"],
) -> Float[Tensor, "b g o h w"]:
    r"""Return weighted sums of the moved neighbourhoods of every pixel, one for each element.

    $$s_{g,o}(u,v) = \sum_{c,y} \psi_{oc}(y)\,x_c[(u,v) + g\,y]$$

    The map is sampled bilinearly and is zero outside: one convolution, with the kernels that
    sampling makes of $\psi$.

    Args:
        x: Feature map.
        kernel: One number for each pixel of a neighbourhood, row by row.
        samples: `neighbourhoods(group, k)`.
    """
    kernels = einsum(kernel, samples, "o c n, g n y x -> g o c y x")
    out = conv2d(x, rearrange(kernels, "g o c y x -> (g o) c y x"), padding=samples.shape[-1] // 2)
    return rearrange(out, "b (g o) h w -> b g o h w", g=len(samples))


def mlp_average(
    x: Float[Tensor, "b c h w"],
    weights: list[Tensor],
    samples: Float[Tensor, "g n y x"],
) -> Float[Tensor, "b o"]:
    r"""Average a perceptron over all positions and moved neighbourhoods.

    $$A(x) = \frac{1}{UV|G|} \sum_{g,u,v}
      \sigma(W_l \cdots \sigma(W_1 L_g^{-1} x_{\mathcal{N}(u,v)}))$$

    The first layer sees the map as `moved_sums` does.

    Args:
        x: Feature map.
        weights: $W_1$ `(o, c, n)`, then square matrices `(o, o)`.
        samples: `neighbourhoods(group, k)`.
    """
    first, *rest = weights
    hidden = rearrange(moved_sums(x, first, samples), "b g o h w -> (b g) o h w").relu()
    for weight in rest:
        hidden = conv2d(hidden, rearrange(weight, "o c -> o c 1 1")).relu()
    return rearrange(hidden, "(b g) o h w -> b o (g h w)", g=len(samples)).mean(-1)


@constant
def token_grids(group: Group, height: int, width: int) -> Float[Tensor, "g n p"]:
    """Return the matrices that turn a map, padded with zeros to a square, by every element."""
    side = max(height, width)
    points = grid_points(side, side)
    grids = [bilinear_matrix(moved_points(points, g), height, width) for g in group.elements]
    return torch.stack(grids)


@constant
def relative_positions(side: int) -> Int[Tensor, "n m"]:
    """Index the difference (key minus query) of every pair of tokens of a square grid."""
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
        dropout_rate: Fraction of attention weights set to zero.
    """
    flat = rearrange(x, "b c h w -> b c (h w)")
    tokens = einsum(flat, grids, "b c p, g n p -> b g n c")
    queries = einsum(tokens, query * scale, "b g n c, a c d -> b g a n d")
    keys = einsum(tokens, key, "b g m c, a c d -> b g a m d")
    code_keys = einsum(codes, key, "s c, a c d -> a s d")[:, positions]  # a n m d
    scores = einsum(queries, keys, "b g a n d, b g a m d -> b g a n m")
    scores = scores + einsum(queries, code_keys, "b g a n d, a n m d -> b g a n m")
    attention = dropout(scores.softmax(-1), dropout_rate, dropout_rate > 0).mean(dim=3)
    pooled = einsum(attention, tokens, "b g a m, b g m c -> b a c") / len(grids)
    return rearrange(einsum(pooled, value, "b a c, a c d -> b a d"), "b a d -> b (a d)")
