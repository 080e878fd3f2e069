"""Images to try at once: digits of scikit-learn's set, drawn large."""

import io
from functools import cache

import numpy as np
from PIL import Image

SIDE, MARGIN = 160, 16  # as much margin as the digits have that networks are trained on

Pixels = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@cache
def sample_images() -> dict[str, bytes]:
    """Return one digit of each kind as a PNG file, by the name of the sample."""
    from sklearn.datasets import load_digits  # takes a second to import

    digits = load_digits()
    kinds = {label: digits.images[digits.target == label] for label in range(10)}
    return {f"digit-{label}": _drawn(_typical(images)) for label, images in kinds.items()}


def _typical(images: Pixels) -> Pixels:
    """Return the image nearest to the mean of all."""
    distances = ((images - images.mean(axis=0)) ** 2).sum(axis=(1, 2))
    typical: Pixels = images[distances.argmin()]
    return typical


def _drawn(image: Pixels) -> bytes:
    inner = SIDE - 2 * MARGIN
    small = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
    large = Image.new("L", (SIDE, SIDE))
    large.paste(small.resize((inner, inner), Image.Resampling.BICUBIC), (MARGIN, MARGIN))
    file = io.BytesIO()
    large.save(file, format="PNG", optimize=True)
    return file.getvalue()
