"""Group average of a multi-layer perceptron on neighbourhoods.

Axes   b batch   c channel   o output channel   g group element   h w pixels
       n pixel of the neighbourhood   y x pixel of the wider kernel that turning needs
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d

from invint.groups import Group
from invint.ops.constants import constant
from invint.ops.interpolation import bilinear_matrix, grid_points, moved_points


@constant
def neighbourhoods(group: Group, size: int) -> Float[Tensor, "g n y x"]:
    """Return, for each element, the kernels that sample a moved `size` × `size` neighbourhood."""
    points = grid_points(size, size)
    moved = [moved_points(points, element) for element in group.elements]
    reach = math.ceil(max(float(each.abs().max()) for each in moved) - 1e-9)
    side = 2 * reach + 1
    kernels = torch.stack([bilinear_matrix(each, side, side) for each in moved])
    return rearrange(kernels, "g n (y x) -> g n y x", y=side)


def mlp_average(
    x: Float[Tensor, "b c h w"],
    weights: list[Tensor],
    samples: Float[Tensor, "g n y x"],
) -> Float[Tensor, "b o"]:
    r"""Average a perceptron over all positions and moved neighbourhoods.

    $$A(x) = \frac{1}{UV|G|} \sum_{g,u,v}
      \sigma(W_l \cdots \sigma(W_1 L_g^{-1} x_{\mathcal{N}(u,v)}))$$

    The first layer sees the map sampled at $(u,v) + g\,y$, bilinearly and with zeros outside: one
    convolution, with the kernels that sampling makes of $W_1$.

    Args:
        x: Feature map.
        weights: $W_1$ `(o, c, n)`, then square matrices `(o, o)`.
        samples: `neighbourhoods(group, k)`.
    """
    first, *rest = weights
    kernels = einsum(first, samples, "o c n, g n y x -> g o c y x")
    out = conv2d(x, rearrange(kernels, "g o c y x -> (g o) c y x"), padding=samples.shape[-1] // 2)
    hidden = rearrange(out, "b (g o) h w -> (b g) o h w", g=len(samples)).relu()
    for weight in rest:
        hidden = conv2d(hidden, rearrange(weight, "o c -> o c 1 1")).relu()
    return rearrange(hidden, "(b g) o h w -> b o (g h w)", g=len(samples)).mean(-1)
