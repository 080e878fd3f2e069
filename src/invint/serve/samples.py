"""Images to try at once: digits of scikit-learn's set, drawn large."""

import io
from functools import cache

import numpy as np
from PIL import Image

SAMPLES = (13, 14, 15, 16, 17, 18, 19, 20, 21, 22)  # 3, 4, 5, …, a good hand for each digit
SIDE, MARGIN = 160, 16


@cache
def sample_images() -> dict[str, bytes]:
    """Return a few digits as PNG files, by the name of the sample."""
    from sklearn.datasets import load_digits  # takes a second to import

    digits = load_digits()
    chosen = sorted(SAMPLES, key=lambda number: int(digits.target[number]))
    return {f"digit-{digits.target[number]}": _drawn(digits.images[number]) for number in chosen}


def _drawn(image: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    inner = SIDE - 2 * MARGIN
    small = Image.fromarray((image * 255 / 16).round().astype(np.uint8))
    large = Image.new("L", (SIDE, SIDE))
    large.paste(small.resize((inner, inner), Image.Resampling.BICUBIC), (MARGIN, MARGIN))
    file = io.BytesIO()
    large.save(file, format="PNG", optimize=True)
    return file.getvalue()
