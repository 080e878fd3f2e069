"""Oriented gradients over turned copies: what is known of shapes before anything is learnt."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

from invint.errors import ConfigError
from invint.groups import Cyclic, Group
from invint.models.networks import Network
from invint.models.orbits import PoseClassifier, integrated
from invint.nn import OrbitFeatures

NAME = "orbit-gradients"
CELLS, BLOCK, DIRECTIONS = 8, 4, 9
BLOCKS = CELLS - BLOCK + 1  # along a side
CHANNELS = BLOCK**2 * DIRECTIONS
FINEST = 64  # side, above which images are averaged down by whole factors
SMALLEST = CELLS
CLIP = 0.2
TINY = 1e-7  # what is added; exporters to ONNX leave 1e-8 away, as if it were nothing


class OrientedGradients(nn.Module):
    """Histograms of oriented gradients (Dalal and Triggs, 2005), by operations every runtime has.

    Gradients, of the colour in which they are strongest, are shared out among 9 directions without
    sign and 8 × 8 cells. Blocks of 4 × 4 cells are normalised, clipped and normalised again, so
    that neither brightness nor contrast counts. Shares in directions are cos⁶ of the angle
    between, of twice the angle: smooth, with no arc tangent. Nothing is learnt.

    Args:
        flat: Return all blocks as features of the image.

    Shape:
        `(b, c, h, w)` to the map of blocks `(b, 144, 5, 5)`, or to `(b, 3600)`.
    """

    angles: Tensor

    def __init__(self, *, flat: bool = False) -> None:
        super().__init__()
        self.flat = flat
        turns = torch.arange(DIRECTIONS) / DIRECTIONS
        self.register_buffer("angles", 2 * math.pi * turns[:, None, None], persistent=False)
        self.out_channels = CHANNELS * BLOCKS**2 if flat else CHANNELS

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"flat={self.flat}"

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k ..."]:
        """Return the blocks."""
        factor = max(1, min(images.shape[-2:]) // FINEST)
        wide = pad(avg_pool2d(images, factor) if factor > 1 else images, (1, 1, 1, 1), "replicate")
        across = wide[..., 1:-1, 2:] - wide[..., 1:-1, :-2]
        down = wide[..., 2:, 1:-1] - wide[..., :-2, 1:-1]
        squares = across.square() + down.square()
        if images.shape[1] > 1:
            strongest = squares.argmax(dim=1, keepdim=True)
            across, down, squares = (each.gather(1, strongest) for each in (across, down, squares))
        squares = squares + TINY
        cosine, sine = (across.square() - down.square()) / squares, 2 * across * down / squares
        shares = (cosine * self.angles.cos() + sine * self.angles.sin()).clamp(min=0)
        shares = (shares * shares * shares).square()
        strengths = shares * squares.sqrt()
        rows, columns = (_cells(side, images) for side in strengths.shape[-2:])
        cells = einsum(strengths, rows, columns, "b d y x, j y, i x -> b d j i")
        blocks = [
            cells[:, :, j : j + BLOCKS, i : i + BLOCKS] for j in range(BLOCK) for i in range(BLOCK)
        ]
        stacked = torch.cat(blocks, dim=1)
        found = _unit(_unit(stacked).clamp(max=CLIP))
        return found.flatten(1) if self.flat else found


def _unit(blocks: Tensor) -> Tensor:
    return blocks / (blocks.square().sum(dim=1, keepdim=True) + TINY).sqrt()


def _cells(side: int, like: Tensor) -> Float[Tensor, "cells side"]:
    """Return the shares of pixels in cells: 1 in the middle of one, 0 in that of the next."""
    pixels = (torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) * CELLS / side - 0.5
    middles = torch.arange(CELLS, device=like.device, dtype=like.dtype)
    return (1 - (pixels - middles[:, None]).abs()).clamp(min=0) * CELLS / side


def orbit_gradients(  # noqa: PLR0913
    *,
    head: str = "avg",
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (64, 64),
    group: Group | None = None,
    group_pool: str = "mean",
    widths: Sequence[int] = (),
    dropout: float = 0.0,
    norm_features: bool = False,
    head_options: dict[str, Any] | None = None,
) -> Network:
    """Oriented gradients over the turned copies of images, a head, one dense layer.

    With a `group_pool` of `pose` there is no head: `PoseClassifier` looks at all blocks at once.
    """
    if in_channels < 1 or min(image_size) < SMALLEST:
        raise ConfigError(
            f"{NAME}: images must have a channel and {SMALLEST} x {SMALLEST} pixels or more, got "
            f"{in_channels} and {image_size[0]} x {image_size[1]}"
        )
    group = group or Cyclic(4)
    if group_pool == "pose":
        whole = OrientedGradients(flat=True)
        classifier = PoseClassifier(whole.out_channels, num_classes)
        return Network(OrbitFeatures(whole, group), nn.Identity(), classifier)
    return integrated(
        OrbitFeatures(OrientedGradients(), group),
        CHANNELS,
        (BLOCKS, BLOCKS),
        head=head,
        group_pool=group_pool,
        widths=widths,
        head_options=head_options,
        num_classes=num_classes,
        dropout=dropout,
        norm_features=norm_features,
    )
