"""Group averages of monomials, in the log domain, with memory that does not grow with their number.

Axes   b batch   c channel   h w pixels   m monomial   i factor   d distinct offset of a factor
       r distinct move of the offsets   n sampled point, (d r h w)   p pixel   t tap
       k column, a (b c) pair: every column is treated alike and apart
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from invint.groups import Group
from invint.ops.constants import on_cpu
from invint.ops.interpolation import bilinear_taps, grid_points, moved_points


class Sampling(NamedTuple):
    """Where a map is sampled, as a sparse matrix and its transpose.

    Row n of the matrix has the entries `shares[n]` in the columns `pixels[n]`; row p of the
    transposed matrix has `point_shares[p]` in `points[p]`.
    """

    pixels: Int[Tensor, "n t"]
    shares: Float[Tensor, "n t"]
    points: Int[Tensor, "p u"]
    point_shares: Float[Tensor, "p u"]


@on_cpu  # not remembered: with random offsets it would never be asked for again
def ray_sampling(
    group: Group, offsets: tuple[tuple[float, float], ...], height: int, width: int
) -> Sampling:
    """Sample a map at every offset, moved by every element, from every pixel.

    Elements that move all offsets alike, such as a mirror along the ray, are counted once.

    Args:
        group: The symmetries.
        offsets: Position (x, y) of each factor relative to the first, in pixels, y up.
        height: Rows of the map.
        width: Columns of the map.
    """
    points = torch.tensor(offsets, dtype=torch.float64)
    moves = torch.stack([moved_points(points, element) for element in group.elements])
    _, kind = torch.unique(torch.round(moves, decimals=9), dim=0, return_inverse=True)
    chosen = [int((kind == number).nonzero()[0, 0]) for number in range(int(kind.max()) + 1)]
    distinct = rearrange(moves[sorted(chosen)], "r d xy -> (d r) 1 xy")
    places = rearrange(distinct + grid_points(height, width), "dr p xy -> (dr p) xy")
    taps = bilinear_taps(places, height, width)
    return Sampling(*taps, *_transposed(*taps, height * width))


def _transposed(columns: Tensor, shares: Tensor, count: int) -> tuple[Tensor, Tensor]:
    row, tap = torch.nonzero(shares, as_tuple=True)
    column, share = columns[row, tap], shares[row, tap]
    order = torch.argsort(column, stable=True)
    counts = torch.bincount(column, minlength=count)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(row)) - starts[column[order]]
    shape = count, int(counts.max())
    rows, transposed = torch.zeros(shape, dtype=torch.long), shares.new_zeros(shape)
    rows[column[order], place] = row[order]
    transposed[column[order], place] = share[order]
    return rows, transposed


def monomial_averages(
    x: Float[Tensor, "b c h w"],
    powers: Float[Tensor, "m d"],
    sampling: Sampling,
    *,
    floor: float,
) -> Float[Tensor, "b c m"]:
    r"""Average monomials over all positions and the group, each channel by itself.

    $$A_m(x) = \frac{1}{UV|G|} \sum_{g,u,v}
      \prod_d \bigl(\max(x, 0)[(u,v) + g\,\delta_d] + \varepsilon\bigr)^{b_{md}}$$

    with $x$ interpolated bilinearly and zero outside. The product is a sum of logarithms, one
    matrix product for all monomials; backward computes it again instead of keeping it. Values
    above $e^{75}$ (in float32; 0.85 of the logarithm of the largest number in general) count as
    that, with the gradient of a monomial of that value: room for sums over a large batch.

    Args:
        x: Feature map; negative values count as zero.
        powers: Exponent of every monomial at every offset; zero where it has no factor.
        sampling: `ray_sampling` of the group, the offsets and the size of the map.
        floor: What is added to every sample, so that its logarithm is finite.
    """
    if not torch.compiler.is_compiling() and x.shape[0] == 0:
        return x.new_zeros(0, x.shape[1], len(powers))
    columns = rearrange(x, "b c h w -> (h w) (b c)").relu()
    averages: Tensor = _Average.apply(columns, powers, *sampling, floor)  # type: ignore[no-untyped-call]
    return rearrange(averages, "m (b c) -> b c m", c=x.shape[1])


class _Average(torch.autograd.Function):
    """`(p, k)` and `(m, d)` to `(m, k)`, column block by column block."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, powers: Tensor, *rest: Any) -> Tensor:
        *taps, floor = rest
        ctx.save_for_backward(x, powers, *taps)
        ctx.floor = floor
        columns, shares = taps[:2]
        averages = []
        for block in _blocks(x, powers, len(columns)):
            logs = _weighted_rows(x[:, block], columns, shares).add_(floor).log_()
            averages.append(_terms(logs, powers).sum(dim=1))
        return torch.cat(averages, dim=1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, powers, columns, shares, points, point_shares = ctx.saved_tensors
        x_gradients, powers_gradient = [], torch.zeros_like(powers)
        for block in _blocks(x, powers, len(columns)):
            samples = _weighted_rows(x[:, block], columns, shares).add_(ctx.floor)
            logs = samples.log()
            terms = _terms(logs, powers).mul_(gradient[:, None, block])
            terms = rearrange(terms, "m rp k -> m (rp k)")
            powers_gradient += terms @ rearrange(logs, "(d rp) k -> (rp k) d", d=powers.shape[1])
            rows = rearrange(powers.mT @ terms, "d (rp k) -> (d rp) k", k=samples.shape[1])
            x_gradients.append(_weighted_rows(rows.div_(samples), points, point_shares))
        return torch.cat(x_gradients, dim=1), powers_gradient, *(None,) * 5


def _terms(logs: Tensor, powers: Tensor) -> Tensor:
    """Return the terms `(m, rp, k)` whose sum over `rp` is the average."""
    flat = rearrange(logs, "(d rp) k -> d (rp k)", d=powers.shape[1])
    bound = 0.85 * math.log(torch.finfo(logs.dtype).max)
    count = math.log(len(logs) // powers.shape[1])  # divides before the sum can overflow
    terms = (powers @ flat).clamp_(max=bound).sub_(count).exp_()
    return rearrange(terms, "m (rp k) -> m rp k", k=logs.shape[1])


def _weighted_rows(x: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """Multiply the sparse matrix of the taps with `x`."""
    if torch.compiler.is_compiling():
        return (x[index] * share[..., None]).sum(dim=1)
    return embedding_bag(index, x.contiguous(), per_sample_weights=share, mode="sum")


def _blocks(x: Tensor, powers: Tensor, points: int) -> Iterator[slice]:
    """Cut the columns into blocks whose temporaries fit a cache, or a share of a GPU's memory."""
    columns = x.shape[1]
    if torch.compiler.is_compiling():
        return iter([slice(None)])
    budget = 2**20 if x.device.type == "cpu" else 2**27
    per_column = points // powers.shape[1] * max(powers.shape)
    width = max(16, budget // per_column)
    return (slice(start, start + width) for start in range(0, columns, width))
