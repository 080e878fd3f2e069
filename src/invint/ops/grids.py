"""Turning pixel grids: by quarter turns and mirrors, which permute pixels, and by any angle.

Axes   h w pixels
Rotations are about the centre of the grid, counter-clockwise, with y pointing up (rows run down).
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import grid_sample

from invint.groups import Element, Group
from invint.ops.tensors import constant


def permute_grid(x: Tensor, quarter_turns: int, flip: bool) -> Tensor:
    """Mirror the last two axes, `y → -y`, if `flip`, then turn them by quarter turns: exact."""
    return torch.rot90(x.flip(-2) if flip else x, quarter_turns, dims=(-2, -1))


def move_by(x: Float[Tensor, "b c h w"], group: Group, element: int) -> Float[Tensor, "b c y x"]:
    """Move images by an element of a group: mirror them if it does, then turn them.

    The turn is a rotation by less than 90°, interpolated, and then quarter turns, which permute
    pixels: so what is true of the quarter turns of a group stays exact among its other elements.
    """
    flip, quarters, rest = _steps(group, element)
    x = x.flip(-2) if flip else x
    return torch.rot90(rotate(x, rest) if rest else x, quarters, dims=(-2, -1))


def move_back(x: Float[Tensor, "b c h w"], group: Group, element: int) -> Float[Tensor, "b c y x"]:
    """Move images by the inverse of an element: the steps of `move_by` in reverse order."""
    flip, quarters, rest = _steps(group, element)
    x = torch.rot90(x, -quarters, dims=(-2, -1))
    x = rotate(x, -rest) if rest else x
    return x.flip(-2) if flip else x


def _steps(group: Group, element: int) -> tuple[bool, int, float]:
    """Return whether an element mirrors, its quarter turns and the angle that is left."""
    flip, turn = divmod(element, group.n)
    quarters, rest = divmod(4 * turn, group.n)
    return bool(flip), quarters, math.pi * rest / (2 * group.n)


def rotate(
    x: Float[Tensor, "b c h w"],
    angle: float | Float[Tensor, " b"],
    *,
    mode: str = "bilinear",
    side: int | None = None,
    zoom: float = 1.0,
) -> Float[Tensor, "b c y x"]:
    """Rotate images about their centre; what comes from outside the image is zero.

    Quarter turns of square images permute pixels, to rounding.

    Args:
        x: Images or feature maps.
        angle: Counter-clockwise, in radians: one for all, or one for each image.
        mode: Interpolation, `bilinear` or `bicubic`.
        side: Of square results, in pixels; as large as the images by default.
        zoom: Pixels of the result per pixel of the image.
    """
    height, width = x.shape[-2:]
    down = _centred(side or height, x)[:, None] / zoom
    right = _centred(side or width, x) / zoom
    # Where each pixel comes from, which is the point turned back by the angle, in the units of
    # `grid_sample`: half a side is 1. The last bit depends on whether a coordinate is divided by
    # half a side or multiplied by its inverse. One angle has always been divided, many multiplied,
    # and runs that are resumed and numbers that are published rely on both.
    if isinstance(angle, Tensor):
        angles = rearrange(angle.to(x.dtype), "b -> b 1 1")
        across, along = _turned_back(right, down, torch.cos(angles), torch.sin(angles))
        across, along = across * (2 / width), along * (2 / height)
    else:
        across, along = _turned_back(right, down, math.cos(angle), math.sin(angle))
        across, along = across / (width / 2), along / (height / 2)
    source = torch.stack((across, along), dim=-1).expand(x.shape[0], -1, -1, -1)
    return grid_sample(x, source, mode=mode, padding_mode="zeros", align_corners=False)


def _turned_back(
    right: Tensor, down: Tensor, cosine: float | Tensor, sine: float | Tensor
) -> tuple[Tensor, Tensor]:
    return cosine * right - sine * down, sine * right + cosine * down


def inscribed_disc(x: Tensor, margin: float = 0.0) -> Tensor:
    """Return 1 for the pixels `(h, w)` of `x` that stay inside when it turns, and 0 for others.

    Args:
        x: Images or features; the last two axes are the plane.
        margin: Pixels by which the disc is smaller than the plane.
    """
    height, width = x.shape[-2:]
    rows, columns = _centred(height, x), _centred(width, x)
    radius = min(height, width) / 2 - margin
    inside = rows[:, None].square() + columns.square() <= radius * abs(radius)  # ONNX has no hypot
    return inside.to(x.dtype)


def _centred(count: int, x: Tensor) -> Tensor:
    return torch.arange(count, dtype=x.dtype, device=x.device) - (count - 1) / 2


def grid_points(height: int, width: int) -> Float[Tensor, "n 2"]:
    """Return the pixels of a grid as points, row by row, in float64."""
    y = (height - 1) / 2 - torch.arange(height, dtype=torch.float64)
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    return torch.cartesian_prod(y, x).flip(-1)


def moved_points(points: Float[Tensor, "n 2"], element: Element) -> Float[Tensor, "n 2"]:
    """Mirror points, `y → -y`, if the element does, then turn them counter-clockwise."""
    cosine, sine = math.cos(element.angle), math.sin(element.angle)
    sign = -1.0 if element.flip else 1.0
    x, y = points[:, 0], sign * points[:, 1]
    return torch.stack((cosine * x - sine * y, sine * x + cosine * y), dim=1)


def bilinear_taps(
    points: Float[Tensor, "n 2"], height: int, width: int
) -> tuple[Int[Tensor, "n 4"], Float[Tensor, "n 4"]]:
    """Return the four pixels around each point and their shares; outside the grid it is zero."""
    column, row = points[:, 0] + (width - 1) / 2, (height - 1) / 2 - points[:, 1]
    corners = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    rows = row.floor().long()[:, None] + corners[:, 0]
    columns = column.floor().long()[:, None] + corners[:, 1]
    shares = (1 - (row[:, None] - rows).abs()) * (1 - (column[:, None] - columns).abs())
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return torch.where(inside, rows * width + columns, 0), torch.where(inside, shares, 0.0)


def bilinear_matrix(points: Float[Tensor, "n 2"], height: int, width: int) -> Float[Tensor, "n p"]:
    """Return the matrix that samples a grid at points."""
    pixels, shares = bilinear_taps(points, height, width)
    matrix = shares.new_zeros(len(points), height * width)
    return matrix.scatter_add_(1, pixels, shares)


@constant
def averaged_rotation(group: Group, size: int, height: int, width: int) -> Float[Tensor, "n p"]:
    r"""Return the matrix from a square kernel to the mean of all its moved copies on a grid.

    $$(P\psi)(y) = \frac{1}{|G|} \sum_{g \in G} \psi(g^{-1} y)$$

    with $\psi$ interpolated bilinearly and zero outside, and both grids sharing their centre.
    """
    points = grid_points(height, width)
    total = points.new_zeros(height * width, size * size)
    for element in group.elements:
        pixels, shares = bilinear_taps(moved_points(points, _inverse(element)), size, size)
        total.scatter_add_(1, pixels, shares)
    return total.div_(group.order)


def _inverse(element: Element) -> Element:
    return element if element.flip else Element(-element.angle, False)  # a mirror undoes itself
