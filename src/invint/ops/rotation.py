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
    rows = torch.arange(height, dtype=x.dtype, device=x.device) - (height - 1) / 2
    columns = torch.arange(width, dtype=x.dtype, device=x.device) - (width - 1) / 2
    down, right = torch.meshgrid(rows, columns, indexing="ij")
    cosine, sine = math.cos(angle), math.sin(angle)
    source = torch.stack(  # where each pixel comes from: the point turned back by the angle
        ((cosine * right - sine * down) * 2 / width, (sine * right + cosine * down) * 2 / height),
        dim=-1,
    )
    grid = source.expand(len(x), -1, -1, -1)
    return grid_sample(x, grid, mode=mode, padding_mode="zeros", align_corners=False)
