"""STL-10 in its official binary files; the unlabelled images are left aside.

Axes:  n image   c channel   h w pixel
"""

from pathlib import Path

import numpy as np
import torch
from einops import rearrange

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, Entry, File
from invint.errors import DataError

COUNTS = (5_000, 8_000)
NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
INSIDE = "stl10_binary"
SIDE = 96
IMAGE = 3 * SIDE * SIDE

DOWNLOADS = (
    Download(
        File("stl10_binary.tar.gz", 2640397119, "91f7769df0f17e558f3565bffb0c7dfb"),
        ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
        members=(
            File("train_X.bin", 5_000 * IMAGE, "918c2871b30a85fa023e0c44e0bee87f"),
            File("train_y.bin", 5_000, "5a34089d4802c674881badbb80307741"),
            File("test_X.bin", 8_000 * IMAGE, "7f263ba9f9e0b06b93213547f721ac82"),
            File("test_y.bin", 8_000, "36f9794fa4beb8a2c72628de14fa638e"),
            File("class_names.txt"),
        ),
        inside=INSIDE,
    ),
)


def load_stl10(folder: Path, *, counts: tuple[int, int] = COUNTS) -> Dataset:
    """Read the labelled images.

    Args:
        folder: Holds the official files, or the folder `stl10_binary` with them.
        counts: Images to expect for training and for testing.
    """
    home = folder if (folder / "test_X.bin").is_file() else folder / INSIDE
    _check_names(home / "class_names.txt")
    train, test = (
        _read_part(home, part, count) for part, count in zip(("train", "test"), counts, strict=True)
    )
    return Dataset("stl10", train, test, NAMES)


def _check_names(path: Path) -> None:
    with path.open(errors="replace") as file:
        found = tuple(file.read(200).split())
    if found != NAMES:
        raise DataError(f"{path}: expected the classes {' '.join(NAMES)}, got {' '.join(found)}")


def _read_part(home: Path, part: str, count: int) -> Split:
    """Read images stored channel by channel, each column by column, and labels from 1."""
    pixels = _read_bytes(home / f"{part}_X.bin", count * IMAGE)
    labels = _read_bytes(home / f"{part}_y.bin", count).long()
    if labels.min() < 1 or labels.max() > 10:
        raise DataError(
            f"{home / part}_y.bin: expected labels from 1 to 10, got {labels.min()}..{labels.max()}"
        )
    images = rearrange(pixels, "(n c w h) -> n c h w", c=3, h=SIDE, w=SIDE)
    return Split(images.contiguous(), labels - 1)


def _read_bytes(path: Path, size: int) -> torch.Tensor:
    found = path.stat().st_size
    if found != size:
        raise DataError(f"{path}: expected {size:,} bytes, got {found:,}")
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8))


ENTRY = Entry(
    title="STL-10, labelled images",
    load=load_stl10,
    images="5,000 + 8,000",
    classes="10",
    shape="96x96 colour",
    licence="none stated; ImageNet terms",
    downloads=DOWNLOADS,
)
