"""The data sets of others: their official files, and how each is read.

Also sets made from such files: `digits`, which comes with scikit-learn and is always there, Rotated
MNIST made anew from MNIST, and Fashion-MNIST rotated. What the sets are called is in `registry`.

Axes:  n image   c channel   h w pixel
"""

import gzip
import math
import struct
import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor

from invint.data.dataset import Dataset, Split
from invint.data.download import Download, File
from invint.data.matlab import Variable, list_variables, read_variable
from invint.errors import DataError
from invint.ops.grids import rotate

DIGIT_NAMES = tuple(map(str, range(10)))


def _check_labels(labels: Tensor, first: int, path: Path) -> None:
    """Raise `DataError` unless labels are ten classes counted from `first`."""
    low, high = int(labels.min()), int(labels.max())
    if low < first or high > first + 9:
        raise DataError(f"{path}: expected labels from {first} to {first + 9}, got {low} to {high}")


# MNIST: idx files, gzipped


MNIST_COUNTS = (60_000, 10_000)
MNIST_SIDE = 28
MNIST_PLACES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "http://yann.lecun.com/exdb/mnist/",
)
MNIST_FILES = tuple(
    Download(file, tuple(place + file.name for place in MNIST_PLACES))
    for file in (
        File("train-images-idx3-ubyte.gz", 9912422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        File("train-labels-idx1-ubyte.gz", 28881, "d53e105ee54ea40749a09fcbcd1e9432"),
        File("t10k-images-idx3-ubyte.gz", 1648877, "9fb629c4189551a2d022fa330f9573f3"),
        File("t10k-labels-idx1-ubyte.gz", 4542, "ec29112dd5afa0611ce80d1b7f02629c"),
    )
)
IDX_IMAGES, IDX_LABELS = 2051, 2049  # magic numbers


def load_mnist(folder: Path, *, counts: tuple[int, int] = MNIST_COUNTS) -> Dataset:
    """Read MNIST.

    Args:
        folder: Holds the four official files.
        counts: Images to expect for training and for testing.
    """
    return Dataset("mnist", *_read_splits(folder, counts), DIGIT_NAMES)


def _read_splits(folder: Path, counts: tuple[int, int]) -> tuple[Split, Split]:
    return _read_mnist(folder, "train", counts[0]), _read_mnist(folder, "t10k", counts[1])


def _read_mnist(folder: Path, stem: str, count: int) -> Split:
    shape = (count, MNIST_SIDE, MNIST_SIDE)
    images = _read_idx(folder / f"{stem}-images-idx3-ubyte.gz", IDX_IMAGES, shape)
    path = folder / f"{stem}-labels-idx1-ubyte.gz"
    labels = _read_idx(path, IDX_LABELS, (count,))
    _check_labels(labels, 0, path)
    return Split(images[:, None], labels.long())


def _read_idx(path: Path, magic: int, shape: tuple[int, ...]) -> Tensor:
    """Read a gzipped idx file: big-endian magic number and sizes, then bytes."""
    header_size, body_size = 4 * (1 + len(shape)), math.prod(shape)
    try:
        with gzip.open(path) as file:
            start = file.read(header_size)
            content = file.read(body_size + 1)  # one more than expected shows a longer file
        header = tuple(np.frombuffer(start, dtype=">i4").tolist())
    except (EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise DataError(f"{path}: cut off, or not gzipped ({error})") from error
    if header[:1] != (magic,):
        got = header[0] if header else "nothing"
        raise DataError(f"{path}: expected an idx file with the magic number {magic}, got {got}")
    if header[1:] != shape:
        raise DataError(f"{path}: expected the sizes {shape}, got {header[1:]}")
    if len(content) != body_size:
        more = "more" if len(content) > body_size else f"{len(content):,}"
        raise DataError(f"{path}: expected {body_size:,} bytes after the header, got {more}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(shape)


# Rotated MNIST: the official text files, or made anew from MNIST


ROTATED_MNIST_COUNTS = (12_000, 50_000)
AMAT_STEM = "mnist_all_rotation_normalized_float"
AMAT_COLUMNS = MNIST_SIDE * MNIST_SIDE + 1  # the pixels and the label
AMAT_CELL_BYTES = 32  # at most, with the blanks around a number
ROTATED_MNIST_FILES = (
    Download(
        File("mnist_rotation_new.zip", md5="0f9a947ff3d30e95cd685462cbf3b847"),
        ("http://www.iro.umontreal.ca/~lisa/icml2007data/mnist_rotation_new.zip",),
        members=(File(f"{AMAT_STEM}_train_valid.amat"), File(f"{AMAT_STEM}_test.amat")),
    ),
)
REGENERATED_NOTE = "regenerated from MNIST"
ROTATED_AT_ONCE = 1000  # images; in float64 they take eight times their size


def load_rotated_mnist(folder: Path, *, counts: tuple[int, int] = ROTATED_MNIST_COUNTS) -> Dataset:
    """Read the official files of Larochelle et al. (2007).

    A line has the 784 pixels of an image, row by row, and its label. Pixels are n/256 before the
    rotation, so that 256 times the value, rounded, restores bytes; what exceeds 255 becomes 255.

    Args:
        folder: Holds the two official files.
        counts: Images to expect for training and for testing.
    """
    train, test = (
        _read_amat(folder / f"{AMAT_STEM}_{split}.amat", count)
        for split, count in zip(("train_valid", "test"), counts, strict=True)
    )
    return Dataset("rotmnist", train, test, DIGIT_NAMES)


def _read_amat(path: Path, count: int) -> Split:
    size = path.stat().st_size
    if size > count * AMAT_COLUMNS * AMAT_CELL_BYTES:
        raise DataError(f"{path}: expected {count:,} lines, got {size:,} bytes, far too many")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of an empty file, which is told below
            numbers = np.loadtxt(path, dtype=np.float32, comments=None, ndmin=2)
        numbers = numbers.reshape(len(numbers), AMAT_COLUMNS)
    except ValueError as error:
        raise DataError(f"{path}: expected {AMAT_COLUMNS} numbers a line ({error})") from error
    if len(numbers) != count:
        raise DataError(f"{path}: expected {count:,} lines, got {len(numbers):,}")
    pixels, labels = numbers[:, :-1], numbers[:, -1]
    if not (pixels.min() >= 0 and pixels.max() <= 1 and np.isin(labels, range(10)).all()):
        raise DataError(f"{path}: has a pixel outside [0, 1] or a label that is not a digit")
    images = torch.from_numpy(np.minimum(np.rint(256 * pixels), 255).astype(np.uint8))
    squares = rearrange(images, "n (h w) -> n 1 h w", h=MNIST_SIDE)
    return Split(squares, torch.from_numpy(labels.astype(np.int64)))


def regenerate_rotated_mnist(
    folder: Path,
    *,
    counts: tuple[int, int] = ROTATED_MNIST_COUNTS,
    mnist_counts: tuple[int, int] = MNIST_COUNTS,
    seed: int = 0,
) -> Dataset:
    """Make a set like Rotated MNIST from MNIST: other images, other angles, same protocol.

    All of MNIST is shuffled; the first images are for training, the next for testing, so that no
    image is in both. Each is rotated about its centre by one angle, uniform in [0°, 360°), with
    bilinear interpolation in float64 and zeros outside, and rounded to bytes.

    Args:
        folder: Holds the four files of MNIST.
        counts: Images to make for training and for testing.
        mnist_counts: Images MNIST has.
        seed: Decides images and angles.
    """
    train, test = _rotated(load_mnist(folder, counts=mnist_counts), counts, seed)
    return Dataset("rotmnist-regenerated", train, test, DIGIT_NAMES, note=REGENERATED_NOTE)


def _rotated(source: Dataset, counts: tuple[int, int], seed: int) -> tuple[Split, Split]:
    """Draw images of a set, rotate each by an angle of its own, and split them anew."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.cat((source.train.images, source.test.images))
    labels = torch.cat((source.train.labels, source.test.labels))
    chosen = torch.randperm(len(images), generator=generator)[: sum(counts)]
    angles = _random_angles(len(chosen), generator)
    rotated = [
        rotate_bytes(images[some], some_angles)
        for some, some_angles in zip(
            torch.split(chosen, ROTATED_AT_ONCE), torch.split(angles, ROTATED_AT_ONCE), strict=True
        )
    ]
    made = Split(torch.cat(rotated), labels[chosen])
    train, test = torch.split(torch.arange(len(made)), [*counts])
    return made[train], made[test]


def rotate_bytes(
    images: Tensor,
    angles: Tensor,
    *,
    mode: str = "bilinear",
    side: int | None = None,
    zoom: float = 1.0,
) -> Tensor:
    """Rotate images of bytes into images of bytes; the arguments are those of `rotate`.

    The work is done in float64, so that rounding to bytes gives the same everywhere.
    """
    rotated = rotate(images.double(), angles, mode=mode, side=side, zoom=zoom)
    return rotated.round().clamp(0, 255).byte()


def _random_angles(count: int, generator: torch.Generator) -> Tensor:
    return 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)


# Fashion-MNIST: the format of MNIST; as it is, and rotated


FASHION_NAMES = (
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
FASHION_ROTATED_COUNTS = (12_000, 10_000)
FASHION_PLACE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FILES = tuple(
    Download(file, (FASHION_PLACE + file.name,))
    for file in (  # Debian's package `dataset-fashion-mnist` has them compressed anew
        File(
            "train-images-idx3-ubyte.gz",
            26421880,
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            {26421856: "cf8536b0aa1a6ac5fa3f23001093305c"},
        ),
        File(
            "train-labels-idx1-ubyte.gz",
            29515,
            "25c81989df183df01b3e8a0aad5dffbe",
            {29491: "10bea18fdb374794d4bb42e356e600c9"},
        ),
        File(
            "t10k-images-idx3-ubyte.gz",
            4422102,
            "bef4ecab320f06d8554ea6380940ec79",
            {4422079: "f78720b4224f21cce2f2ccf2d7a94c9a"},
        ),
        File(
            "t10k-labels-idx1-ubyte.gz",
            5148,
            "bb300cfdad3c16e7a12a480ee83cd310",
            {5125: "0d30e22e447f3c33dab9ed536400ac01"},
        ),
    )
)


def load_fashion_mnist(folder: Path, *, counts: tuple[int, int] = MNIST_COUNTS) -> Dataset:
    """Read Fashion-MNIST (Xiao et al., 2017).

    Args:
        folder: Holds the four official files.
        counts: Images to expect for training and for testing.
    """
    return Dataset("fashion-mnist", *_read_splits(folder, counts), FASHION_NAMES)


def rotate_fashion_mnist(
    folder: Path,
    *,
    counts: tuple[int, int] = FASHION_ROTATED_COUNTS,
    fashion_counts: tuple[int, int] = MNIST_COUNTS,
    seed: int = 0,
) -> Dataset:
    """Make of Fashion-MNIST what `regenerate_rotated_mnist` makes of MNIST."""
    train, test = _rotated(load_fashion_mnist(folder, counts=fashion_counts), counts, seed)
    return Dataset("fashion-rotated", train, test, FASHION_NAMES)


# scikit-learn's digits, enlarged and rotated


DIGITS_SIDE, DIGITS_ZOOM, DIGITS_TRAIN = 20, 2.0, 1000
DIGITS_TABLE = "datasets/data/digits.csv.gz"  # in the package


def load_digits(*, seed: int = 0) -> Dataset:
    """Make the embedded data set of 1,797 real digits; nothing is downloaded.

    Each 8×8 image becomes 16×16 pixels in the middle of 20×20 and is rotated about the centre by
    one angle, uniform in [0°, 360°), in a single bicubic interpolation. 1,000 images are for
    training and 797 for testing, with the class ratios of the whole.

    Args:
        seed: Decides angles and split; figures are for the default.
    """
    small, labels = small_digits()
    generator = torch.Generator().manual_seed(seed)
    angles = _random_angles(len(labels), generator)
    small_bytes = (small[:, None] * 255 / 16).round().byte()
    images = rotate_bytes(small_bytes, angles, mode="bicubic", side=DIGITS_SIDE, zoom=DIGITS_ZOOM)
    train = _stratified(labels, DIGITS_TRAIN, generator)
    held_out = torch.ones(len(labels), dtype=torch.bool)
    held_out[train] = False
    digits = Split(images, labels)
    return Dataset("digits", digits[train], digits[held_out.nonzero()[:, 0]], DIGIT_NAMES)


def small_digits() -> tuple[Float[Tensor, "n 8 8"], Int64[Tensor, " n"]]:
    """Return the digits as scikit-learn has them, values from 0 to 16, and what they show."""
    package = find_spec("sklearn")
    table = Path(package.origin or "" if package else "").parent / DIGITS_TABLE
    if table.exists():  # importing the package takes a second, reading its table a tenth
        rows = np.loadtxt(table, delimiter=",")
    else:
        from sklearn.datasets import load_digits as scikit_digits

        digits = scikit_digits()
        rows = np.column_stack([digits.data, digits.target])
    images = torch.from_numpy(rows[:, :-1].reshape(-1, 8, 8))
    return images, torch.from_numpy(rows[:, -1]).long()


def _stratified(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` images with the class ratios of all; sorted."""
    sizes = torch.bincount(labels)
    exact = sizes * (count / len(labels))
    quotas = exact.floor().long()
    rest = torch.argsort(exact - quotas, descending=True, stable=True)[: count - int(quotas.sum())]
    quotas[rest] += 1
    drawn = []
    for label, quota in enumerate(quotas.tolist()):
        members = (labels == label).nonzero()[:, 0]
        drawn.append(members[torch.randperm(len(members), generator=generator)[:quota]])
    return torch.cat(drawn).sort().values


# SVHN: cropped digits in MATLAB files


SVHN_COUNTS = (73_257, 26_032)
SVHN_PLACE = "http://ufldl.stanford.edu/housenumbers/"
SVHN_TRAIN = File("train_32x32.mat", 182040794, "e26dedcc434d2e4c54c9b2d4a06d8373")
SVHN_TEST = File("test_32x32.mat", 64275384, "eb5a983be6a315427106f1b164d9cef3")
SVHN_FILES = tuple(Download(file, (SVHN_PLACE + file.name,)) for file in (SVHN_TRAIN, SVHN_TEST))
SVHN_IMAGE = (32, 32, 3)
RECROPPED_FILES = tuple(Download(File(file.name)) for file in (SVHN_TRAIN, SVHN_TEST))
RECROPPED_NOTE = "SVHN, re-cropped"


def load_svhn(folder: Path, *, counts: tuple[int, int] = SVHN_COUNTS) -> Dataset:
    """Read the official crops, format 2: 32×32, without the additional images.

    Args:
        folder: Holds `train_32x32.mat` and `test_32x32.mat`.
        counts: Images to expect for training and for testing.
    """
    train = _read_mat(folder / SVHN_TRAIN.name, counts[0])
    test = _read_mat(folder / SVHN_TEST.name, counts[1])
    return Dataset("svhn", train, test, DIGIT_NAMES)


def load_recropped_svhn(folder: Path) -> Dataset:
    """Read crops in the official layout that are not the official ones; any number of them."""
    train = _read_mat(folder / SVHN_TRAIN.name, None)
    test = _read_mat(folder / SVHN_TEST.name, None)
    return Dataset("svhn-recropped", train, test, DIGIT_NAMES, note=RECROPPED_NOTE)


def _read_mat(path: Path, count: int | None) -> Split:
    """Read `X` (32, 32, 3, n) and `y` (n, 1) with 10 for the digit 0."""
    with path.open("rb") as file:
        header = file.read(128)
    if not header.startswith(b"MATLAB 5.0 MAT-file") or len(header) < 128:
        raise DataError(f"{path}: expected a MATLAB 5.0 file, got one that begins {header[:10]!r}")
    try:
        variables = list_variables(path)
        _check_mat_variables(path, variables, count)
        pixels, marks = (read_variable(path, variables[name]) for name in ("X", "y"))
    except DataError:
        raise
    except (ValueError, EOFError, struct.error, zlib.error) as error:
        raise DataError(f"{path}: damaged: {error}") from error
    labels = rearrange(torch.from_numpy(marks).long(), "n 1 -> n")
    _check_labels(labels, 1, path)
    images = torch.from_numpy(pixels.astype(np.uint8, copy=False))
    return Split(rearrange(images, "h w c n -> n c h w").contiguous(), labels % 10)


def _check_mat_variables(path: Path, variables: dict[str, Variable], count: int | None) -> None:
    """Check names, sizes and types before anything is read."""
    if not {"X", "y"} <= set(variables):
        found = ", ".join(variables) or "none"
        raise DataError(f"{path}: expected the variables X and y, got {found}")
    (_, shape, kind), (_, label_shape, _) = variables["X"], variables["y"]
    if kind != "uint8" or shape[:-1] != SVHN_IMAGE:
        raise DataError(f"{path}: expected X of uint8, 32 x 32 x 3 x n, got {kind} {shape}")
    if label_shape != (shape[-1], 1):
        raise DataError(f"{path}: expected y of size {(shape[-1], 1)}, got {label_shape}")
    if shape[-1] == 0 or (count is not None and shape[-1] != count):
        expected = "some" if count is None else f"{count:,}"
        raise DataError(f"{path}: expected {expected} images, got {shape[-1]:,}")


# CIFAR-10: the binary version, which needs no unpickling


CIFAR10_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR10_FOLDER = "cifar-10-batches-bin"  # in the archive
CIFAR10_PER_FILE = 10_000
CIFAR10_RECORD = 1 + 3 * 32 * 32  # bytes: a label, then 1,024 red, 1,024 green, 1,024 blue
CIFAR10_BYTES = CIFAR10_PER_FILE * CIFAR10_RECORD
CIFAR10_FILES = (
    Download(
        File("cifar-10-binary.tar.gz", 170052171, "c32a1d4ab5d03f1284b67883e8d87530"),
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        members=(
            File("data_batch_1.bin", CIFAR10_BYTES, "5dd7e06a14cb22eb9f671a540d1b7c25"),
            File("data_batch_2.bin", CIFAR10_BYTES, "5ea93a67294ea407fff1d09f752e9692"),
            File("data_batch_3.bin", CIFAR10_BYTES, "942cd6a4bcdd0dd3c604fbe906cb4421"),
            File("data_batch_4.bin", CIFAR10_BYTES, "ae636b3ba5c66a11e91e8cb52e771fcb"),
            File("data_batch_5.bin", CIFAR10_BYTES, "53f37980c15c3d472c316c40844f3f0d"),
            File("test_batch.bin", CIFAR10_BYTES, "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
        inside=CIFAR10_FOLDER,
    ),
)


def load_cifar10(folder: Path, *, per_file: int = CIFAR10_PER_FILE) -> Dataset:
    """Read the six official binary files.

    Args:
        folder: Holds them, or the folder `cifar-10-batches-bin` with them.
        per_file: Images to expect in each.
    """
    home = folder if (folder / "test_batch.bin").is_file() else folder / CIFAR10_FOLDER
    *train, test = (_read_cifar10(home / file.name, per_file) for file in CIFAR10_FILES[0].members)
    whole = Split(
        torch.cat([batch.images for batch in train]), torch.cat([batch.labels for batch in train])
    )
    return Dataset("cifar10", whole, test, CIFAR10_NAMES)


def _read_cifar10(path: Path, count: int) -> Split:
    records = rearrange(_read_bytes(path, count * CIFAR10_RECORD), "(n k) -> n k", n=count)
    labels = records[:, 0].long()
    _check_labels(labels, 0, path)
    images = rearrange(records[:, 1:], "n (c h w) -> n c h w", c=3, h=32)
    return Split(images.contiguous(), labels)


def _read_bytes(path: Path, size: int) -> Tensor:
    found = path.stat().st_size
    if found != size:
        raise DataError(f"{path}: expected {size:,} bytes, got {found:,}")
    return torch.from_numpy(np.fromfile(path, dtype=np.uint8))


# STL-10: binary files; the unlabelled images are left aside


STL10_COUNTS = (5_000, 8_000)
STL10_NAMES = (
    *("airplane", "bird", "car", "cat", "deer"),
    *("dog", "horse", "monkey", "ship", "truck"),
)
STL10_FOLDER = "stl10_binary"  # in the archive
STL10_SIDE = 96
STL10_IMAGE = 3 * STL10_SIDE * STL10_SIDE  # bytes
STL10_FILES = (
    Download(
        File("stl10_binary.tar.gz", 2640397119, "91f7769df0f17e558f3565bffb0c7dfb"),
        ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
        members=(
            File("train_X.bin", 5_000 * STL10_IMAGE, "918c2871b30a85fa023e0c44e0bee87f"),
            File("train_y.bin", 5_000, "5a34089d4802c674881badbb80307741"),
            File("test_X.bin", 8_000 * STL10_IMAGE, "7f263ba9f9e0b06b93213547f721ac82"),
            File("test_y.bin", 8_000, "36f9794fa4beb8a2c72628de14fa638e"),
            File("class_names.txt"),
        ),
        inside=STL10_FOLDER,
    ),
)


def load_stl10(folder: Path, *, counts: tuple[int, int] = STL10_COUNTS) -> Dataset:
    """Read the labelled images.

    Args:
        folder: Holds the official files, or the folder `stl10_binary` with them.
        counts: Images to expect for training and for testing.
    """
    home = folder if (folder / "test_X.bin").is_file() else folder / STL10_FOLDER
    with (home / "class_names.txt").open(errors="replace") as file:
        found = tuple(file.read(200).split())
    if found != STL10_NAMES:
        raise DataError(
            f"{home / 'class_names.txt'}: expected the classes {' '.join(STL10_NAMES)}, "
            f"got {' '.join(found)}"
        )
    train, test = (
        _read_stl10(home, split, count)
        for split, count in zip(("train", "test"), counts, strict=True)
    )
    return Dataset("stl10", train, test, STL10_NAMES)


def _read_stl10(home: Path, split: str, count: int) -> Split:
    """Read images stored channel by channel, each column by column, and labels from 1."""
    pixels = _read_bytes(home / f"{split}_X.bin", count * STL10_IMAGE)
    labels = _read_bytes(home / f"{split}_y.bin", count).long()
    _check_labels(labels, 1, home / f"{split}_y.bin")
    images = rearrange(pixels, "(n c w h) -> n c h w", c=3, h=STL10_SIDE, w=STL10_SIDE)
    return Split(images.contiguous(), labels - 1)
