"""Batch normalisation whose statistics some channels share, for maps with channels last in memory.

Axes   b image   c channel   g group element   h w pixel

PyTorch's own kernels for it see a map `(b, c, g, h, w)`, whose channels are not last in memory
then: they copy it, and occupy only as many processors as there are channels. Here statistics are
found for each element of each channel, as for an ordinary map `(b, (c g), h, w)`, and then put
together. Without a compiler, kernels do that which are meant for several processes; a compiler
makes its own from the formulas.
"""

from typing import Any

import torch
from einops import rearrange, reduce, repeat
from jaxtyping import Float
from torch import Tensor


def group_batch_norm(
    x: Float[Tensor, "b c g h w"],
    weight: Float[Tensor, " c"],
    bias: Float[Tensor, " c"],
    eps: float,
) -> tuple[Float[Tensor, "b c g h w"], Float[Tensor, " c"], Float[Tensor, " c"]]:
    r"""Normalise by the mean and the variance of a batch, and return these too.

    $$y = \gamma_c\,\frac{x - \mu_c}{\sqrt{\sigma_c^2 + \epsilon}} + \beta_c$$

    with $\mu_c$ and $\sigma_c^2$ over images, elements and pixels. The statistics get no gradient.
    """
    order = x.shape[2]
    flat = rearrange(x, "b c g h w -> b (c g) h w").contiguous(memory_format=torch.channels_last)
    out, mean, variance = _Normalise.apply(flat, weight, bias, eps)  # type: ignore[no-untyped-call]
    return rearrange(out, "b (c g) h w -> b c g h w", g=order), mean, variance


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        order = x.shape[1] // len(weight)
        means, variances = _statistics(x, eps)
        mean = reduce(means, "(c g) -> c", "mean", g=order)
        apart = (means - repeat(mean, "c -> (c g)", g=order)).square()
        variance = reduce(variances + apart, "(c g) -> c", "mean", g=order)
        inverse = torch.rsqrt(variance + eps)
        spread = [repeat(each, "c -> (c g)", g=order) for each in (weight, bias, mean, inverse)]
        ctx.save_for_backward(x, *spread)
        ctx.order = order
        ctx.mark_non_differentiable(mean, variance)
        return _normalised(x, eps, *spread), mean, variance

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weights, _, means, inverses = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        found = _sums(gradient, x, means, inverses, weights)
        sums, products = (reduce(each, "(c g) -> c", "sum", g=ctx.order) for each in found)
        inverse = reduce(inverses, "(c g) -> c", "mean", g=ctx.order)
        spread = [repeat(each, "c -> (c g)", g=ctx.order) for each in (sums, products)]
        into = _into(gradient, x, ctx.order, means, inverses, weights, *spread)
        dtype = weights.dtype
        return into, (products * inverse).to(dtype), sums.to(dtype), None


def _has_kernels(x: Tensor) -> bool:
    return x.is_cuda and not torch.compiler.is_compiling()


def _statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return mean and variance of each channel."""
    if _has_kernels(x):
        mean, inverse = torch.batch_norm_stats(x, eps)
        return mean, inverse.pow(-2) - eps
    variance, mean = torch.var_mean(_exact(x), dim=(0, 2, 3), correction=0)
    return mean, variance


def _normalised(
    x: Tensor, eps: float, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor
) -> Tensor:
    if _has_kernels(x):
        out: Tensor = torch.batch_norm_elemt(x, weight, bias, mean, inverse, eps)
        return out
    return (_centred(x, mean) * _wide(inverse * weight) + _wide(bias)).to(x.dtype)


def _sums(
    gradient: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sums over images and pixels of the gradient, and of it times x - mean."""
    if _has_kernels(x):
        sums, products, _, _ = torch.batch_norm_backward_reduce(
            gradient, x, mean, inverse, weight, True, False, False
        )
        return sums, products
    exact = _exact(gradient)
    return exact.sum((0, 2, 3)), (exact * _centred(x, mean)).sum((0, 2, 3))


def _into(
    gradient: Tensor,
    x: Tensor,
    order: int,
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor,
    sums: Tensor,
    products: Tensor,
) -> Tensor:
    """Return the gradient of the input."""
    count = order * x.numel() // x.shape[1]
    if _has_kernels(x):
        counts = torch.full((1,), count, dtype=torch.int32, device=x.device)
        out: Tensor = torch.batch_norm_backward_elemt(
            gradient, x, mean, inverse, weight, sums, products, counts
        )
        return out
    slope = _wide(inverse.square() * products / count)
    rest = _exact(gradient) - _wide(sums / count) - _centred(x, mean) * slope
    return (rest * _wide(inverse * weight)).to(x.dtype)


def _exact(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _centred(x: Tensor, mean: Tensor) -> Tensor:
    return _exact(x) - _wide(mean)


def _wide(channels: Tensor) -> Tensor:
    return rearrange(channels, "c -> c 1 1")
