"""Pooling: over the group, and over pixels without breaking the symmetry of the grid."""

from typing import Literal

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d

from invint.axes import check_axes
from invint.errors import ConfigError
from invint.nn.grid import check_steps
from invint.nn.maps import Head, full_precision, settled

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
