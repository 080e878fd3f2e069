"""An ordinary convolution, by the kernels of cuDNN that are fast for wide maps."""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d, conv_transpose2d, pad

from invint.ops.tensors import autocast_device


def convolve(
    x: Float[Tensor, "b c h w"],
    filters: Float[Tensor, "o c k k"],
    bias: Float[Tensor, " o"] | None = None,
    *,
    stride: int = 1,
    padding: int = 0,
) -> Float[Tensor, "b o y x"]:
    """Return `conv2d`, on a GPU in half precision computed as the gradient of another one.

    For many wide maps cuDNN's heuristics propose a kernel without tensor cores, 4 to 20 times
    slower than the best. A convolution is also the gradient, with respect to its input, of the one
    with turned and swapped filters, and for gradients what they propose is good: neither need
    algorithms be tried in the first step, nor is a repeatable one slow. `benchmarks/first_step.py`
    measures both.
    """
    fits = stride == 1 and 1 < filters.shape[-1] > padding
    if not fits or not _better_as_gradient(x, filters):
        return conv2d(x, filters, bias, stride=stride, padding=padding)
    device = autocast_device(x)
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, filters = x.to(dtype), filters.to(dtype)
    out: Tensor = _AsGradient.apply(x, filters, padding)  # type: ignore[no-untyped-call]
    return out if bias is None else out + bias.to(out.dtype)[:, None, None]


def _better_as_gradient(x: Tensor, filters: Tensor) -> bool:
    """Whether a convolution is one of those that are measured: in halves, with aligned channels."""
    if not x.is_cuda or torch.compiler.is_exporting():
        return False
    if x.dtype != torch.float32:  # which autocast leaves to itself, if it is double
        half = x.dtype in (torch.bfloat16, torch.float16)
    else:
        half = torch.is_autocast_enabled("cuda")
    return half and filters.shape[0] % 8 == 0 and filters.shape[1] % 8 == 0


class _AsGradient(torch.autograd.Function):
    """A convolution as the gradient of one with turned and swapped filters; its own are as ever."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, filters: Tensor, padding: int) -> Tensor:
        turned = filters.flip(2, 3).transpose(0, 1)
        return conv_transpose2d(x, turned, padding=filters.shape[-1] - 1 - padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: Tensor) -> None:  # noqa: ARG004
        x, filters, ctx.padding = inputs
        ctx.save_for_backward(x, filters)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, filters = ctx.saved_tensors
        wanted = [*ctx.needs_input_grad[:2], False]
        pads = [ctx.padding] * 2
        product = wanted[1] and _better_as_product(gradient)
        if product:
            wanted[1] = False
        of_x, of_filters, _ = torch.ops.aten.convolution_backward(
            gradient, x, filters, None, [1, 1], pads, [1, 1], False, [0, 0], 1, wanted
        )
        if product:
            of_filters = _product_with_windows(gradient, x, ctx.padding, filters.shape[-1])
        return of_x, of_filters, None


def _better_as_product(gradient: Tensor) -> bool:
    """Whether what cuDNN has for a gradient of filters is slow: repeatable, and of small maps."""
    small = gradient.shape[2] * gradient.shape[3] <= 64
    return small and torch.are_deterministic_algorithms_enabled()


def _product_with_windows(gradient: Tensor, x: Tensor, padding: int, size: int) -> Tensor:
    """Return the gradient of filters, `out[o, c, j, i] = Σ_byx gradient[b, o, y, x] window`."""
    rows = pad(rearrange(x, "b c h w -> b h w c"), (0, 0, *[padding] * 4))
    windows = rows.unfold(1, size, 1).unfold(2, size, 1)
    windows = rearrange(windows, "b y x c j i -> (b y x) (j i c)")
    flat = rearrange(gradient, "b o y x -> o (b y x)") @ windows
    return rearrange(flat, "o (j i c) -> o c j i", j=size, i=size)
