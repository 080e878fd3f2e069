"""Augmentation of whole batches on their device, with parameters drawn elsewhere.

Axes:  b image   c channel   h w pixel
Images are floats in [0, 1]; what comes from outside of one is zero.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import grid_sample, pad


def rotate(
    images: Float[Tensor, "b c h w"], angles: Float[Tensor, " b"]
) -> Float[Tensor, "b c h w"]:
    """Turn each image about the centre of its pixel grid, bilinearly.

    Quarter turns of square images permute pixels, to rounding.

    Args:
        images: The batch.
        angles: Counter-clockwise rotations in radians, y up.
    """
    height, width = images.shape[-2:]
    down = rearrange(_centred(height, images), "h -> 1 h 1")
    right = rearrange(_centred(width, images), "w -> 1 1 w")
    angles = rearrange(angles.to(images.dtype), "b -> b 1 1")
    cosine, sine = torch.cos(angles), torch.sin(angles)
    source = torch.stack(  # where each pixel comes from: the point turned back by the angle
        (
            (cosine * right - sine * down) * (2 / width),
            (sine * right + cosine * down) * (2 / height),
        ),
        dim=-1,
    )
    return grid_sample(images, source, padding_mode="zeros", align_corners=False)


def _centred(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, dtype=like.dtype, device=like.device) - (length - 1) / 2


def crop(
    images: Float[Tensor, "b c h w"],
    offsets: Int64[Tensor, "b 2"],
    padding: int | None = None,
) -> Float[Tensor, "b c h w"]:
    """Cut a window of the same size out of each image after padding it with zeros.

    Args:
        images: The batch.
        offsets: First row and column of the window in the padded image, 0 to twice the padding.
        padding: Pixels added on each side; an eighth of the image by default (4 of 32, 12 of 96).
    """
    count, channels, height, width = images.shape
    padding = padding_of(height, width) if padding is None else padding
    padded = pad(images, (padding,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    return padded[
        torch.arange(count, device=images.device)[:, None, None, None],
        torch.arange(channels, device=images.device)[:, None, None],
        rearrange(rows, "b h -> b 1 h 1"),
        rearrange(columns, "b w -> b 1 1 w"),
    ]


def flip(images: Float[Tensor, "b c h w"], mask: Bool[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
    """Mirror the images where the mask is true, left to right."""
    return torch.where(rearrange(mask, "b -> b 1 1 1"), images.flip(-1), images)


def cutout(
    images: Float[Tensor, "b c h w"], centres: Int64[Tensor, "b 2"], side: int | None = None
) -> Float[Tensor, "b c h w"]:
    """Put a square of zeros into each image; the part of it that lies outside is lost.

    Args:
        images: The batch.
        centres: Row and column of the centre; for an even side, the pixel below and right of it.
        side: Of the square, in pixels; a third of the image by default (32 of 96).
    """
    height, width = images.shape[-2:]
    side = hole_of(height, width) if side is None else side
    rows = torch.arange(height, device=images.device) - (centres[:, :1] - side // 2)
    columns = torch.arange(width, device=images.device) - (centres[:, 1:] - side // 2)
    inside_rows = rearrange((rows >= 0) & (rows < side), "b h -> b 1 h 1")
    inside_columns = rearrange((columns >= 0) & (columns < side), "b w -> b 1 1 w")
    return images.masked_fill(inside_rows & inside_columns, 0)


def padding_of(height: int, width: int) -> int:
    """Return the default padding of `crop`: an eighth of the shorter side, rounded."""
    return (min(height, width) + 4) // 8


def hole_of(height: int, width: int) -> int:
    """Return the default side of `cutout`: a third of the shorter side, rounded, at least 1."""
    return max(round(min(height, width) / 3), 1)


@dataclass(frozen=True)
class Augmentation:
    """A way to augment, as batches need it.

    Attributes:
        numbers: How many random numbers an image takes.
        parameters: Makes parameters of uniform numbers `(..., numbers)` in [0, 1), for images of
            a height and width.
        apply: Takes images and parameters.
    """

    numbers: int
    parameters: Callable[[Tensor, int, int], Tensor]
    apply: Callable[[Tensor, Tensor], Tensor]


def _angles(uniform: Tensor, _height: int, _width: int) -> Tensor:
    return (2 * math.pi * uniform[..., 0]).float()


def _offsets(uniform: Tensor, height: int, width: int) -> Tensor:
    return (uniform * (2 * padding_of(height, width) + 1)).long()


def _coins(uniform: Tensor, _height: int, _width: int) -> Tensor:
    return uniform[..., 0] < 0.5


def _centres(uniform: Tensor, height: int, width: int) -> Tensor:
    return (uniform * torch.tensor([height, width])).long()


AUGMENTATIONS = {
    "rotate": Augmentation(1, _angles, rotate),
    "crop": Augmentation(2, _offsets, crop),
    "flip": Augmentation(1, _coins, flip),
    "cutout": Augmentation(2, _centres, cutout),
}
