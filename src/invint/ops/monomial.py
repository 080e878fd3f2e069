"""Group averages of monomials, in the log domain; for backward only the map is kept.

Axes   b batch   c channel   g group element   h w pixels   m monomial   i factor
       d distinct offset of a factor   r distinct move of the offsets
       n sampled point, (r d h w)   p pixel, before group pooling of an element: (g h w)   t tap
       k column, a (b c) pair: every column is treated alike and apart
"""

import functools
import importlib.util
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag

from invint.groups import Group
from invint.ops.grids import bilinear_taps, grid_points, moved_points
from invint.ops.tensors import autocast_device, on_cpu


class Taps(NamedTuple):
    """Where a map is sampled, as a sparse matrix and its transpose.

    Row n of the matrix has the entries `shares[n]` in the columns `pixels[n]`; row p of the
    transposed matrix has `point_shares[p]` in `points[p]`.
    """

    pixels: Int[Tensor, "n t"]
    shares: Float[Tensor, "n t"]
    points: Int[Tensor, "p u"]
    point_shares: Float[Tensor, "p u"]


class Sampling(NamedTuple):
    """`Taps`, and the same as shifts of the whole map.

    Every offset but the first, which is zero, has a shift for each move: a step in a frame whose
    rows have `width` + `reach` + 1 pixels, and the parts of a pixel that are left, down and right,
    as the bits of float32.
    """

    pixels: Int[Tensor, "n t"]
    shares: Float[Tensor, "n t"]
    points: Int[Tensor, "p u"]
    point_shares: Float[Tensor, "p u"]
    shifts: Int[Tensor, "e r 3"]


class Plan(NamedTuple):
    """What kernels are compiled for.

    Attributes:
        offsets: Index of the offset of each factor, monomial by monomial.
        whole: How many moves shift every offset by whole pixels; their shifts come first.
        reach: The largest shift, rounded up.
    """

    offsets: tuple[int, ...]
    whole: int
    reach: int


@on_cpu  # not remembered: with random offsets it would never be asked for again
def ray_sampling(
    group: Group, offsets: tuple[tuple[float, float], ...], height: int, width: int
) -> Sampling:
    """Sample a map at every offset, moved by every element, from every pixel.

    Elements that move all offsets alike, such as a mirror along the ray, are counted once.

    Args:
        group: The symmetries.
        offsets: Position (x, y) of each factor relative to the first, in pixels, y up; the first
            is (0, 0).
        height: Rows of the map.
        width: Columns of the map.
    """
    moves = _moves(group, offsets)
    _, kind = torch.unique(torch.round(moves, decimals=9), dim=0, return_inverse=True)
    chosen = [int((kind == number).nonzero()[0, 0]) for number in range(int(kind.max()) + 1)]
    distinct = moves[sorted(chosen)]
    taps = bilinear_taps(_sampled_points(distinct, height, width), height, width)
    shifts = _shifts(distinct[:, 1:], width + _reach(offsets) + 1)
    return Sampling(*taps, *_transposed(*taps, height * width), shifts)


@on_cpu
def joint_sampling(
    group: Group,
    offsets: tuple[tuple[float, float], ...],
    elements: tuple[int, ...],
    height: int,
    width: int,
) -> Sampling:
    """Sample a map on the group at every place, moved by every element, from every pixel.

    A place is an offset and an element: moved by g it is the offset moved by g, in the map of the
    product of g and the element. Offsets of whole pixels stay whole under quarter turns.

    Args:
        group: The symmetries.
        offsets: Position (x, y) of each place relative to the first, as for `ray_sampling`.
        elements: Number of the element of each place; the first is 0, the identity.
        height: Rows of the map.
        width: Columns of the map.
    """
    moves = _moves(group, offsets)
    moves = torch.where((moves - moves.round()).abs() < 1e-9, moves.round(), moves)
    pixels, shares = bilinear_taps(_sampled_points(moves, height, width), height, width)
    products = torch.tensor(group.quotients).argsort(dim=1)[:, list(elements)]  # g h
    layers = repeat(products, "r d -> (r d p) 1", p=height * width)
    taps = torch.where(shares > 0, pixels + layers * height * width, 0), shares
    shifts = _shifts(moves[:, 1:], width + _reach(offsets) + 1)
    return Sampling(*taps, *_transposed(*taps, group.order * height * width), shifts)


