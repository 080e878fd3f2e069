"""Steerable filters: turning one means evaluating it at a turned angle, never interpolating it.

Axes   g group element   q basis function   o output channel   c input channel
       h group element of the input   k an element like g⁻¹h   y x pixel of the filter
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from invint.errors import ConfigError
from invint.groups import Element, Group
from invint.ops.grids import permute_grid
from invint.ops.tensors import autocast_device, constant


@dataclass(frozen=True)
class Rings:
    """The Gaussian rings a filter is made of: ring `j` has radius `j`, its own width and band.

    Attributes:
        band_limits: Highest angular frequency of each ring, from the centre outwards.
        widths: Standard deviation of each ring, in pixels.
    """

    band_limits: tuple[int, ...]
    widths: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "band_limits", tuple(self.band_limits))
        object.__setattr__(self, "widths", tuple(self.widths))
        if len(self.band_limits) != len(self.widths) or not self.band_limits:
            raise ConfigError(
                f"Rings: expected one band limit and one width per ring, "
                f"got {len(self.band_limits)} and {len(self.widths)}"
            )
        if min(self.band_limits) < 0:
            raise ConfigError(f"Rings: band limits must not be negative, got {self.band_limits}")
        if min(self.widths) <= 0:
            raise ConfigError(f"Rings: widths must be positive, got {self.widths}")

    @property
    def functions(self) -> int:
        """Number of complex basis functions, the paper's `n_F`."""
        return sum(limit + 1 for limit in self.band_limits)


def default_rings(size: int) -> Rings:
    """Return the rings of a `size` × `size` filter: up to its edge, frequencies up to twice j.

    The outermost ring is narrower: a wide one is cut off by the square, and a cut ring does not
    turn into itself. The numbers behind this are in the decision page on the basis.
    """
    check_size(size, "default_rings")
    radius = size // 2
    return Rings(tuple(2 * j for j in range(radius + 1)), (0.6,) * radius + (0.4,))


def check_size(size: int, owner: str) -> None:
    """Raise `ConfigError` unless filters of this side have a centre pixel."""
    if size < 1 or size % 2 == 0:
        raise ConfigError(
            f"{owner}: kernel_size must be odd, so that the filter has a centre to turn about, "
            f"got {size}; use {max(size - 1, 1)} or {max(size, 0) + 1}"
        )


@constant
def turned_basis(size: int, group: Group, rings: Rings) -> Float[Tensor, "g q y x"]:
    r"""Sample every basis function, moved by every element $(\theta, f)$ of the group, in float64.

    The functions are waves on Gaussian rings $\rho_j$ of radius $j$ and width $\sigma_j$,

    $$\rho_j(r)\cos k\alpha \quad\text{and}\quad \rho_j(r)\sin k\alpha, \qquad 0 \le k \le K_j,
      \qquad \rho_j(r) = \exp\frac{-(r-j)^2}{2\sigma_j^2},$$

    at the moved angle $\alpha = \pm(\varphi - \theta)$, minus after a mirror. Those with
    $k \ge 1$ are zero at the centre, where the angle is undefined. The real functions of $k \ge 1$
    are scaled so that their norm is 1 on average over $\theta$: a scale that the moving leaves
    alone, as unit norm for each would not.

    Elements that differ by a symmetry of the pixel grid get bit-identical values at permuted
    pixels, so exactness does not depend on the precision the result is cast to.

    Args:
        size: Side of the filter in pixels; odd.
        group: The symmetries.
        rings: Widths and band limits; at most `size // 2 + 1` rings.
    """
    check_size(size, "turned_basis")
    if len(rings.band_limits) > size // 2 + 1:
        raise ConfigError(
            f"turned_basis: a filter of side {size} holds {size // 2 + 1} rings, "
            f"got {len(rings.band_limits)}"
        )
    moves = torch.tensor([symmetry.element for symmetry in group.grid_symmetries])
    inverses = torch.tensor(group.quotients)[:, 0]
    products = torch.tensor(group.quotients)[inverses[moves]]  # a g: move, element
    first = products.amin(0) == torch.arange(group.order)
    chosen = first.nonzero()[:, 0]  # one element of each orbit under the symmetries of the grid
    samples = _sample(size, [group.elements[g] for g in chosen.tolist()], rings)
    basis = samples.new_zeros(group.order, *samples.shape[1:])
    for row, (_, turns, flip) in zip(products, group.grid_symmetries, strict=True):
        basis[row[chosen]] = permute_grid(samples, turns, flip)
    return basis


def _sample(size: int, elements: list[Element], rings: Rings) -> Float[Tensor, "g q y x"]:
    """Evaluate the formula of `turned_basis`, leaving out functions that are zero everywhere."""
    axis = torch.arange(size, dtype=torch.float64) - size // 2
    y, x = torch.meshgrid(-axis, axis, indexing="ij")  # y points up, rows run down
    radius = torch.hypot(x, y)
    angles = torch.tensor([angle for angle, _ in elements], dtype=torch.float64)
    signs = torch.tensor([-1.0 if flip else 1.0 for _, flip in elements], dtype=torch.float64)
    turned = signs[:, None, None] * (torch.atan2(y, x) - angles[:, None, None])  # g y x
    waves = []
    for j, (limit, width) in enumerate(zip(rings.band_limits, rings.widths, strict=True)):
        ring = torch.exp(-((radius - j) ** 2) / (2 * width**2))
        waves.append((ring / ring.norm()).expand_as(turned))
        punctured = ring * (radius > 0)
        scale = math.sqrt(2) / punctured.norm()
        for k in range(1, limit + 1):
            waves += [scale * punctured * wave(k * turned) for wave in (torch.cos, torch.sin)]
    basis = torch.stack(waves, dim=1)
    alive = basis.abs().amax(dim=(0, 2, 3)) > 1e-9
    return basis[:, alive]


