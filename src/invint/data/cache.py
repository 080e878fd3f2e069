"""Pictures decoded once into a memory map, beside a manifest of the files they came from.

The manifest is written last and names the map, so that a killed writer leaves the old cache or
none. Looking for changes takes names, sizes and times alone; no file is opened for it.
"""

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from torch import Tensor

from invint.data.dataset import Progress
from invint.data.decoding import decode_into_rows, glanced
from invint.data.listing import Entry
from invint.data.picture_files import MAX_BYTES
from invint.data.row_file import reordered
from invint.data.seen import UNSEEN, Seen, Shape, suggested_shape
from invint.errors import DataError
from invint.files import flush_folder, write_whole

FORMAT = 1  # of the manifest; another number, another cache
SAMPLE = 256  # headers read to guess the shape before everything is decoded

Arrange = Callable[[Sequence[Seen]], list[list[int]]]


@dataclass(frozen=True, eq=False)
class Decoded:
    """Pictures of a folder, decoded.

    Attributes:
        images: `(n, c, h, w)`, mapped from disk, channels last in memory: the good pictures, part
            after part.
        seen: Every file, in the order asked for.
        parts: Numbers in `seen` of the pictures of each part.
        shape: What the pictures were made into.
    """

    images: Tensor
    seen: tuple[Seen, ...]
    parts: list[list[int]]
    shape: Shape


def user_cache(root: Path, options: str) -> Path:
    """Return where the cache of a folder lies if nobody says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(f"{root}\0{options}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(base) / "invint" / "folders" / name


def cached(
    root: Path,
    files: Sequence[Entry],
    arrange: Arrange,
    *,
    place: Path,
    key: str,
    side: int | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """Return the decoded pictures of a folder: from the cache, or decoded now and kept.

    Args:
        root: The folder.
        files: Its files as they are now.
        arrange: Sorts the good ones of the files into parts; called with what is known of each,
            before decoding (nothing yet) and after it.
        place: Folder of this cache and nothing else.
        key: Of everything `arrange` depends on: another key, another cache.
        side: Of the squares the pictures are fitted into; chosen if not given.
        progress: Called with the number of files decoded and the number of all.
    """
    wanted = {"format": FORMAT, "root": str(root), "key": key, "side": side}
    found = _found(place, wanted, root, files)
    if found:
        return found
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _locked(place):
            found = _found(place, wanted, root, files)  # another process may have been quicker
            return found or _build(root, files, arrange, place, wanted, progress)
    except OSError as error:
        raise DataError(
            f"{place}: cannot keep decoded pictures ({(error.strerror or str(error)).lower()}); "
            "make room there or choose another folder for the cache"
        ) from error


def _found(
    place: Path, wanted: dict[str, Any], root: Path, files: Sequence[Entry]
) -> Decoded | None:
    """Return what the cache holds, or nothing if it is not there, damaged or out of date."""
    try:
        manifest = json.loads((place / "manifest.json").read_bytes())
        if any(manifest[name] != value for name, value in wanted.items()):
            return None
        seen = tuple(Seen(*values) for values in manifest["files"])
        if len(seen) != len(files) or any(map(_changed, seen, files)):
            return None
        if any(_may_be_read_now(root, one) for one in seen if not one.digest):
            return None
        images = np.load(place / manifest["images"], mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    shape = Shape(*manifest["shape"])
    if images.shape != (sum(map(len, manifest["parts"])), *shape.row):
        return None
    return Decoded(_tensor(images), seen, manifest["parts"], shape)


def _changed(one: Seen, file: Entry) -> bool:
    return one[:3] != (file.path, file.size, file.modified)


def _may_be_read_now(root: Path, one: Seen) -> bool:
    """Whether a file that could not be read may be by now; an empty or too large one is not."""
    return 0 < one.size <= MAX_BYTES and os.access(root / one.path, os.R_OK)


def _tensor(rows: NDArray[Any]) -> Tensor:
    return rearrange(torch.from_numpy(rows), "n h w c -> n c h w")


@contextlib.contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Let one process at a time write; the lock falls with its process, however that ends."""
    if os.name != "posix":
        yield
        return
    import fcntl

    with (place / "lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(
    root: Path,
    files: Sequence[Entry],
    arrange: Arrange,
    place: Path,
    wanted: dict[str, Any],
    progress: Progress | None,
) -> Decoded:
    for stray in place.glob("images-*.npy"):
        if stray.name != _named_by_manifest(place):
            stray.unlink(missing_ok=True)  # of a killed writer
    step = max(1, len(files) // SAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about oddities of files it can read
        sample = [glanced(root, file) for file in files[::step]]
        guess = suggested_shape(sample, wanted["side"])
        order = _joined(arrange([UNSEEN] * len(files)))
        images, seen = decode_into_rows(root, files, order, place, guess, progress)
        shape = suggested_shape(seen, wanted["side"])
        if shape != guess:
            images.unlink()
            images, seen = decode_into_rows(root, files, order, place, shape, progress)
    parts = arrange(seen)
    images = reordered(images, order, _joined(parts))
    manifest = {
        **wanted,
        "shape": shape,
        "images": images.name,
        "parts": parts,
        "files": seen,
    }
    flush_folder(place)
    old = _named_by_manifest(place)
    write_whole(place / "manifest.json", json.dumps(manifest))
    if old:
        (place / old).unlink(missing_ok=True)  # who has it open may go on reading it
    mapped = np.load(images, mmap_mode="c", allow_pickle=False)
    return Decoded(_tensor(mapped), tuple(seen), parts, shape)


def _joined(parts: list[list[int]]) -> list[int]:
    return [number for part in parts for number in part]


def _named_by_manifest(place: Path) -> str:
    try:
        return Path(str(json.loads((place / "manifest.json").read_bytes())["images"])).name
    except (OSError, ValueError, KeyError, TypeError):
        return ""