def _moves(group: Group, offsets: tuple[tuple[float, float], ...]) -> Float[Tensor, "r d 2"]:
    points = torch.tensor(offsets, dtype=torch.float64)
    return torch.stack([moved_points(points, element) for element in group.elements])


def _sampled_points(moves: Float[Tensor, "r d 2"], height: int, width: int) -> Float[Tensor, "n 2"]:
    centres = rearrange(moves, "r d xy -> (r d) 1 xy")
    return rearrange(centres + grid_points(height, width), "rd p xy -> (rd p) xy")


def sampling_plan(
    sampling: Sampling, numbers: tuple[int, ...], offsets: tuple[tuple[float, float], ...]
) -> Plan:
    """Return the plan for factors with these indices among the offsets that are sampled."""
    return Plan(numbers, int(_whole(sampling.shifts).sum()), _reach(offsets))


def _reach(offsets: tuple[tuple[float, float], ...]) -> int:
    return math.ceil(max(math.hypot(*offset) for offset in offsets) - 1e-6)


def _shifts(moves: Float[Tensor, "r e 2"], stride: int) -> Int[Tensor, "e r 3"]:
    down_right = torch.round(rearrange(moves, "r e xy -> e r xy").flip(-1), decimals=6)
    down_right[..., 0] *= -1  # y is up
    whole = down_right.floor()
    parts = (down_right - whole).float().view(torch.int32)
    steps = whole[..., :1] * stride + whole[..., 1:]
    shifts = torch.cat((steps.int(), parts), dim=-1)
    return shifts[:, torch.argsort(~_whole(shifts), stable=True)]


def _whole(shifts: Int[Tensor, "e r 3"]) -> Bool[Tensor, " r"]:
    return (shifts[..., 1:] == 0).all(dim=-1).all(dim=0)


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
    x: Float[Tensor, "b c *g h w"],
    exponents: Float[Tensor, "m i"],
    numbers: Int[Tensor, "m i"],
    sampling: Sampling,
    *,
    plan: Plan,
    floor: float,
) -> Float[Tensor, "b c m"]:
    r"""Average monomials over all positions and the group, each channel by itself.

    $$A_m(x) = \frac{1}{UV|G|} \sum_{g,u,v}
      \prod_i \bigl(\max(x, 0)[(u,v) + g\,\delta_{mi}] + \varepsilon\bigr)^{b_{mi}}$$

    with $x$ interpolated bilinearly and zero outside. The product is a sum of logarithms, one
    matrix product for all monomials; backward computes it again instead of keeping it. Values
    above $e^{75}$ (in float32; 0.85 of the logarithm of the largest number in general, and less on
    maps of more than 200,000 pixels times elements) count as that, with the gradient of a monomial
    of that value: room for sums over a large batch.

    Before group pooling a factor has an element $h_{mi}$ as well, and its value is that of
    $x[(u,v) + g\,\delta_{mi},\; g\,h_{mi}]$.

    Args:
        x: Feature map; negative values count as zero. Half precision is computed in float32.
        exponents: Exponent of every factor.
        numbers: Index of the offset of every factor.
        sampling: `ray_sampling` of the group, the offsets and the size of the map; for a map before
            group pooling `joint_sampling`, with the elements as well.
        plan: `sampling_plan` of the same.
        floor: What is added to every sample, so that its logarithm is finite.
    """
    # A file holds PyTorch's own operators only. Dynamo says it exports whenever it traces.
    if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
        powers = _powers(exponents, numbers, len(sampling.shifts) + 1)
        return _plain_average(x, powers, Taps(*sampling[:4]), floor)
    numbered = list(plan.offsets), plan.whole, plan.reach
    averages: Tensor = _average(x, exponents, numbers, *sampling, *numbered, floor)
    return averages


