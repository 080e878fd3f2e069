"""Group averages of monomials in Triton kernels: no sample and no term ever reaches memory.

A thread keeps a pixel and all monomials of a chunk, so that only sums over pixels are exchanged,
once. A program walks over maps (a map is a (b c) pair). It copies one into a frame of the floor:
every sample is then four values at constant places, without a test for the border, or one where
a move leads to whole pixels. The gradient of a sample goes back the same way, from a frame of
zeros, in a fixed order: results do not vary.

Which offset a factor has is part of the compiled program, the exponents are not. Offset 0 is the
centre, the others are called rings.
"""

# Kernels are not Python, though they look like it: capitals are known when a kernel is compiled,
# and tuples grow by addition only.
# ruff: noqa: N803, PLR0913, RET505, RUF005, SIM108
# mypy: ignore-errors

import functools
import itertools
import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from invint.ops.monomial import Plan

INTERPRETED = bool(triton.knobs.runtime.interpret)


class Chunk(NamedTuple):
    """Monomials that are computed together.

    Attributes:
        numbers: Which ones.
        rings: The rings they use.
        places: For each factor of each monomial 0, the centre, or 1 + the position of its ring.
    """

    numbers: tuple[int, ...]
    rings: tuple[int, ...]
    places: tuple[int, ...]


class Launch(NamedTuple):
    """How the work is cut up."""

    chunk: int  # factors that are computed together
    block: int  # pixels
    warps: int
    programs: int  # for each processor


