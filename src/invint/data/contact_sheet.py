"""Many small pictures on one sheet, each with its label, to look at a data set.

Axes:  n image   c channel   h w pixel
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from einops import rearrange, repeat
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from invint.errors import DataError, ShapeError
from invint.files import write_atomically

CELL, GAP, LINE, TITLE = 84, 6, 18, 30
PAPER, INK, FAINT = (255, 255, 255), (25, 25, 25), (110, 110, 110)


def contact_sheet(
    images: Tensor, labels: Sequence[str], *, title: str = "", columns: int = 8
) -> Image.Image:
    """Draw images in rows, with a label under each.

    Args:
        images: `(n, c, h, w)` of uint8, of uint16, or of floats in [0, 1]; one channel is grey,
            three are red, green and blue, of any others the first is shown.
        labels: One for each image.
        title: Stands above.
        columns: Images per row.
    """
    if images.ndim != 4 or len(images) != len(labels):
        raise ShapeError(
            f"contact_sheet: expected (n, c, h, w) and n labels, "
            f"got {tuple(images.shape)} and {len(labels)}"
        )
    columns = max(1, min(columns, len(images)))
    step, rows = CELL + GAP, math.ceil(len(images) / columns)
    height = TITLE + rows * (step + LINE) + GAP
    sheet = Image.new("RGB", (columns * step + GAP, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    large, small = ImageFont.load_default(size=15), ImageFont.load_default(size=12)
    pen.text((GAP, GAP), _fitted(title, large, sheet.width - 2 * GAP), INK, large)
    for number, (pixels, label) in enumerate(zip(_displayable(images), labels, strict=True)):
        row, column = divmod(number, columns)
        left, top = GAP + column * step, TITLE + row * (step + LINE)
        sheet.paste(_enlarged(pixels), (left, top))
        pen.text((left, top + CELL + 1), _fitted(label, small, CELL), FAINT, small)
    return sheet


def save_sheet(sheet: Image.Image, path: Path) -> None:
    """Write a sheet as PNG."""
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    try:
        write_atomically(path, stream.getvalue())
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from error


def _displayable(images: Tensor) -> Tensor:
    """Turn stored or normalised images into `(n, h, w, 3)` of uint8."""
    if images.dtype == torch.uint16:
        images = images.to(torch.float32) / 65535
    if images.is_floating_point():
        images = (images.clamp(0, 1) * 255).round().byte()
    if images.shape[1] != 3:
        images = repeat(images[:, :1], "n 1 h w -> n c h w", c=3)
    return rearrange(images, "n c h w -> n h w c").contiguous()


def _enlarged(pixels: Tensor) -> Image.Image:
    """Fit a picture into its cell, on grey; small ones keep their square pixels."""
    picture = Image.fromarray(pixels.numpy())
    scale = CELL / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    resample = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.LANCZOS
    cell = Image.new("RGB", (CELL, CELL), (225, 225, 225))
    cell.paste(picture.resize(size, resample), ((CELL - size[0]) // 2, (CELL - size[1]) // 2))
    return cell


def _fitted(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """Shorten a text until it fits."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