# Opaque to the compiler: it would keep for backward what is computed again here.
@torch.library.custom_op("invint::monomial_average", mutates_args=())
def _average(  # noqa: PLR0913
    x: Tensor,
    exponents: Tensor,
    numbers: Tensor,
    pixels: Tensor,
    shares: Tensor,
    points: Tensor,
    point_shares: Tensor,
    shifts: Tensor,
    offsets: list[int],
    whole: int,
    reach: int,
    floor: float,
) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros((x.shape[0], x.shape[1], len(exponents)), dtype=exponents.dtype)
    if _has_kernel(x, exponents):
        from invint.ops.monomial_triton import run_average

        plan = Plan(tuple(offsets), whole, reach)
        x, exponents = x.contiguous(), exponents.contiguous()
        return run_average(x, exponents, shifts, plan, floor=floor)
    taps = Taps(pixels, shares, points, point_shares)
    powers = _powers(exponents, numbers, len(shifts) + 1)
    return _plain_average(x, powers, taps, floor).contiguous()


@torch.library.custom_op("invint::monomial_gradients", mutates_args=())
def _gradients(  # noqa: PLR0913
    gradient: Tensor,
    x: Tensor,
    exponents: Tensor,
    numbers: Tensor,
    pixels: Tensor,
    shares: Tensor,
    points: Tensor,
    point_shares: Tensor,
    shifts: Tensor,
    offsets: list[int],
    whole: int,
    reach: int,
    floor: float,
) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        return x.new_zeros(x.shape), exponents.new_zeros(exponents.shape)
    if _has_kernel(x, exponents):
        from invint.ops.monomial_triton import run_gradients

        plan = Plan(tuple(offsets), whole, reach)
        gradient, x, exponents = gradient.contiguous(), x.contiguous(), exponents.contiguous()
        return run_gradients(gradient, x, exponents, shifts, plan, floor=floor)
    taps = Taps(pixels, shares, points, point_shares)
    powers = _powers(exponents, numbers, len(shifts) + 1)
    to_x, to_powers = _plain_gradients(gradient, x, powers, taps, floor)
    return to_x.contiguous(), to_powers.gather(1, numbers)


@_average.register_fake
def _(x: Tensor, exponents: Tensor, *_: Any) -> Tensor:
    return x.new_empty((x.shape[0], x.shape[1], len(exponents)), dtype=exponents.dtype)


