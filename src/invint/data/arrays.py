"""A data set from arrays in an `.npz` file; nothing in it is ever unpickled."""

import hashlib
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from invint.data.dataset import Dataset, Split, holdout
from invint.data.listing import SPLITS
from invint.data.pictures import first_line, shown
from invint.data.splits import Leak, find_leaks, leak_note
from invint.errors import DataError
from invint.files import is_no_file

MAX_BYTES = 2**33  # unpacked, all arrays of a file together
CHANNELS = range(1, 5)  # an axis this short holds channels, a longer one pixels
PREFIXES = {"train": ("train_",), "validation": ("validation_", "val_"), "test": ("test_",)}
Place = tuple[str, int]  # split and index of an image
KNOWN = {  # names of arrays that are read
    "class_names",
    *(
        start + what
        for start in ("", "train_", "validation_", "val_", "test_")
        for what in ("images", "labels", "groups")
    ),
}


def load_arrays(
    path: Path,
    *,
    seed: int = 0,
    test_share: float = 0.2,
    drop_leaks: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Dataset:
    """Read images and labels from an `.npz` file.

    It holds `images` and `labels`, of which a fraction is held out for testing, by class; or
    `train_images`, `train_labels`, `test_images`, `test_labels` and, if wanted, those of
    `validation_` or `val_`. There may also be `class_names`, and `groups` with the same prefixes,
    which are never divided. Images are `(n, h, w)`, `(n, h, w, c)` or `(n, c, h, w)` of uint8 or
    uint16, square: of the axes 1 and 3 exactly one must have 1 to 4 entries, the channels.

    Args:
        path: The file.
        seed: Of the images held out for testing.
        test_share: Fraction of the images held out for testing.
        drop_leaks: Leave images out of training that the test split has too, or whose group it has.
        max_bytes: Refuse files that unpack to more.
    """
    try:
        arrays = _arrays(path, max_bytes)
        parts = _parts(arrays, seed, test_share)
        leaks = parts.find_leaks()
        splits = parts.without(leaks) if drop_leaks else parts.splits
        names = _class_names(arrays, splits)
    except DataError as error:
        raise DataError(f"{shown(str(path))}: {error}") from error
    named = [parts.named(*place, *partner) for place, partner in leaks.items()]
    note = leak_note(named, dropped=drop_leaks)
    validation = splits.get("validation")
    return Dataset(f"arrays:{path.stem}", splits["train"], splits["test"], names, validation, note)


def _arrays(path: Path, max_bytes: int) -> dict[str, NDArray[Any]]:
    if is_no_file(path):
        raise DataError("is no file; name one")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if total > max_bytes:
                raise DataError(
                    f"unpacks to {total:,} bytes, more than {max_bytes:,}; make it smaller"
                )
            return {
                name: _array(archive, member)
                for member in members
                if (name := member.filename.removesuffix(".npy")) in KNOWN
            }
    except FileNotFoundError as error:
        raise DataError("no such file") from error
    # Two of them say that zipfile does not know a compression, or has no password.
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise DataError(f"is no whole .npz file ({error}); save it with numpy.savez") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array; its header must agree with the bytes that follow."""
    with archive.open(member) as file:
        try:
            shape, fortran, kind = _header(file)
        except (ValueError, EOFError, SyntaxError) as error:
            raise DataError(
                f"{shown(member.filename)} is no NumPy array ({first_line(error)})"
            ) from error
        if kind.hasobject:
            raise DataError(
                f"{shown(member.filename)} holds Python objects, which are not read; "
                "save numbers or strings"
            )
        data = file.read()
    if math.prod(shape) * kind.itemsize != len(data) or not data:
        raise DataError(
            f"{shown(member.filename)} says {shape} of {kind} but has {len(data):,} bytes; "
            "save it again"
        )
    flat = np.frombuffer(data, dtype=kind)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version}")


class Parts(NamedTuple):
    """What the arrays of a file are.

    Attributes:
        splits: By name.
        rows: Of each image of a split, the index in its array.
        groups: Names of the groups, by index.
    """

    splits: dict[str, Split]
    rows: dict[str, list[int]]
    groups: list[Any]

    def find_leaks(self) -> dict[Place, Place]:
        """Return the images that a later split has too, or that are of a group that it has."""

        def tells(place: Place) -> tuple[str, int | None]:
            split, index = self.splits[place[0]], place[1]
            pixels = np.ascontiguousarray(split.images[index].numpy())
            group = None if split.groups is None else int(split.groups[index])
            return hashlib.sha256(pixels.data).hexdigest(), group

        there = [name for name in SPLITS if name in self.splits]
        places = [[(name, index) for index in range(len(self.splits[name]))] for name in there]
        return find_leaks(places, tells)

    def named(self, name: str, index: int, other: str, partner: int) -> Leak:
        """Return a leak in words."""
        images, groups = self.splits[name].images, self.splits[name].groups
        copy = np.array_equal(images[index], self.splits[other].images[partner])
        group = None if copy or groups is None else str(self.groups[int(groups[index])])
        row, other_row = self.rows[name][index], self.rows[other][partner]
        return Leak(f"image {row}", name, f"image {other_row}", other, group)

    def without(self, leaks: Iterable[Place]) -> dict[str, Split]:
        """Return the splits without these images."""
        splits = dict(self.splits)
        for name in {name for name, _ in leaks}:
            kept = torch.ones(len(splits[name]), dtype=torch.bool)
            kept[[index for split, index in leaks if split == name]] = False
            splits[name] = splits[name][kept.nonzero()[:, 0]]
        return splits


def _parts(arrays: dict[str, NDArray[Any]], seed: int, test_share: float) -> Parts:
    if "images" in arrays:
        indices = _group_indices(arrays, [""])
        whole = _split(arrays, "", indices)
        kept, held = holdout(whole.labels, test_share, seed, name="arrays", groups=whole.groups)
        rows = {"train": kept.tolist(), "test": held.tolist()}
        return Parts({"train": whole[kept], "test": whole[held]}, rows, [*(indices or ())])
    starts = {
        name: start
        for name, options in PREFIXES.items()
        for start in options
        if f"{start}images" in arrays
    }
    if not {"train", "test"} <= starts.keys():
        found = ", ".join(sorted(arrays)) or "none of them"
        raise DataError(
            "expected the arrays images and labels, or train_images, train_labels, test_images and "
            f"test_labels; found {found}"
        )
    indices = _group_indices(arrays, list(starts.values()))
    splits = {name: _split(arrays, start, indices) for name, start in starts.items()}
    shapes = {(tuple(split.images.shape[1:]), split.images.dtype) for split in splits.values()}
    if len(shapes) > 1:
        raise DataError(f"images of the splits differ in shape or type: {sorted(map(str, shapes))}")
    rows = {name: list(range(len(split))) for name, split in splits.items()}
    return Parts(splits, rows, [*(indices or ())])


def _split(
    arrays: dict[str, NDArray[Any]], start: str, group_indices: dict[Any, int] | None
) -> Split:
    images = _images(arrays[f"{start}images"], f"{start}images")
    labels = _column(arrays, f"{start}labels", len(images))
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= 2**31:
        raise DataError(f"{start}labels: expected class indices from 0, got {labels[:8].tolist()}")
    groups = None
    if group_indices is not None:
        column = _column(arrays, f"{start}groups", len(images))
        groups = torch.tensor([group_indices[group] for group in column.tolist()])
    return Split(images, torch.from_numpy(labels.astype(np.int64)), groups)


def _images(array: NDArray[Any], name: str) -> Tensor:
    if array.dtype not in (np.uint8, np.uint16):
        raise DataError(
            f"{name}: expected uint8 or uint16, got {array.dtype}; scale to 0 to 255 and convert"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in CHANNELS and array.shape[1] not in CHANNELS:
        array = rearrange(array, "n h w c -> n c h w")
    elif array.ndim != 4 or array.shape[1] not in CHANNELS or array.shape[3] in CHANNELS:
        raise DataError(
            f"{name}: expected (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 to 4 channels and "
            f"more pixels, got {array.shape}"
        )
    if not len(array) or array.shape[2] != array.shape[3]:
        raise DataError(f"{name}: expected at least one image, all square, got {array.shape}")
    native = array.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(array, dtype=native, order="C"))


def _column(arrays: dict[str, NDArray[Any]], name: str, count: int) -> NDArray[Any]:
    if name not in arrays:
        raise DataError(f"expected an array {name}; found {', '.join(sorted(arrays))}")
    column = arrays[name]
    if column.shape not in ((count,), (count, 1)):
        raise DataError(
            f"{name}: expected one entry for each of {count} images, got {column.shape}"
        )
    return column.reshape(count)


def _group_indices(arrays: dict[str, NDArray[Any]], starts: list[str]) -> dict[Any, int] | None:
    """Number the groups of all splits together."""
    indices: dict[Any, int] = {}
    if not any(f"{start}groups" in arrays for start in starts):
        return None
    for start in starts:
        count = len(arrays[f"{start}images"])
        own = set(_column(arrays, f"{start}groups", count).tolist())
        for group in sorted(own - indices.keys()):
            indices[group] = len(indices)
    return indices


def _class_names(arrays: dict[str, NDArray[Any]], splits: dict[str, Split]) -> tuple[str, ...]:
    highest = max(int(split.labels.max()) for split in splits.values())
    given = arrays.get("class_names")
    if given is None:
        names = [str(label) for label in range(min(highest, len(splits["train"])) + 1)]
    elif given.ndim != 1 or given.dtype.kind not in "US":
        raise DataError(f"class_names: expected a row of strings, got {given.dtype} {given.shape}")
    else:
        names = [
            n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in given.tolist()
        ]
    present = set(splits["train"].labels.tolist())
    missing = [label for label in range(max(len(names), 2)) if label not in present]
    if highest >= len(names) or missing:
        wrong = f"label {highest}" if highest >= len(names) else f"no image of class {missing[0]}"
        raise DataError(
            f"expected labels 0 to {len(names) - 1}, all of them to train on; got {wrong}"
        )
    return tuple(shown(name) for name in names)
