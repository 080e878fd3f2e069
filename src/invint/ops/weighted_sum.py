r"""Group averages of linear functions, in closed form.

The average of a linear function is a linear function of averages: the mean over the group of the
moved kernel is a fixed matrix times its weights, and a sum over positions is a sum of `x` over the
map less its border strips.

Axes   b batch   c channel   o output channel   h w pixels   i j pixel of the kernel   p pixel
"""

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor


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


def local_weighted_sum(
    x: Float[Tensor, "b c h w"],
    kernel: Float[Tensor, "o c p"],
    average: Float[Tensor, "p p"],
) -> Float[Tensor, "b o"]:
    r"""Average a moved kernel over all positions and the whole group.

    $$A_o(x) = \frac{1}{UV|G|} \sum_{g,u,v} \sum_{c,y} x_c[(u,v) + y]\,\psi_{oc}(g^{-1}y)$$

    Args:
        x: Feature map; zero outside.
        kernel: One square kernel per pair of channels, pixels row by row.
        average: `averaged_rotation(group, k, k, k)`.
    """
    size = round(kernel.shape[-1] ** 0.5)
    sums = rearrange(window_sums(x, size), "b c i j -> b c (i j)")
    positions = x.shape[-2] * x.shape[-1]
    return einsum(sums @ average, kernel, "b c p, o c p -> b o") / positions


def global_weighted_sum(
    x: Float[Tensor, "b c h w"],
    kernel: Float[Tensor, "o c p"],
    average: Float[Tensor, "hw p"],
) -> Float[Tensor, "b o"]:
    r"""Average a kernel as large as the map over the group, at the centre.

    $$A_o(x) = \frac{1}{|G|} \sum_g \sum_{c,y} x_c(y)\,\psi_{oc}(g^{-1}y)$$

    Args:
        x: Feature map.
        kernel: One square kernel per pair of channels, pixels row by row.
        average: `averaged_rotation(group, size of the kernel, h, w)`.
    """
    averaged = rearrange(x, "b c h w -> b c (h w)") @ average
    return einsum(averaged, kernel, "b c p, o c p -> b o")
