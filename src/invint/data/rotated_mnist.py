"""Rotated MNIST: the official text files, and a set of the same kind made anew from MNIST.

Axes:  n image   h w pixel
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from einops import EinopsError, rearrange
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, Entry, File
from invint.data.mnist import COUNTS as MNIST_COUNTS
from invint.data.mnist import DIGITS, SIDE, load_mnist
from invint.data.mnist import DOWNLOADS as MNIST_DOWNLOADS
from invint.errors import DataError

COUNTS = (12_000, 50_000)
STEM = "mnist_all_rotation_normalized_float"
LINES = 500
DIGITS_PER_NUMBER = 32  # at most, blanks included
NOTE = "regenerated from MNIST"

DOWNLOADS = (
    Download(
        File("mnist_rotation_new.zip", md5="0f9a947ff3d30e95cd685462cbf3b847"),
        ("http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip",),
        members=(File(f"{STEM}_train_valid.amat"), File(f"{STEM}_test.amat")),
    ),
)


def load_rotated_mnist(folder: Path, *, counts: tuple[int, int] = COUNTS) -> Dataset:
    """Read the official files of Larochelle et al. (2007).

    A line has the 784 pixels of an image, row by row, and its label. Pixels are n/256 before the
    rotation, so that 256 times the value, rounded, restores bytes; what exceeds 255 becomes 255.

    Args:
        folder: Holds the two official files.
        counts: Images to expect for training and for testing.
    """
    train, test = (
        _read_amat(folder / f"{STEM}_{part}.amat", count)
        for part, count in zip(("train_valid", "test"), counts, strict=True)
    )
    return Dataset("rotmnist", train, test, DIGITS)


def regenerate(
    folder: Path,
    *,
    counts: tuple[int, int] = COUNTS,
    mnist_counts: tuple[int, int] = MNIST_COUNTS,
    seed: int = 0,
) -> Dataset:
    """Make a set like Rotated MNIST from MNIST: other images, other angles, same protocol.

    All of MNIST is shuffled; the first images are for training, the next for testing, so that no
    image is in both. Each is turned about its centre by one angle, uniform in [0°, 360°), with
    bilinear interpolation in float64 and zeros outside, and rounded to bytes.

    Args:
        folder: Holds the four files of MNIST.
        counts: Images to make for training and for testing.
        mnist_counts: Images MNIST has.
        seed: Decides images and angles.
    """
    mnist = load_mnist(folder, counts=mnist_counts)
    generator = torch.Generator().manual_seed(seed)
    images = torch.cat((mnist.train.images, mnist.test.images))
    labels = torch.cat((mnist.train.labels, mnist.test.labels))
    chosen = torch.randperm(len(images), generator=generator)[: sum(counts)]
    angles = 2 * torch.pi * torch.rand(len(chosen), generator=generator, dtype=torch.float64)
    turned = [
        turn_each(images[chosen[start : start + 1000]], angles[start : start + 1000], side=SIDE)
        for start in range(0, len(chosen), 1000)
    ]
    made = Split(torch.cat(turned), labels[chosen])
    numbers = torch.arange(len(made))
    train, test = made[numbers[: counts[0]]], made[numbers[counts[0] :]]
    return Dataset("rotmnist-regenerated", train, test, DIGITS, note=NOTE)


def turn_each(
    images: Tensor, angles: Tensor, *, side: int, zoom: float = 1.0, mode: str = "bilinear"
) -> Tensor:
    """Turn each image of bytes by its own angle, counter-clockwise, into a square of bytes.

    The work is done in float64, so that rounding to bytes gives the same everywhere.

    Args:
        images: `(n, 1, h, w)` of uint8.
        angles: `(n,)`, in radians.
        side: Of the result, in pixels.
        zoom: Pixels of the result per pixel of the image.
        mode: Interpolation, `bilinear` or `bicubic`.
    """
    reach = side / (zoom * images.shape[-1])
    cosine, sine, zero = angles.cos() * reach, angles.sin() * reach, torch.zeros_like(angles)
    rows = torch.stack((cosine, -sine, zero, sine, cosine, zero), dim=1)
    grid = affine_grid(
        rearrange(rows, "n (i j) -> n i j", i=2), [len(images), 1, side, side], align_corners=False
    )
    turned = grid_sample(
        images.double(), grid, mode=mode, padding_mode="zeros", align_corners=False
    )
    return turned.round().clamp(0, 255).byte()


def _read_amat(path: Path, count: int) -> Split:
    size = path.stat().st_size
    if size > count * (SIDE * SIDE + 1) * DIGITS_PER_NUMBER:
        raise DataError(f"{path}: expected {count:,} lines, got {size:,} bytes, far too many")
    images = np.empty((count, SIDE * SIDE), dtype=np.uint8)
    labels = np.empty(count, dtype=np.int64)
    done = 0
    for block in _blocks(path):
        if done + len(block) > count:
            raise DataError(f"{path}: expected {count:,} lines, got more")
        there = slice(done, done + len(block))
        done += len(block)
        pixels, labels[there] = block[:, :-1], block[:, -1]
        if not (pixels.min() >= 0 and pixels.max() <= 1 and np.isin(block[:, -1], range(10)).all()):
            raise DataError(
                f"{path}: lines {there.start + 1} to {done} hold a pixel outside [0, 1] "
                "or a label that is not a digit"
            )
        images[there] = np.minimum(np.rint(256 * pixels), 255)
    if done != count:
        raise DataError(f"{path}: expected {count:,} lines, got {done:,}")
    pixels_of = rearrange(torch.from_numpy(images), "n (h w) -> n 1 h w", h=SIDE)
    return Split(pixels_of, torch.from_numpy(labels))


def _blocks(path: Path) -> Iterator[np.ndarray]:
    """Yield the numbers of some lines at a time."""
    first, columns = 1, SIDE * SIDE + 1
    with path.open("rb") as file:
        while lines := list(itertools.islice(file, LINES)):
            try:
                numbers = np.fromiter(map(float, b" ".join(lines).split()), dtype=np.float32)
                block = rearrange(numbers, "(n k) -> n k", n=len(lines), k=columns)
            except (ValueError, EinopsError) as error:
                last = first + len(lines) - 1
                raise DataError(
                    f"{path}: lines {first} to {last} are not {columns} numbers each"
                ) from error
            yield block
            first += len(lines)


OFFICIAL = Entry(
    title="Rotated MNIST",
    load=load_rotated_mnist,
    images="12,000 + 50,000",
    classes="10",
    shape="28x28 grey",
    licence="none stated",
    downloads=DOWNLOADS,
)
REGENERATED = Entry(
    title="Rotated MNIST, made anew from MNIST",
    load=regenerate,
    images="12,000 + 50,000",
    classes="10",
    shape="28x28 grey",
    licence="CC BY-SA 3.0",
    downloads=MNIST_DOWNLOADS,
    home="mnist",
    note=NOTE,
)