@_gradients.register_fake
def _(gradient: Tensor, x: Tensor, exponents: Tensor, *_: Any) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return x.new_empty(x.shape), exponents.new_empty(exponents.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:8])
    ctx.rest = inputs[8:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    with torch.autocast(autocast_device(gradient), enabled=False):  # backward may run inside one
        gradients = _gradients(gradient, *ctx.saved_tensors, *ctx.rest)
    return *gradients, *(None,) * 10


_average.register_autograd(_backward, setup_context=_keep)


def _has_kernel(x: Tensor, exponents: Tensor) -> bool:
    """Tell whether Triton's kernels take these tensors; a map on the group they do not."""
    halves = (torch.float32, torch.bfloat16, torch.float16)
    fits = x.ndim == 4 and x.dtype in halves and exponents.dtype == torch.float32
    return fits and x.device.type == "cuda" and _has_triton()


@functools.cache
def _has_triton() -> bool:
    return torch.version.cuda is not None and importlib.util.find_spec("triton") is not None


def _plain_average(x: Tensor, powers: Tensor, taps: Taps, floor: float) -> Tensor:
    """Average column block by column block."""
    rows, averages = _rows(x), []
    terms = _Terms(rows, powers, floor, taps, x.shape[-2] * x.shape[-1])
    for block in _blocks(rows, powers, terms.count):
        columns = _columns(rows[block], powers)
        samples = _weighted_rows(columns, taps.pixels, taps.shares).add_(floor)
        averages.append(terms(samples.log_()).sum(dim=2).sum(dim=0) / terms.count)
    return rearrange(torch.cat(averages, dim=1), "m (b c) -> b c m", c=x.shape[1])


def _plain_gradients(
    gradient: Tensor, x: Tensor, powers: Tensor, taps: Taps, floor: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the map and of the powers."""
    rows = _rows(x)
    terms = _Terms(rows, powers, floor, taps, x.shape[-2] * x.shape[-1])
    upstream = rearrange(gradient / terms.count, "b c m -> m (b c)")
    to_rows, to_powers = torch.empty_like(rows), torch.zeros_like(powers)
    for block in _blocks(rows, powers, terms.count):
        columns = _columns(rows[block], powers)
        samples = _weighted_rows(columns, taps.pixels, taps.shares).add_(floor)
        logs = samples.log()
        weighted = terms(logs).mul_(upstream[:, None, block])
        weighted = rearrange(weighted, "r m p k -> r m (p k)")
        to_powers += (weighted @ terms.by_move(logs).mT).sum(dim=0)
        slopes = rearrange(powers.mT @ weighted, "r d (p k) -> (r d p) k", k=logs.shape[1])
        slopes = _weighted_rows(slopes.div_(samples), taps.points, taps.point_shares)
        to_rows[block] = slopes.where(columns > 0, 0.0).T
    return to_rows.view(x.shape), to_powers


def _rows(x: Tensor) -> Float[Tensor, "k p"]:
    return rearrange(x, "b c ... -> (b c) (...)").contiguous()


def _columns(rows: Float[Tensor, "k p"], like: Tensor) -> Float[Tensor, "p k"]:
    return rows.T.to(like.dtype).relu().contiguous()


def _powers(
    exponents: Float[Tensor, "m i"], numbers: Int[Tensor, "m i"], count: int
) -> Float[Tensor, "m d"]:
    """Add up the exponents of each monomial at each offset."""
    powers = exponents.new_zeros(len(exponents), count)
    return powers.scatter_add(1, numbers, exponents)


class _Terms:
    """The terms whose mean is the average, in the same memory for one block after another.

    On a CPU, asking for new megabytes for each block costs more than filling them. A product for
    each move is shared out among the cores as its elements are afterwards; one large product is
    not, and what one core has in its cache another one needs.
    """

    def __init__(self, rows: Tensor, powers: Tensor, floor: float, taps: Taps, pixels: int) -> None:
        self.powers, self.pixels = powers, pixels
        self.count = len(taps.pixels) // powers.shape[1]
        self.room = powers.new_empty(0)
        largest = math.log(torch.finfo(powers.dtype).max)
        self.bound: float | None = min(0.85 * largest, largest - math.log(self.count) - 1)
        if _on_cpu(rows):  # on a GPU looking would mean waiting for it
            least, most = math.log(floor), math.log(max(rows.max().item(), 0.0) + floor)
            reached = torch.maximum(least * powers, most * powers).sum(dim=1).max().item()
            self.bound = None if reached < self.bound else self.bound

    def __call__(self, logs: Float[Tensor, "n k"]) -> Float[Tensor, "r m p k"]:
        """Return terms that are valid until the next call."""
        products = self._products(self.by_move(logs))
        products = products if self.bound is None else products.clamp_(max=self.bound)
        return rearrange(products.exp_(), "r m (p k) -> r m p k", p=self.pixels)

    def by_move(self, logs: Float[Tensor, "n k"]) -> Float[Tensor, "r d pk"]:
        """Return a matrix for each move."""
        sizes = {"d": self.powers.shape[1], "p": self.pixels}
        return rearrange(logs, "(r d p) k -> r d (p k)", **sizes)

    def _products(self, logs: Float[Tensor, "r d pk"]) -> Float[Tensor, "r m pk"]:
        powers = self.powers.expand(len(logs), -1, -1)
        if torch.compiler.is_compiling():
            return powers @ logs
        shape = len(logs), len(self.powers), logs.shape[2]
        if self.room.numel() < math.prod(shape):
            self.room = logs.new_empty(math.prod(shape))
        room = rearrange(self.room[: math.prod(shape)], "(r m n) -> r m n", r=shape[0], m=shape[1])
        return torch.bmm(powers, logs, out=room)


def _weighted_rows(x: Tensor, index: Tensor, share: Tensor) -> Tensor:
    """Multiply the sparse matrix of the taps with `x`."""
    if torch.compiler.is_compiling():
        return (x[index] * share[..., None]).sum(dim=1)
    return embedding_bag(index, x.contiguous(), per_sample_weights=share, mode="sum")


def _blocks(rows: Tensor, powers: Tensor, count: int) -> Iterator[slice]:
    """Cut the columns into blocks whose temporaries fit a cache, or a part of a GPU's memory."""
    if torch.compiler.is_compiling():
        return iter([slice(None)])
    budget = 2**21 if _on_cpu(rows) else 2**27
    monomials, offsets = powers.shape
    held = count * (monomials + 3 * offsets)  # terms; samples, logarithms, slopes
    width = max(16, budget // held // 16 * 16)
    return (slice(start, start + width) for start in range(0, len(rows), width))


def _on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
