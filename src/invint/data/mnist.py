"""MNIST in its official idx files, gzipped.

Axes:  n image   h w pixel
"""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, Entry, File
from invint.errors import DataError

COUNTS = (60_000, 10_000)
SIDE = 28
DIGITS = tuple(map(str, range(10)))
IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049


def _download(name: str, size: int, md5: str) -> Download:
    places = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
    return Download(File(name, size, md5), tuple(place + name for place in places))


DOWNLOADS = (
    _download("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    _download("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
    _download("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
    _download("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
)


def load_mnist(folder: Path, *, counts: tuple[int, int] = COUNTS) -> Dataset:
    """Read MNIST.

    Args:
        folder: Holds the four official files.
        counts: Images to expect for training and for testing.
    """
    train, test = (
        Split(
            _read_images(folder / f"{stem}-images-idx3-ubyte.gz", count),
            _read_labels(folder / f"{stem}-labels-idx1-ubyte.gz", count),
        )
        for stem, count in zip(("train", "t10k"), counts, strict=True)
    )
    return Dataset("mnist", train, test, DIGITS)


def _read_images(path: Path, count: int) -> Tensor:
    body = _read_idx(path, IMAGES_MAGIC, (count, SIDE, SIDE))
    return rearrange(torch.from_numpy(body), "(n h w) -> n 1 h w", h=SIDE, w=SIDE)


def _read_labels(path: Path, count: int) -> Tensor:
    labels = torch.from_numpy(_read_idx(path, LABELS_MAGIC, (count,)))
    if labels.max() > 9:
        raise DataError(f"{path}: expected labels from 0 to 9, got {labels.max()}")
    return labels.long()


def _read_idx(path: Path, magic: int, shape: tuple[int, ...]) -> np.ndarray:
    """Read a gzipped idx file: big-endian magic number and sizes, then bytes."""
    header_size, body_size = 4 * (1 + len(shape)), int(np.prod(shape))
    try:
        with gzip.open(path) as file:
            header = np.frombuffer(file.read(header_size), dtype=">i4")
            _check_header(path, tuple(header.tolist()), magic, shape)
            content = file.read(body_size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cut off, or not gzipped ({error})") from error
    if len(content) != body_size:
        more = "more" if len(content) > body_size else f"{len(content):,}"
        raise DataError(f"{path}: expected {body_size:,} bytes after the header, got {more}")
    return np.frombuffer(bytearray(content), dtype=np.uint8)


def _check_header(path: Path, header: tuple[int, ...], magic: int, shape: tuple[int, ...]) -> None:
    if header[:1] != (magic,):
        got = header[0] if header else "nothing"
        raise DataError(f"{path}: expected an idx file with the magic number {magic}, got {got}")
    if header[1:] != shape:
        raise DataError(f"{path}: expected the sizes {shape}, got {header[1:]}")


ENTRY = Entry(
    title="MNIST",
    load=load_mnist,
    images="60,000 + 10,000",
    classes="10",
    shape="28x28 grey",
    licence="CC BY-SA 3.0",
    downloads=DOWNLOADS,
)
