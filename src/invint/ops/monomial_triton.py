"""Group averages of monomials in one Triton kernel each way: no sample ever reaches memory.

One program treats one (b c) pair: it walks over moves and blocks of pixels; a tile of logarithms,
pixels by offsets, times the powers is a tile of exponents, pixels by monomials. For a fixed offset
and move the sampled points are the pixels shifted by one vector: a table of shifts is enough.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def _shift(shifts, numbers, known):
    """Load shifts as whole pixels and the rest: down and right."""
    down = tl.load(shifts + 2 * numbers, mask=known, other=0.0)
    right = tl.load(shifts + 2 * numbers + 1, mask=known, other=0.0)
    whole_down, whole_right = tl.floor(down), tl.floor(right)
    return (
        whole_down.to(tl.int32),
        whole_right.to(tl.int32),
        down - whole_down,
        right - whole_right,
    )


@triton.jit
def _sample(x, pixel, shifts, numbers, valid, height: tl.constexpr, width: tl.constexpr):
    """Interpolate a column at shifted pixels; negative values count as zero."""
    down, right, part_down, part_right = _shift(shifts, numbers, valid)
    row, column = pixel // width + down, pixel % width + right
    sample = tl.zeros_like(part_down)
    for tap in tl.static_range(4):
        r, c = row + tap // 2, column + tap % 2
        share = tl.abs(1 - tap // 2 - part_down) * tl.abs(1 - tap % 2 - part_right)
        inside = valid & (r >= 0) & (r < height) & (c >= 0) & (c < width)
        value = tl.load(x + r * width + c, mask=inside, other=0.0).to(tl.float32)
        sample += share * tl.maximum(value, 0.0)
    return sample


@triton.jit
def _collect(samples, pixel, shifts, number, height: tl.constexpr, width: tl.constexpr):
    """Transpose `_sample`: add up, for each pixel, its shares of the samples around it."""
    valid = pixel < height * width
    down, right, part_down, part_right = _shift(shifts, number + pixel * 0, valid)
    row, column = pixel // width - down, pixel % width - right
    total = tl.zeros_like(part_down)
    for tap in tl.static_range(4):
        r, c = row - tap // 2, column - tap % 2
        share = tl.abs(1 - tap // 2 - part_down) * tl.abs(1 - tap % 2 - part_right)
        inside = valid & (r >= 0) & (r < height) & (c >= 0) & (c < width)
        total += share * tl.load(samples + r * width + c, mask=inside, other=0.0)
    return total


@triton.jit
def _average(
    x, powers, shifts, out,
    floor: tl.constexpr, bound: tl.constexpr, log_count: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, moves: tl.constexpr, offsets: tl.constexpr,
    monomials: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    pixels: tl.constexpr = height * width
    x += program * pixels
    d, m = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M)
    known = (d[:, None] < offsets) & (m[None, :] < monomials)
    power = tl.load(powers + m[None, :] * offsets + d[:, None], mask=known, other=0.0)
    total = tl.zeros([BLOCK_P, BLOCK_M], dtype=tl.float32)
    for move in range(moves):
        for start in range(0, pixels, BLOCK_P):
            pixel = start + tl.arange(0, BLOCK_P)[:, None]
            valid = (pixel < pixels) & (d[None, :] < offsets)
            number = d[None, :] * moves + move + pixel * 0
            sample = _sample(x, pixel, shifts, number, valid, height, width) + floor
            exponent = tl.dot(tl.log(sample), power, input_precision="tf32x3")
            term = tl.exp(tl.minimum(exponent, bound) - log_count)
            total += tl.where(pixel < pixels, term, 0.0)
    average = tl.sum(total, axis=0)
    tl.store(out + program * monomials + m, average, mask=m < monomials)


@triton.jit
def _gradients(
    x, powers, shifts, gradient, x_gradient, powers_gradient, scratch,
    floor: tl.constexpr, bound: tl.constexpr, log_count: tl.constexpr,
    height: tl.constexpr, width: tl.constexpr, moves: tl.constexpr, offsets: tl.constexpr,
    monomials: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
    MAP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    pixels: tl.constexpr = height * width
    x += program * pixels
    scratch += program * offsets * pixels
    d, m, every = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_M), tl.arange(0, MAP)
    known = (d[:, None] < offsets) & (m[None, :] < monomials)
    power = tl.load(powers + m[None, :] * offsets + d[:, None], mask=known, other=0.0)
    upstream = tl.load(gradient + program * monomials + m, mask=m < monomials, other=0.0)
    to_power = tl.zeros([BLOCK_D, BLOCK_M], dtype=tl.float32)
    to_x = tl.zeros([MAP], dtype=tl.float32)
    for move in range(moves):
        for start in range(0, pixels, BLOCK_P):
            pixel = start + tl.arange(0, BLOCK_P)[:, None]
            valid = (pixel < pixels) & (d[None, :] < offsets)
            number = d[None, :] * moves + move + pixel * 0
            sample = _sample(x, pixel, shifts, number, valid, height, width) + floor
            log = tl.log(sample)
            exponent = tl.dot(log, power, input_precision="tf32x3")
            term = tl.exp(tl.minimum(exponent, bound) - log_count) * upstream[None, :]
            term = tl.where(pixel < pixels, term, 0.0)
            to_power += tl.dot(tl.trans(log), term, input_precision="tf32x3")
            to_sample = tl.dot(term, tl.trans(power), input_precision="tf32x3") / sample
            tl.store(scratch + d[None, :] * pixels + pixel, to_sample, mask=valid)
        tl.debug_barrier()  # every sample's gradient is written before pixels collect them
        for offset in range(offsets):
            number = offset * moves + move
            to_x += _collect(scratch + offset * pixels, every, shifts, number, height, width)
        tl.debug_barrier()  # and collected before the next move overwrites them
    value = tl.load(x + every, mask=every < pixels, other=0.0).to(tl.float32)
    to_x = tl.where(value > 0, to_x, 0.0)
    tl.store(x_gradient + program * pixels + every, to_x, mask=every < pixels)
    place = (program * offsets + d[:, None]) * monomials + m[None, :]
    tl.store(powers_gradient + place, to_power, mask=known)


def _blocks(pixels: int, monomials: int, offsets: int) -> dict[str, int]:
    """Return the sides of the tiles; a matrix product needs at least 16."""
    return {
        "BLOCK_P": min(max(triton.next_power_of_2(pixels), 16), 64),
        "BLOCK_M": max(triton.next_power_of_2(monomials), 16),
        "BLOCK_D": max(triton.next_power_of_2(offsets), 16),
    }


def run_average(kernel: Any, x: Tensor, powers: Tensor, shifts: Tensor, floor: float) -> Tensor:
    """Launch the forward kernel; `kernel` is `_average`, or what stands for it while tracing."""
    batch, channels, height, width = x.shape
    monomials, offsets = powers.shape
    out = torch.empty(batch, channels, monomials, device=x.device, dtype=torch.float32)
    kernel[(batch * channels,)](
        x, powers, shifts, out, floor, *_bounds(height * width * shifts.shape[1]),
        height, width, shifts.shape[1], offsets, monomials,
        **_blocks(height * width, monomials, offsets),
    )  # fmt: skip
    return out


def run_gradients(
    kernel: Any, x: Tensor, powers: Tensor, shifts: Tensor, gradient: Tensor, floor: float
) -> tuple[Tensor, Tensor]:
    """Launch the backward kernel; the gradient of the powers comes column by column."""
    batch, channels, height, width = x.shape
    monomials, offsets = powers.shape
    pixels, columns = height * width, batch * channels
    x_gradient = torch.empty_like(x)
    powers_gradient = x.new_empty((columns, offsets, monomials), dtype=torch.float32)
    scratch = x.new_empty((columns, offsets, pixels), dtype=torch.float32)
    kernel[(columns,)](
        x, powers, shifts, gradient, x_gradient, powers_gradient, scratch,
        floor, *_bounds(pixels * shifts.shape[1]),
        height, width, shifts.shape[1], offsets, monomials,
        **_blocks(pixels, monomials, offsets), MAP=triton.next_power_of_2(pixels),
    )  # fmt: skip
    return x_gradient, powers_gradient


def _bounds(count: int) -> tuple[float, float]:
    return 0.96 * math.log(torch.finfo(torch.float32).max), math.log(count)


@triton_op("invint::monomial_average", mutates_args={})
def average(x: Tensor, powers: Tensor, shifts: Tensor, floor: float) -> Tensor:
    """Average monomials of `(b, c, h, w)` into `(b, c, m)`; see `monomial_averages`."""
    return run_average(wrap_triton(_average), x, powers, shifts, floor)


@triton_op("invint::monomial_gradients", mutates_args={})
def gradients(
    x: Tensor, powers: Tensor, shifts: Tensor, gradient: Tensor, floor: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `average`, that of the powers for each column by itself."""
    return run_gradients(wrap_triton(_gradients), x, powers, shifts, gradient, floor)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, powers, shifts, ctx.floor = inputs
    ctx.save_for_backward(x, powers, shifts)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, powers, shifts = ctx.saved_tensors
    to_x, to_powers = gradients(x, powers, shifts, gradient.contiguous(), ctx.floor)
    return to_x, to_powers.sum(dim=0).mT, None, None


average.register_autograd(_backward, setup_context=_keep)
