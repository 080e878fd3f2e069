"""Normalisation, dropout and pooling that commute with moving the image, on and off the group."""

from typing import Literal

import torch
import torch.distributed as dist
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, batch_norm, dropout3d, max_pool2d

from invint.errors import ConfigError, ShapeError, check_axes
from invint.nn.maps import Head, check_channels, full_precision, settled


def check_steps(
    x: Tensor, owner: str, *, kernel_size: int, stride: int, padding: int, cure: str
) -> None:
    """Raise `ShapeError` unless windows of `x` lie symmetrically about the centre of the grid.

    They do when the last window ends where the padded grid ends, on both axes; otherwise the
    output of a turned image samples other pixels than the turned output does.
    """
    height, width = x.shape[-2:]
    if min(height, width) + 2 * padding < kernel_size:
        raise ShapeError(
            f"{owner}: {height} x {width} pixels with padding {padding} are too few for a kernel "
            f"of {kernel_size}; use a smaller kernel or more padding"
        )
    if any((side + 2 * padding - kernel_size) % stride for side in (height, width)):
        raise ShapeError(
            f"{owner}: stride {stride} with kernel {kernel_size} and padding {padding} on "
            f"{height} x {width} pixels breaks the symmetry of the grid; {cure}"
        )


class GroupBatchNorm(nn.Module):
    """Batch normalisation shared by all elements of the group, so that it commutes with moving.

    Args:
        channels: Channels per group element.
        eps: Added to the variance.
        momentum: Fraction of the new batch in the running statistics.
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


class GroupDropout(nn.Module):
    """Zero whole channels while training, all orientations and pixels of a channel together.

    Args:
        rate: Probability that a channel is dropped.

    Shape:
        `(b, c, g, h, w)` to the same.
    """

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        if not 0 <= rate <= 1:
            raise ConfigError(f"GroupDropout: rate must lie between 0 and 1, got {rate}")
        self.rate = rate

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c g h w"]:
        """Drop."""
        check_axes(x, "b c g h w", "GroupDropout")
        return dropout3d(x, self.rate, self.training)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"rate={self.rate}"


Kind = Literal["max", "mean"]


class GroupPool(nn.Module):
    """Maximum or mean over the group: what is left turns with the image and nothing else.

    Args:
        kind: `max` or `mean`.

    Shape:
        `(b, c, g, h, w)` to `(b, c, h, w)`.
    """

    def __init__(self, kind: Kind = "max") -> None:
        super().__init__()
        self.kind = _checked(kind, "GroupPool")

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c h w"]:
        """Pool over `g`."""
        check_axes(x, "b c g h w", "GroupPool")
        return x.amax(dim=2) if self.kind == "max" else x.mean(dim=2)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return self.kind


class SpatialPool(nn.Module):
    """Maximum or mean over windows of pixels that lie symmetrically about the centre.

    By default it halves the size, exactly on every size: on each axis the window is 2 wide if the
    side is even, 3 wide with padding 1 if it is odd. A window given by hand is refused at sizes
    where it breaks the symmetry.

    Args:
        kind: `max` or `mean`; the mean leaves padding out.
        kernel_size: Side of the window; by default chosen by the size of the map, to halve it.
        stride: Step between windows.
        padding: Pixels added on every side of the map; only with `kernel_size`.

    Shape:
        `(b, c, g, h, w)` or `(b, c, h, w)` to the same with `⌈h/2⌉, ⌈w/2⌉`.
    """

    def __init__(
        self,
        kind: Kind = "max",
        *,
        kernel_size: int | None = None,
        stride: int = 2,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.kind = _checked(kind, "SpatialPool")
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        if kernel_size is None and (stride, padding) != (2, 0):
            raise ConfigError(
                f"SpatialPool: stride {stride} and padding {padding} need a kernel_size; "
                "without one the layer halves the size"
            )
        if stride < 1 or (kernel_size or 1) < 1:
            raise ConfigError(
                "SpatialPool: stride and kernel_size must be at least 1, "
                f"got {stride} and {kernel_size}"
            )
        if kernel_size is not None and not 0 <= 2 * padding <= kernel_size:
            raise ConfigError(
                f"SpatialPool: padding must be between 0 and half of kernel_size {kernel_size}, "
                f"got {padding}"
            )

    def forward(self, x: Float[Tensor, "b *cg h w"]) -> Float[Tensor, "b *cg y x"]:
        """Pool over pixels."""
        if x.ndim == 5:
            check_axes(x, "b c g h w", "SpatialPool")
            pooled = self._pool(rearrange(x, "b c g h w -> b (c g) h w"))
            return rearrange(pooled, "b (c g) h w -> b c g h w", g=x.shape[2])
        check_axes(x, "b c h w", "SpatialPool")
        return self._pool(x)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        window = "halves" if self.kernel_size is None else f"kernel_size={self.kernel_size}"
        return f"{self.kind}, {window}, stride={self.stride}, padding={self.padding}"

    def _pool(self, x: Tensor) -> Tensor:
        kernel, padding = self._window(x)
        if self.kind == "max":
            return max_pool2d(x, kernel, self.stride, padding)
        return avg_pool2d(x, kernel, self.stride, padding, count_include_pad=False)

    def _window(self, x: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
        if self.kernel_size is None:
            odd_height, odd_width = (side % 2 for side in x.shape[-2:])
            return (2 + odd_height, 2 + odd_width), (odd_height, odd_width)
        check_steps(
            x,
            "SpatialPool",
            kernel_size=self.kernel_size,
            stride=self.stride,
            padding=self.padding,
            cure="leave kernel_size out to halve any size exactly",
        )
        return (self.kernel_size,) * 2, (self.padding,) * 2


class GlobalPool(Head):
    """Maximum or mean over all positions: the baselines that integration replaces.

    Args:
        channels: Channels of the map, and of the features.
        kind: `max` or `mean`.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    def __init__(self, channels: int, kind: Kind = "max") -> None:
        super().__init__()
        check_channels(channels, "GlobalPool")
        self.channels, self.out_features = channels, channels
        self.kind = _checked(kind, "GlobalPool")

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """Pool over pixels."""
        check_axes(x, "b c h w", "GlobalPool", c=self.channels)
        values = full_precision(x)
        pooled = values.amax(dim=(2, 3)) if self.kind == "max" else values.mean(dim=(2, 3))
        return settled(pooled, x)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"{self.channels}, {self.kind}"


def _checked(kind: str, owner: str) -> str:
    if kind not in ("max", "mean"):
        raise ConfigError(f"{owner}: kind must be 'max' or 'mean', got {kind!r}")
    return kind
