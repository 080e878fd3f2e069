"""CIFAR-10 in its binary version, which needs no unpickling.

Axes:  n image   c channel   h w pixel
"""

from pathlib import Path

import numpy as np
import torch
from einops import rearrange

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, Entry, File
from invint.errors import DataError

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
INSIDE = "cifar-10-batches-bin"
PER_FILE, RECORD = 10_000, 1 + 3 * 32 * 32
BYTES = PER_FILE * RECORD

DOWNLOADS = (
    Download(
        File("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        members=(
            File("data_batch_1.bin", BYTES, "5dd7e06a14cb22eb9f671a540d1b7c25"),
            File("data_batch_2.bin", BYTES, "5ea93a67294ea407fff1d09f752e9692"),
            File("data_batch_3.bin", BYTES, "942cd6a4bcdd0dd3c604fbe906cb4421"),
            File("data_batch_4.bin", BYTES, "ae636b3ba5c66a11e91e8cb52e771fcb"),
            File("data_batch_5.bin", BYTES, "53f37980c15c3d472c316c40844f3f0d"),
            File("test_batch.bin", BYTES, "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
        inside=INSIDE,
    ),
)


def load_cifar10(folder: Path, *, per_file: int = PER_FILE) -> Dataset:
    """Read the six official binary files.

    Args:
        folder: Holds them, or the folder `cifar-10-batches-bin` with them.
        per_file: Images to expect in each.
    """
    home = folder if (folder / "test_batch.bin").is_file() else folder / INSIDE
    parts = [_read_batch(home / f"data_batch_{number}.bin", per_file) for number in range(1, 6)]
    train = Split(
        torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    )
    return Dataset("cifar10", train, _read_batch(home / "test_batch.bin", per_file), NAMES)


def _read_batch(path: Path, count: int) -> Split:
    """Read records of one label byte, then 1,024 red, 1,024 green and 1,024 blue bytes."""
    size = path.stat().st_size
    if size != count * RECORD:
        raise DataError(
            f"{path}: expected {count:,} records of {RECORD:,} bytes, got {size:,} bytes"
        )
    records = torch.from_numpy(np.fromfile(path, dtype=np.uint8))
    records = rearrange(records, "(n k) -> n k", k=RECORD)
    labels = records[:, 0].long()
    if labels.max() > 9:
        raise DataError(f"{path}: expected labels from 0 to 9, got {labels.max()}")
    images = rearrange(records[:, 1:], "n (c h w) -> n c h w", c=3, h=32)
    return Split(images.contiguous(), labels)


ENTRY = Entry(
    title="CIFAR-10, binary version",
    load=load_cifar10,
    images="50,000 + 10,000",
    classes="10",
    shape="32x32 colour",
    licence="none stated",
    downloads=DOWNLOADS,
)
