"""SVHN's cropped digits in their official MATLAB files.

Axes:  n image   c channel   h w pixel
"""

from pathlib import Path

import torch
from einops import rearrange

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, Entry, File
from invint.data.mnist import DIGITS
from invint.errors import DataError

COUNTS = (73_257, 26_032)
PLACE = "http://ufldl.stanford.edu/housenumbers/"
TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"
IMAGE = (32, 32, 3)
NOTE = "SVHN, re-cropped"

DOWNLOADS = (
    Download(File(TRAIN, 182040794, "e26dedcc434d2e4c54c9b2d4a06d8373"), (PLACE + TRAIN,)),
    Download(File(TEST, 64275384, "eb5a983be6a315427106f1b164d9cef3"), (PLACE + TEST,)),
)


def load_svhn(folder: Path, *, counts: tuple[int, int] = COUNTS) -> Dataset:
    """Read the official crops, format 2: 32×32, without the additional images.

    Args:
        folder: Holds `train_32x32.mat` and `test_32x32.mat`.
        counts: Images to expect for training and for testing.
    """
    train, test = _read_mat(folder / TRAIN, counts[0]), _read_mat(folder / TEST, counts[1])
    return Dataset("svhn", train, test, DIGITS)


def load_recropped_svhn(folder: Path) -> Dataset:
    """Read crops in the official layout that are not the official ones; any number of them."""
    train, test = _read_mat(folder / TRAIN, None), _read_mat(folder / TEST, None)
    return Dataset("svhn-recropped", train, test, DIGITS, note=NOTE)


def _read_mat(path: Path, count: int | None) -> Split:
    """Read `X` (32, 32, 3, n) and `y` (n, 1) with 10 for the digit 0."""
    from scipy.io import loadmat, whosmat

    _check_header(path)
    try:
        variables = {name: (shape, kind) for name, shape, kind in whosmat(path)}
        images = _check_variables(path, variables, count)
        content = loadmat(path, variable_names=["X", "y"])
        pixels, marks = torch.from_numpy(content["X"]), torch.from_numpy(content["y"]).long()
    except DataError:
        raise
    except Exception as error:  # the reader raises whatever damaged bytes lead it to
        raise DataError(f"{path}: damaged: {error}") from error
    labels = rearrange(marks, "n 1 -> n")
    if labels.min() < 1 or labels.max() > 10:
        raise DataError(f"{path}: expected labels from 1 to 10, got {labels.min()}..{labels.max()}")
    if len(labels) != images:
        raise DataError(f"{path}: {images:,} images, but {len(labels):,} labels")
    return Split(rearrange(pixels, "h w c n -> n c h w").contiguous(), labels % 10)


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(128)
    if not header.startswith(b"MATLAB 5.0 MAT-file") or len(header) < 128:
        raise DataError(f"{path}: expected a MATLAB 5.0 file, got one that begins {header[:10]!r}")


def _check_variables(
    path: Path, variables: dict[str, tuple[tuple[int, ...], str]], count: int | None
) -> int:
    """Check names, types and sizes before anything is read; return the number of images."""
    if not {"X", "y"} <= set(variables):
        found = ", ".join(variables) or "none"
        raise DataError(f"{path}: expected the variables X and y, got {found}")
    (shape, kind), (label_shape, _) = variables["X"], variables["y"]
    if kind != "uint8" or shape[:-1] != IMAGE or len(shape) != 4:
        raise DataError(f"{path}: expected X of uint8, 32 x 32 x 3 x n, got {kind} {shape}")
    if label_shape != (shape[-1], 1):
        raise DataError(f"{path}: expected y of size {(shape[-1], 1)}, got {label_shape}")
    if shape[-1] == 0 or (count is not None and shape[-1] != count):
        expected = "some" if count is None else f"{count:,}"
        raise DataError(f"{path}: expected {expected} images, got {shape[-1]:,}")
    return shape[-1]


OFFICIAL = Entry(
    title="Street View House Numbers",
    load=load_svhn,
    images="73,257 + 26,032",
    classes="10",
    shape="32x32 colour",
    licence="non-commercial use",
    downloads=DOWNLOADS,
)
RECROPPED = Entry(
    title="SVHN, other crops in the same layout",
    load=load_recropped_svhn,
    images="any",
    classes="10",
    shape="32x32 colour",
    licence="non-commercial use",
    downloads=(Download(File(TRAIN)), Download(File(TEST))),
    note=NOTE,
)
