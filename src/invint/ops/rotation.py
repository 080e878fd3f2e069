"""Turning pixel grids: by quarter turns and mirrors, which permute pixels, and by any angle.

Axes   h w pixels
Rotations are about the centre of the grid, counter-clockwise, with y pointing up (rows run down).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample


def permute_grid(x: Tensor, quarter_turns: int, flip: bool) -> Tensor:
    """Mirror the last two axes, `y → -y`, if `flip`, then turn them by quarter turns: exact."""
    return torch.rot90(x.flip(-2) if flip else x, quarter_turns, dims=(-2, -1))


def rotate(
    x: Float[Tensor, "b c h w"], angle: float, *, mode: str = "bilinear"
) -> Float[Tensor, "b c h w"]:
    """Turn images by `angle` radians; what comes from outside the image is zero.

    Args:
        x: Images or feature maps.
        angle: Counter-clockwise rotation.
        mode: Interpolation, `bilinear` or `bicubic`.
    """
    height, width = x.shape[-2:]
    rows, columns = _centred(height, x), _centred(width, x)
    down, right = torch.meshgrid(rows, columns, indexing="ij")
    cosine, sine = math.cos(angle), math.sin(angle)
    source = torch.stack(  # where each pixel comes from: the point turned back by the angle
        ((cosine * right - sine * down) * 2 / width, (sine * right + cosine * down) * 2 / height),
        dim=-1,
    )
    grid = source.expand(len(x), -1, -1, -1)
    return grid_sample(x, grid, mode=mode, padding_mode="zeros", align_corners=False)


def inscribed_disc(x: Tensor, margin: float = 0.0) -> Tensor:
    """Return 1 for the pixels `(h, w)` of `x` that stay inside when it turns, and 0 for others.

    Args:
        x: Images or features; the last two axes are the plane.
        margin: Pixels by which the disc is smaller than the plane.
    """
    height, width = x.shape[-2:]
    rows, columns = _centred(height, x), _centred(width, x)
    radius = min(height, width) / 2 - margin
    return (torch.hypot(rows[:, None], columns) <= radius).to(x.dtype)


def _centred(count: int, x: Tensor) -> Tensor:
    return torch.arange(count, dtype=x.dtype, device=x.device) - (count - 1) / 2