def chunks(offsets: tuple[int, ...], factors: int, size: int) -> list[Chunk]:
    """Cut monomials into chunks of one size that use few rings each.

    Args:
        offsets: Number of the offset of each factor of each monomial; 0 is the centre.
        factors: Factors of each monomial.
        size: Largest number of monomials in a chunk.
    """
    rows = [offsets[start : start + factors] for start in range(0, len(offsets), factors)]
    order = sorted(range(len(rows)), key=lambda number: sorted(rows[number], reverse=True))
    count = math.ceil(len(rows) / size)
    cuts = [len(rows) * number // count for number in range(count + 1)]
    found = []
    for start, stop in itertools.pairwise(cuts):
        numbers = tuple(order[start:stop])
        rings = sorted({offset for number in numbers for offset in rows[number]} - {0})
        place = {0: 0} | {ring: 1 + position for position, ring in enumerate(rings)}
        places = tuple(place[offset] for number in numbers for offset in rows[number])
        found.append(Chunk(numbers, tuple(ring - 1 for ring in rings), places))
    return found


@triton.jit
def _log2(x, FAST: tl.constexpr):
    if FAST:
        return tl.inline_asm_elementwise(
            "lg2.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def _fill(frame, value: tl.constexpr, SPACE: tl.constexpr, BLOCK: tl.constexpr):
    """Set every value of a frame."""
    for start in range(0, SPACE, BLOCK):
        place = start + tl.arange(0, BLOCK)
        tl.store(frame + place, tl.full([BLOCK], value, tl.float32), mask=place < SPACE)


@triton.jit
def _places(start, H: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr):
    """Return pixels, which of them exist, and where they are in a frame."""
    pixel = start + tl.arange(0, BLOCK)
    exists = pixel < H * W
    pixel = tl.minimum(pixel, H * W - 1)
    return pixel, exists, (pixel // W + PAD) * (W + PAD) + pixel % W + PAD


@triton.jit
def _copy(
    x, frame, floor: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy a map into its frame: negative values count as zero, and the floor is added."""
    for start in range(0, H * W, BLOCK):
        pixel, exists, place = _places(start, H, W, PAD, BLOCK)
        value = tl.load(x + pixel).to(tl.float32)
        tl.store(
            frame + place,
            tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL) + floor,
            mask=exists,
        )


@triton.jit
def _parts(shift):
    """Load what is left of a shift beside its whole pixels, down and right."""
    down = tl.load(shift + 1).to(tl.float32, bitcast=True)
    return down, tl.load(shift + 2).to(tl.float32, bitcast=True)


@triton.jit
def _between(a, b, c, d, parts):
    """Interpolate between a b in one row and c d in the next."""
    down, right = parts
    return (1 - down) * ((1 - right) * a + right * b) + down * ((1 - right) * c + right * d)


@triton.jit
def _logarithms(
    frame, shifts, RINGS: tl.constexpr, MOVES: tl.constexpr, STRIDE: tl.constexpr,
    WHOLE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Return the logarithms of the samples at the centre and on each ring."""
    logs = (_log2(tl.load(frame), FAST),)
    for ring in tl.static_range(len(RINGS)):
        shift = shifts + RINGS[ring] * MOVES * 3
        at = frame + tl.load(shift)
        sample = tl.load(at)
        if not WHOLE:
            c, d = tl.load(at + STRIDE), tl.load(at + STRIDE + 1)
            sample = _between(sample, tl.load(at + 1), c, d, _parts(shift))
        logs = logs + (_log2(sample, FAST),)
    return logs


@triton.jit
def _numbers(table, NUMBERS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load rows of a table as single numbers."""
    found = ()
    for m in tl.static_range(len(NUMBERS)):
        for column in tl.static_range(COLUMNS):
            found = found + (tl.load(table + NUMBERS[m] * COLUMNS + column),)
    return found


@triton.jit
def _zeros(COUNT: tl.constexpr, BLOCK: tl.constexpr):
    found = ()
    for _ in tl.static_range(COUNT):
        found = found + (tl.zeros([BLOCK], tl.float32),)
    return found


@triton.jit
def _term(
    m: tl.constexpr, logs, powers, log_count, bound: tl.constexpr,
    PLACES: tl.constexpr, FACTORS: tl.constexpr,
):  # fmt: skip
    """Return a monomial's share of its average; none where the count is infinite."""
    exponent = -log_count
    for i in tl.static_range(FACTORS):
        exponent += powers[m * FACTORS + i] * logs[PLACES[m * FACTORS + i]]
    return tl.exp2(tl.minimum(exponent, bound, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def _increased_by_terms(
    totals, frame, shifts, powers, log_count, bound: tl.constexpr,
    STRIDE: tl.constexpr, MOVES: tl.constexpr, RINGS: tl.constexpr, PLACES: tl.constexpr,
    FACTORS: tl.constexpr, WHOLE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Add the terms of one move to what the others gave."""
    logs = _logarithms(frame, shifts, RINGS, MOVES, STRIDE, WHOLE, FAST)
    sums = ()
    for m in tl.static_range(len(totals)):
        sums = sums + (totals[m] + _term(m, logs, powers, log_count, bound, PLACES, FACTORS),)
    return sums


@triton.jit
def _average(
    x, exponents, shifts, out, scratch, maps,
    floor: tl.constexpr, bound: tl.constexpr, log_count: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr, SPACE: tl.constexpr,
    MOVES: tl.constexpr, WHOLE_MOVES: tl.constexpr,
    NUMBERS: tl.constexpr, RINGS: tl.constexpr, PLACES: tl.constexpr,
    FACTORS: tl.constexpr, MONOMIALS: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    frame = scratch + program.to(tl.int64) * SPACE
    _fill(frame, floor, SPACE, BLOCK)
    powers = _numbers(exponents, NUMBERS, FACTORS)
    number = program
    while number < maps:
        tl.debug_barrier()
        _copy(x + number.to(tl.int64) * (H * W), frame, floor, H, W, PAD, BLOCK)
        tl.debug_barrier()
        totals = _zeros(len(NUMBERS), BLOCK)
        for start in range(0, H * W, BLOCK):
            _, exists, place = _places(start, H, W, PAD, BLOCK)
            count = tl.where(exists, log_count, float("inf"))
            for move in range(WHOLE_MOVES):
                totals = _increased_by_terms(
                    totals, frame + place, shifts + 3 * move, powers, count, bound,
                    W + PAD, MOVES, RINGS, PLACES, FACTORS, True, FAST,
                )  # fmt: skip
            for move in range(WHOLE_MOVES, MOVES):
                totals = _increased_by_terms(
                    totals, frame + place, shifts + 3 * move, powers, count, bound,
                    W + PAD, MOVES, RINGS, PLACES, FACTORS, False, FAST,
                )  # fmt: skip
        for m in tl.static_range(len(NUMBERS)):
            tl.store(out + number.to(tl.int64) * MONOMIALS + NUMBERS[m], tl.sum(totals[m]))
        number += tl.num_programs(0)


@triton.jit
def _collect(
    slopes, shifts, RINGS: tl.constexpr, MOVES: tl.constexpr,
    SPACE: tl.constexpr, STRIDE: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Transpose the sampling of rings: add up, for each pixel, its shares of samples around it."""
    total = tl.load(slopes)
    for ring in tl.static_range(len(RINGS)):
        shift = shifts + RINGS[ring] * MOVES * 3
        at = slopes + (ring + 1) * SPACE - tl.load(shift)
        slope = tl.load(at)
        if not WHOLE:
            c, d = tl.load(at - STRIDE), tl.load(at - STRIDE - 1)
            slope = _between(slope, tl.load(at - 1), c, d, _parts(shift))
        total += slope
    return total


@triton.jit
def _increased(values, place: tl.constexpr, by):
    """Add to one of several values."""
    found = ()
    for number in tl.static_range(len(values)):
        if number == place:
            found = found + (values[number] + by,)
        else:
            found = found + (values[number],)
    return found


@triton.jit
def _gradients_of_terms(
    to_powers, frame, slopes, exists, shifts, powers, upstream, log_count, bound: tl.constexpr,
    SPACE: tl.constexpr, STRIDE: tl.constexpr, MOVES: tl.constexpr, RINGS: tl.constexpr,
    PLACES: tl.constexpr, FACTORS: tl.constexpr, BLOCK: tl.constexpr,
    WHOLE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Write the slope of each sample, and return those of the exponents so far."""
    logs = _logarithms(frame, shifts, RINGS, MOVES, STRIDE, WHOLE, FAST)
    sums, to_logs = (), _zeros(len(RINGS) + 1, BLOCK)
    for m in tl.static_range(len(upstream)):
        term = _term(m, logs, powers, log_count, bound, PLACES, FACTORS) * upstream[m]
        for i in tl.static_range(FACTORS):
            log, power = logs[PLACES[m * FACTORS + i]], powers[m * FACTORS + i]
            sums = sums + (to_powers[m * FACTORS + i] + term * log,)
            to_logs = _increased(to_logs, PLACES[m * FACTORS + i], term * power)
    for d in tl.static_range(len(RINGS) + 1):
        tl.store(slopes + d * SPACE, to_logs[d] * tl.exp2(-logs[d]), mask=exists)
    return sums


@triton.jit
def _gradients_of_move(
    to_powers, frame, slopes, x_sum, shifts, powers, upstream, new,
    bound: tl.constexpr, log_count: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr, SPACE: tl.constexpr,
    MOVES: tl.constexpr, RINGS: tl.constexpr, PLACES: tl.constexpr,
    FACTORS: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Add one move's gradient of the map, and return that of the exponents so far."""
    for start in range(0, H * W, BLOCK):
        _, exists, place = _places(start, H, W, PAD, BLOCK)
        count = tl.where(exists, log_count, float("inf"))
        to_powers = _gradients_of_terms(
            to_powers, frame + place, slopes + place, exists, shifts, powers, upstream, count,
            bound, SPACE, W + PAD, MOVES, RINGS, PLACES, FACTORS, BLOCK, WHOLE, FAST,
        )  # fmt: skip
    tl.debug_barrier()  # all slopes are written before pixels collect them
    for start in range(0, H * W, BLOCK):
        pixel, exists, place = _places(start, H, W, PAD, BLOCK)
        total = _collect(slopes + place, shifts, RINGS, MOVES, SPACE, W + PAD, WHOLE)
        total += tl.load(x_sum + pixel, mask=not new, other=0.0)
        tl.store(x_sum + pixel, total, mask=exists)
    tl.debug_barrier()  # and collected before the next move overwrites them
    return to_powers


@triton.jit
def _gradients(
    x, exponents, shifts, gradient, x_sum, x_gradient, exponents_gradient, scratch, maps,
    floor: tl.constexpr, bound: tl.constexpr, log_count: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, PAD: tl.constexpr, SPACE: tl.constexpr,
    MOVES: tl.constexpr, WHOLE_MOVES: tl.constexpr,
    NUMBERS: tl.constexpr, RINGS: tl.constexpr, PLACES: tl.constexpr,
    FACTORS: tl.constexpr, MONOMIALS: tl.constexpr, BLOCK: tl.constexpr, FAST: tl.constexpr,
    FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    frame = scratch + program.to(tl.int64) * ((len(RINGS) + 2) * SPACE)
    slopes = frame + SPACE
    _fill(frame, floor, SPACE, BLOCK)
    _fill(slopes, 0.0, (len(RINGS) + 1) * SPACE, BLOCK)
    powers = _numbers(exponents, NUMBERS, FACTORS)
    to_powers = _zeros(len(PLACES), BLOCK)
    number = program
    while number < maps:
        first = number.to(tl.int64) * (H * W)
        tl.debug_barrier()
        _copy(x + first, frame, floor, H, W, PAD, BLOCK)
        tl.debug_barrier()
        upstream = _numbers(gradient + number.to(tl.int64) * MONOMIALS, NUMBERS, 1)
        for move in range(WHOLE_MOVES):
            to_powers = _gradients_of_move(
                to_powers, frame, slopes, x_sum + first, shifts + 3 * move, powers, upstream,
                FIRST and move == 0, bound, log_count, H, W, PAD, SPACE, MOVES, RINGS, PLACES,
                FACTORS, BLOCK, True, FAST,
            )  # fmt: skip
        for move in range(WHOLE_MOVES, MOVES):
            to_powers = _gradients_of_move(
                to_powers, frame, slopes, x_sum + first, shifts + 3 * move, powers, upstream,
                FIRST and move == 0, bound, log_count, H, W, PAD, SPACE, MOVES, RINGS, PLACES,
                FACTORS, BLOCK, False, FAST,
            )  # fmt: skip
        if LAST:
            for start in range(0, H * W, BLOCK):
                pixel, exists, _ = _places(start, H, W, PAD, BLOCK)
                positive = tl.load(x + first + pixel).to(tl.float32) > 0
                total = tl.where(positive, tl.load(x_sum + first + pixel), 0.0)
                tl.store(x_gradient + first + pixel, total, mask=exists)
        number += tl.num_programs(0)
    exponents_gradient += program * (MONOMIALS * FACTORS)
    for m in tl.static_range(len(NUMBERS)):
        for i in tl.static_range(FACTORS):
            total = tl.sum(to_powers[m * FACTORS + i]) * 0.6931471805599453  # to base e
            tl.store(exponents_gradient + NUMBERS[m] * FACTORS + i, total)


def frame_of(height: int, width: int, reach: int) -> tuple[int, int]:
    """Return the border of a frame and the numbers it has.

    The border on the right of a row is the one on the left of the next.
    """
    pad = reach + 1
    return pad, (height + 2 * pad) * (width + pad) + 2 * pad


def launch(height: int, width: int, factors: int, *, backward: bool) -> Launch:
    """Return how the kernels are cut up for maps of this size, as measured on an H200."""
    if height * width <= 64:
        plan = Launch(51, 64, 1, 8) if backward else Launch(150, 64, 1, 16)
    else:
        plan = Launch(39, 128, 4, 4) if backward else Launch(75, 64, 2, 8)
    return plan._replace(chunk=max(1, plan.chunk // factors))  # what a thread can keep


def run_average(
    x: Tensor,
    exponents: Tensor,
    shifts: Tensor,
    plan: Plan,
    *,
    floor: float,
) -> Tensor:
    """Average monomials of `(b, c, h, w)` into `(b, c, m)`."""
    (batch, channels, height, width), (monomials, factors) = x.shape, exponents.shape
    cut = launch(height, width, factors, backward=False)
    out = x.new_empty((batch, channels, monomials), dtype=torch.float32)
    pad, space = frame_of(height, width, plan.reach)
    programs = _programs(x, cut, space)
    scratch = x.new_empty((programs, space), dtype=torch.float32)
    for chunk in chunks(plan.offsets, factors, cut.chunk):
        _average[(programs,)](
            x, exponents, shifts, out, scratch, batch * channels,
            floor, *_bounds(height * width * shifts.shape[1]), height, width, pad, space,
            shifts.shape[1], plan.whole, *chunk, factors, monomials, cut.block, not INTERPRETED,
            num_warps=cut.warps,
        )  # fmt: skip
    return out


def run_gradients(
    gradient: Tensor,
    x: Tensor,
    exponents: Tensor,
    shifts: Tensor,
    plan: Plan,
    *,
    floor: float,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `run_average` for the map and the exponents."""
    (batch, channels, height, width), (monomials, factors) = x.shape, exponents.shape
    cut = launch(height, width, factors, backward=True)
    parts = chunks(plan.offsets, factors, cut.chunk)
    pad, space = frame_of(height, width, plan.reach)
    frames = max(len(chunk.rings) for chunk in parts) + 2
    programs = _programs(x, cut, frames * space)
    scratch = x.new_empty((programs, frames, space), dtype=torch.float32)
    x_sum = x.new_empty(x.shape, dtype=torch.float32)
    x_gradient = torch.empty_like(x)
    partial = x.new_empty((programs, monomials, factors), dtype=torch.float32)
    for number, chunk in enumerate(parts):
        _gradients[(programs,)](
            x, exponents, shifts, gradient, x_sum, x_gradient, partial, scratch, batch * channels,
            floor, *_bounds(height * width * shifts.shape[1]), height, width, pad, space,
            shifts.shape[1], plan.whole, *chunk, factors, monomials, cut.block, not INTERPRETED,
            number == 0, number == len(parts) - 1, num_warps=cut.warps,
        )  # fmt: skip
    return x_gradient, partial.sum(dim=0)


def _programs(x: Tensor, cut: Launch, space: int) -> int:
    """Return how many programs share the maps, so that all their frames take 256 MB at most."""
    maps = x.shape[0] * x.shape[1]
    if x.device.type == "cpu":  # interpreted
        return min(maps, 2)
    room = max(1, 2**26 // space)
    return min(maps, room, cut.programs * _processors(x.device.index or 0))


@functools.cache
def _processors(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _bounds(count: int) -> tuple[float, float]:
    """Return the largest logarithm of a share, and the logarithm of the count, to base 2."""
    log_count = math.log2(count)
    return 0.85 * math.log2(torch.finfo(torch.float32).max) - log_count, log_count