def turned_filters(
    weight: Float[Tensor, "o c h q"],
    basis: Float[Tensor, "g q y x"],
    quotients: Int[Tensor, "g h"],
) -> Float[Tensor, "o g c h y x"]:
    r"""Combine the basis into one filter for every pair of group elements.

    $$K_{o,g,c,h} = \sum_q w_{o,\,c,\,g^{-1}h,\,q}\;\beta_{g,q}$$

    The basis moves the filter in the plane and $g^{-1}h$ moves it along the group axis. Both
    together make the convolution equivariant; either alone does not. A lifting convolution is the
    case of one input element: `h` has size 1 and `quotients` is zero.

    Under autocast the filters come in the precision the convolution is going to use. The basis is
    taken as constant: it gets no gradient.
    """
    device = autocast_device(weight)
    if torch.is_autocast_enabled(device) and weight.dtype == torch.float32:
        weight = weight.to(torch.get_autocast_dtype(device))
    filters: Tensor = _Expand.apply(  # type: ignore[no-untyped-call]
        weight, rearrange(basis, "g q y x -> g q (y x)").to(weight.dtype), quotients
    )
    return rearrange(
        filters, "o g (c h) (y x) -> o g c h y x", c=weight.shape[1], y=basis.shape[-1]
    )


def averaged_filters(
    weight: Float[Tensor, "o c h q"],
    basis: Float[Tensor, "g q y x"],
    quotients: Int[Tensor, "g h"],
) -> Float[Tensor, "o c h y x"]:
    r"""Return the mean of `turned_filters` over the output element, without making them.

    $$\frac{1}{|G|} \sum_g K_{o,g,c,h} = \frac{1}{|G|} \sum_{k,q} w_{o,c,k,q}\;\beta_{hk^{-1},q}$$

    One matrix product, whose result is smaller than all filters by the order of the group.
    """
    moves = quotients.argsort(dim=0)  # k h: the g with g⁻¹h = k, which is hk⁻¹
    means = basis[moves].to(weight.dtype) / len(basis)
    return einsum(weight, means, "o c k q, k h q y x -> o c h y x")


class _Expand(torch.autograd.Function):
    """The sum of `turned_filters`, whose gradient gathers where autograd would scatter.

    For each `g` the index g⁻¹h is a permutation, which autograd cannot know: it would add up the
    gradient with atomic operations on a GPU. And it would keep a copy of the basis per channel.

    On a GPU the filters have channels last in memory, as convolutions like them, and the sum over
    `q` is filled up with zeros to whole pieces of 16 bytes, as matrix units do.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, basis: Tensor, quotients: Tensor) -> Tensor:
        on_gpu, ctx.functions = _on_gpu(weight), weight.shape[-1]
        if on_gpu:
            spare = -weight.shape[-1] % 8
            weight = pad(weight, (0, spare))
            basis = pad(basis, (0, 0, 0, spare)).mT.contiguous().mT
        ctx.save_for_backward(basis, quotients)
        channel = torch.arange(weight.shape[1], device=weight.device)[:, None]

        def expand(weight: Tensor) -> Tensor:
            spread = rearrange(weight[:, channel, quotients[:, None]], "o g c h q -> o g (c h) q")
            return (basis.mT @ spread.mT).mT if on_gpu else spread @ basis

        return _in_blocks(expand, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        basis, quotients = ctx.saved_tensors
        products = quotients.argsort(dim=1)  # the inverse of each permutation
        order, in_order = quotients.shape
        element = torch.arange(order, device=gradient.device)[:, None, None]
        channel = torch.arange(gradient.shape[2] // in_order, device=gradient.device)[:, None]

        def gather(gradient: Tensor) -> Tensor:
            rows: Tensor = gradient @ basis.mT
            spread = rearrange(rows, "o g (c h) q -> o g c h q", h=in_order)
            return spread[:, element, channel, products[:, None]].sum(dim=1)

        return _in_blocks(gather, gradient)[..., : ctx.functions], None, None


def _on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def _in_blocks(function: Callable[[Tensor], Tensor], x: Tensor, *, block: int = 4) -> Tensor:
    """Apply a function along the first axis; on a CPU in blocks whose temporaries stay in cache.

    Otherwise page faults on temporaries of a hundred megabytes cost more than the arithmetic.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling() or torch.is_grad_enabled():
        return function(x)
    first = function(x[:block])
    out = first.new_empty(len(x), *first.shape[1:])
    out[:block] = first
    for start in range(block, len(x), block):
        out[start : start + block] = function(x[start : start + block])
    return out
