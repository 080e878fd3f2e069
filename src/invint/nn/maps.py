"""What heads share: their base class, and checks of the map they are given."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, ShapeError, check_axes
from invint.groups import Group
from invint.ops.tensors import autocast_device


class Head(nn.Module):
    """From the last feature map to features that do not change as the image turns.

    Attributes:
        out_features: Number of features.
        takes_group: Whether it takes the map before group pooling, `(b, c, g, h, w)`.
    """

    out_features: int
    takes_group: ClassVar[bool] = False


class HeadsAtDepths(nn.Module):
    """A head for each of several maps; the features of all, side by side.

    Args:
        heads: In the order of the maps.

    Shape:
        A tuple of `(b, c, g, h, w)` to `(b, features)`.
    """

    def __init__(self, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def forward(self, maps: tuple[Tensor, ...]) -> Float[Tensor, "b o"]:
        """Return the features."""
        return torch.cat([head(x) for head, x in zip(self.heads, maps, strict=True)], dim=1)


def as_size(size: int | tuple[int, int], owner: str) -> tuple[int, int]:
    """Return height and width; one number means a square."""
    sides = (size, size) if isinstance(size, int | float) else tuple(size)
    if len(sides) != 2:
        raise ConfigError(f"{owner}: size must be one number or two, got {size}")
    height, width = sides
    if min(height, width) < 1:
        raise ConfigError(f"{owner}: size must be at least 1 x 1, got {height} x {width}")
    if not all(isinstance(side, int) for side in sides):
        raise ConfigError(f"{owner}: size must be whole numbers, got {height} x {width}")
    return height, width


def check_channels(channels: int, owner: str) -> None:
    """Raise `ConfigError` unless there is a channel."""
    if channels < 1:
        raise ConfigError(f"{owner}: channels must be at least 1, got {channels}")


def check_precision(x: Tensor, weight: Tensor, owner: str) -> None:
    """Raise `ShapeError` if a map is of another precision than weights; half precision is raised.

    Sums in two precisions at once would have the lower of the two without saying so.
    """
    if full_precision(x).dtype != full_precision(weight).dtype:
        found, own = (str(each.dtype).removeprefix("torch.") for each in (x, weight))
        raise ShapeError(
            f"{owner}: expected a map of {own}, as the weights are, got {found}; convert one, "
            f"with x.to(torch.{own}) or head.to(torch.{found})"
        )


def check_kernel(kernel_size: int, size: tuple[int, int], owner: str) -> None:
    """Raise `ConfigError` unless an odd kernel fits into the map."""
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ConfigError(
            f"{owner}: kernel_size must be odd and at least 1, got {kernel_size}; "
            f"use {max(kernel_size - 1, 1)}"
        )
    if kernel_size > min(size):
        raise ConfigError(
            f"{owner}: a kernel of {kernel_size} does not fit a map of {size[0]} x {size[1]}; "
            f"use kernel_size={(min(size) - 1) // 2 * 2 + 1} or less"
        )


def check_fits(kernel_size: int, size: tuple[int, int], owner: str) -> None:
    """Raise `ShapeError` if a map is smaller than the kernel that is to pass over it."""
    if kernel_size > min(size):
        raise ShapeError(
            f"{owner}: expected a map of at least {kernel_size} x {kernel_size}, the size of the "
            f"kernel, got {size[0]} x {size[1]}"
        )


def upright(x: Tensor, size: tuple[int, int], group: Group) -> Tensor:
    """Lay a map that is not square the way round a head was built for.

    It comes turned when its image is. If the group has quarter turns, the head may turn it back:
    its average is the same. Before group pooling the elements turn with the pixels.
    """
    if tuple(x.shape[-2:]) != size[::-1] or size == size[::-1] or group.n % 4:
        return x
    x = torch.rot90(x, dims=(-2, -1))
    return x[:, :, list(group.quotients[group.n // 4])] if x.ndim == 5 else x


def as_built(
    x: Tensor,
    owner: str,
    *,
    channels: int,
    size: tuple[int, int],
    group: Group,
    on_group: bool = False,
) -> Tensor:
    """Return the map the way round the head was built for, or raise `ShapeError`.

    Args:
        x: `(b, c, h, w)`, or before group pooling `(b, c, g, h, w)`.
        owner: Who complains.
        channels: Expected channels.
        size: Expected height and width.
        group: The symmetries.
        on_group: Whether the map is expected before group pooling.
    """
    axes, sizes = ("b c g h w", {"g": group.order}) if on_group else ("b c h w", {})
    check_axes(x, axes, owner, c=channels, **sizes)
    x = upright(x, size, group)
    check_axes(x, axes, owner, h=size[0], w=size[1])
    return x


def channel_scale(x: Float[Tensor, "b c *g h w"]) -> Float[Tensor, "b c 1"]:
    """Return the root mean square of the positive values of each channel of each image.

    It does not change as the map moves, and no image depends on the others of its batch. A channel
    below one part in a million counts as being there, so that nothing is divided by zero.
    """
    power = rearrange(x, "b c ... -> b c (...)").relu().square().mean(dim=2, keepdim=True)
    return (power + 1e-12).sqrt()


def full_precision(x: Tensor) -> Tensor:
    """Return `x` in float32 at least."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def settled(out: Tensor, x: Tensor) -> Tensor:
    """Return features in float32 under autocast, and otherwise in the precision of the input."""
    return out if torch.is_autocast_enabled(autocast_device(x)) else out.to(x.dtype)
