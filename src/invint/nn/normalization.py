"""Batch normalisation whose statistics and coefficients all elements of the group share."""

import torch
import torch.distributed as dist
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from invint.axes import check_axes
from invint.errors import ShapeError
from invint.nn.maps import full_precision


class GroupBatchNorm(nn.Module):
    """Batch normalisation shared by all elements of the group, so that it commutes with moving.

    Args:
        channels: Channels per group element.
        eps: Added to the variance.
        momentum: Share of the new batch in the running statistics.
        synchronized: Take the statistics over the batches of all processes, where
            `torch.distributed` runs; with any backend, on any device.

    Shape:
        `(b, c, g, h, w)` to the same.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        synchronized: bool = False,
    ) -> None:
        super().__init__()
        self.channels, self.eps, self.momentum = channels, eps, momentum
        self.synchronized = synchronized
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c g h w"]:
        """Normalise."""
        check_axes(x, "b c g h w", "GroupBatchNorm", c=self.channels)
        if self.training:
            self.num_batches_tracked.add_(1)
            if self.synchronized and dist.is_initialized() and dist.get_world_size() > 1:
                return self._synchronized(x)
        return batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training,
            self.momentum,
            self.eps,
        )

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return (
            f"{self.channels}, eps={self.eps}, momentum={self.momentum}, "
            f"synchronized={self.synchronized}"
        )

    def _synchronized(self, x: Tensor) -> Tensor:
        """Normalise by the statistics of all processes: mean first, then the squares about it."""
        values = full_precision(x)
        axes = (0, 2, 3, 4)
        count = _sum_of_all(values.new_tensor(float(x.numel() // self.channels)))
        if x.numel() == self.channels and count.item() < 2:
            raise ShapeError("GroupBatchNorm: expected more than one value per channel in training")
        mean = _sum_of_all(values.sum(axes)) / count
        centred = values - rearrange(mean, "c -> c 1 1 1")
        variance = _sum_of_all(centred.square().sum(axes)) / count
        with torch.no_grad():
            unbiased = variance * count / (count - 1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        out = centred * rearrange(scale, "c -> c 1 1 1") + rearrange(self.bias, "c -> c 1 1 1")
        return out.to(x.dtype)


class _SumOfAll(torch.autograd.Function):
    """Sum over processes, whose gradient is again a sum over processes."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:  # noqa: ARG004
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:  # noqa: ARG004
        return _sum_of_all(gradient)


def _sum_of_all(x: Tensor) -> Tensor:
    total: Tensor = _SumOfAll.apply(x)  # type: ignore[no-untyped-call]
    return total
