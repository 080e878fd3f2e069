"""Images turned and mirrored, with what is done about their border."""

import math

from torch import Tensor
from torch.nn.functional import pad

from invint.ops.rotation import inscribed_disc, permute_grid, rotate

BORDERS = {
    "disc": "every image, the upright one too, masked with the inscribed disc",
    "pad": "every image, the upright one too, padded with zeros so that nothing is cut",
}


def turned(x: Tensor, angle: float, mirrored: bool, border: str) -> Tensor:
    """Return images mirrored if asked for, then turned counter-clockwise by degrees."""
    return (_disc_masked if border == "disc" else _padded)(x, angle, mirrored)


def _disc_masked(x: Tensor, angle: float, mirrored: bool) -> Tensor:
    image = _turned(x, angle, mirrored)
    return image * inscribed_disc(image)


def _padded(x: Tensor, angle: float, mirrored: bool) -> Tensor:
    height, width = x.shape[-2:]
    diagonal = math.hypot(height, width) + 2  # interpolation reaches a pixel further
    rows, columns = (math.ceil((diagonal - side) / 2) for side in (height, width))
    return _turned(pad(x, (columns, columns, rows, rows)), angle, mirrored)


def _turned(x: Tensor, angle: float, mirrored: bool) -> Tensor:
    """Mirror, turn by less than 45° with interpolation if need be, then make quarter turns."""
    quarters = round(angle / 90)
    rest = angle - 90 * quarters
    x = permute_grid(x, 0, mirrored)
    if rest:  # the pixels at the edge continue outwards: no dark rim around the disc
        wide = pad(x, (2, 2, 2, 2), mode="replicate")
        x = rotate(wide, math.radians(rest), mode="bicubic")[:, :, 2:-2, 2:-2]
    return permute_grid(x, quarters, False)
