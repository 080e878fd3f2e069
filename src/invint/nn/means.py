"""Heads that average by a generalised mean: somewhere between the mean and the maximum."""

import math
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, check_axes
from invint.groups import Cyclic, Group
from invint.nn.maps import Head, as_size, check_fits, check_kernel, full_precision, settled
from invint.ops.averages import moved_sums, neighbourhoods
from invint.ops.means import exp_mean, power_mean
from invint.ops.tensors import autocast_device, own_copy

LARGEST = 1e4  # of powers and sharpness at the start
LEAST = 1e-6  # above p = 1 and β = 0, below which the mean no longer changes


class GeneralisedMean(Head):
    r"""Generalised mean of a weighted sum over all positions and the group.

    The weighted sum is that of a small kernel, moved by every element; the mean is
    $(\frac{1}{N} \sum \max(f, 0)^p)^{1/p}$ or $\frac{1}{\beta} \log \frac{1}{N} \sum e^{\beta f}$.
    The kernel begins as the identity and p or $\beta$ large, so the head begins close to the
    maximum: at most by the factor $N^{-1/p}$ or by $\log(N) / \beta$ below it, with N pixels. Both
    are learned, one number for each channel; $p > 1$ and $\beta > 0$ hold by themselves, because
    $\log(p - 1)$ and $\log \beta$ are the parameters.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kind: `power` or `exp`.
        degree: p or β at the start.
        kernel_size: Side of the kernel in pixels; odd.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    samples: Tensor

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        kind: Literal["power", "exp"],
        *,
        degree: float = 50.0,
        kernel_size: int = 3,
    ) -> None:
        super().__init__()
        owner = "GeneralisedMean"
        check_kernel(kernel_size, as_size(size, owner), owner)
        if kind not in ("power", "exp"):
            raise ConfigError(f"{owner}: kind must be 'power' or 'exp', got {kind!r}")
        self.least = 1.0 if kind == "power" else 0.0
        if not self.least < degree <= LARGEST:
            name = "power" if kind == "power" else "sharpness"
            raise ConfigError(
                f"{owner}: {name} must be above {self.least:g} and at most {LARGEST:g}, "
                f"got {degree:g}; for the plain mean use the head 'avg', for the maximum 'max'"
            )
        self.channels, self.out_features, self.group = channels, channels, group
        self.kind, self.kernel_size = kind, kernel_size
        moving = group if kernel_size > 1 else Cyclic(1)  # a single pixel stays where it is
        samples = own_copy(neighbourhoods(moving, kernel_size))
        self.register_buffer("samples", samples, persistent=False)
        weight = torch.zeros(channels, channels, kernel_size**2)
        weight[:, :, kernel_size**2 // 2] = torch.eye(channels)
        self.weight = nn.Parameter(weight)
        self.level = nn.Parameter(torch.full((channels,), math.log(degree - self.least)))

    @property
    def degree(self) -> Float[Tensor, " o"]:
        """The power p or the sharpness β of each channel, as it is now."""
        return full_precision(self.level).exp().clamp_min(LEAST) + self.least

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        check_axes(x, "b c h w", "GeneralisedMean", c=self.channels)
        check_fits(self.kernel_size, (x.shape[-2], x.shape[-1]), "GeneralisedMean")
        mean = power_mean if self.kind == "power" else exp_mean
        with torch.autocast(autocast_device(x), enabled=False):
            tensors = (full_precision(tensor) for tensor in (x, self.weight, self.samples))
            sums = rearrange(moved_sums(*tensors), "b g o h w -> b o (g h w)")
            out = mean(sums, self.degree)
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, {self.kind}, group={self.group}, kernel_size={self.kernel_size}"


def power_mean_head(
    channels: int,
    size: int | tuple[int, int],
    group: Group,
    *,
    power: float = 50.0,
    kernel_size: int = 3,
) -> GeneralisedMean:
    """Return the mean of powers."""
    return GeneralisedMean(channels, size, group, "power", degree=power, kernel_size=kernel_size)


def exp_mean_head(
    channels: int,
    size: int | tuple[int, int],
    group: Group,
    *,
    sharpness: float = 50.0,
    kernel_size: int = 3,
) -> GeneralisedMean:
    """Return the mean of exponentials."""
    return GeneralisedMean(channels, size, group, "exp", degree=sharpness, kernel_size=kernel_size)
