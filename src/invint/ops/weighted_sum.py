r"""Group averages of linear functions, in closed form.

The average of a linear function is a linear function of averages: the mean over the group of the
moved kernel is a fixed matrix times its weights, and a sum over positions is a sum of `x` over the
map less its border strips. Both together are one matrix, known before any image is.

Axes   b batch   c channel   o output channel   h w pixels   i j pixel of the kernel   p pixel
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from invint.groups import Group
from invint.ops.constants import constant
from invint.ops.interpolation import averaged_rotation


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
