"""Pictures of a folder decoded once, into files that are mapped instead of read.

A cache belongs to a folder. Its manifest says what each file of the folder turned out to be, and
names the maps made of them: one for each shape and each way of splitting. Another split only copies
rows, another shape decodes again, and a change of the folder starts over. The manifest is written
last, so that a killed writer leaves the old cache or none. Looking for changes takes names, sizes
and times alone; no file is opened for it.
"""

import contextlib
import hashlib
import json
import math
import os
import tempfile
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import torch
from einops import EinopsError, rearrange
from numpy.typing import NDArray
from torch import Tensor

from invint.data.dataset import Progress
from invint.data.listing import ListedFile
from invint.data.pictures import (
    DEEP,
    GREY,
    MAX_BYTES,
    Pixels,
    decode,
    loses_depth,
    open_picture,
    read_bytes,
    suffix,
)
from invint.data.splits import UNKNOWN, FileInfo, SplitPlan
from invint.errors import DataError
from invint.files import flush_folder, locked, write_atomically

FORMAT = 4  # of the manifest; another number, another cache
USUAL_SIDES = (16, 24, 32, 48, 64, 96)  # for folders in which no size prevails
SAMPLE = 256  # headers read to guess the shape before everything is decoded
CHUNK = 32  # most pictures one thread decodes at a time
AT_ONCE = 2**22  # most bytes put at a time, but at least one row

A = TypeVar("A")
B = TypeVar("B")


class Shape(NamedTuple):
    """What all pictures of a folder are made into."""

    side: int
    channels: int
    sixteen_bit: bool

    @property
    def row(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture, as it is stored."""
        return self.side, self.side, self.channels

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Type of the pixels, as they are stored."""
        return np.dtype(np.uint16 if self.sixteen_bit else np.uint8)


@dataclass(frozen=True, eq=False)
class Decoded:
    """Pictures of a folder, decoded.

    Attributes:
        images: `(n, c, h, w)`, mapped from disk, channels last in memory: the good pictures, split
            after split.
        infos: What each file is, in the order asked for.
        splits: Indices in `infos` of the pictures of each split.
        shape: What the pictures were made into.
    """

    images: Tensor
    infos: tuple[FileInfo, ...]
    splits: list[list[int]]
    shape: Shape


def user_cache(root: Path, kind: str) -> Path:
    """Return where the cache of a folder lies if nobody says otherwise.

    Args:
        root: The folder.
        kind: What tells apart several sets of pictures in it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = hashlib.sha256(f"{root}\0{kind}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Path(base) / "invint" / "folders" / name


class Stored(NamedTuple):
    """A map of rows, as the manifest names it.

    Attributes:
        shape: Of its rows.
        arrangement: Name of the split its rows are in the order of.
        key: Of that split.
        images: Name of the file.
        splits: Indices of the files its rows were made of, split after split.
    """

    shape: Shape
    arrangement: str
    key: str
    images: str
    splits: list[list[int]]


@dataclass(frozen=True)
class Manifest:
    """What a cache holds of a folder as it is now."""

    infos: tuple[FileInfo, ...] = ()
    maps: tuple[Stored, ...] = ()


class Cache:
    """The decoded pictures of a folder, in a folder of their own.

    Args:
        plan: The files as they are now, and how they are split.
        place: Folder of this cache and nothing else.
        side: Of the squares the pictures are fitted into; chosen if not given.
        progress: Called with the number of files decoded and the number of all.
    """

    def __init__(
        self, plan: SplitPlan, place: Path, *, side: int | None, progress: Progress | None
    ) -> None:
        self.plan, self.place, self.side, self.progress = plan, place, side, progress
        self.root, self.files = plan.layout.root, plan.layout.files

    def decoded(self) -> Decoded:
        """Return the pictures: as they were decoded before, or decode and keep them."""
        found = self._kept(self._read_manifest())
        if found:
            return found
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            with locked(self.place / "lock"):
                manifest = self._read_manifest()  # another process may have been quicker
                return self._kept(manifest) or self._extend(manifest)
        except OSError as error:
            raise DataError(
                f"{self.place}: cannot keep decoded pictures "
                f"({(error.strerror or str(error)).lower()}); "
                "make room there or choose another folder for the cache"
            ) from error

    def _read_manifest(self) -> Manifest:
        """Return what is kept: nothing if it is not there, damaged or out of date."""
        try:
            content = json.loads((self.place / "manifest.json").read_bytes())
            infos = tuple(FileInfo(*values) for values in content["files"])
            maps = tuple(Stored(Shape(*shape), *values) for shape, *values in content["maps"])
            begun = content["format"], content["root"]
        except (OSError, ValueError, KeyError, TypeError):
            return Manifest()
        now = [(file.path, file.size, file.modified) for file in self.files]
        if begun != (FORMAT, str(self.root)) or [info[:3] for info in infos] != now:
            return Manifest()
        if any(self._may_be_read_now(info) for info in infos if not info.digest):
            return Manifest()
        return Manifest(infos, maps)

    def _may_be_read_now(self, info: FileInfo) -> bool:
        """Whether a file that could not be read may be by now; an empty or too large one is not."""
        return 0 < info.size <= MAX_BYTES and os.access(self.root / info.path, os.R_OK)

    def _kept(self, manifest: Manifest) -> Decoded | None:
        """Return the pictures in this shape and split, if the cache has them."""
        shape = suggested_shape(manifest.infos, self.side)
        wanted = (shape, self.plan.name, self.plan.key)
        for stored in manifest.maps:
            images = self._opened(stored) if stored[:3] == wanted else None
            if images is not None:
                return Decoded(images, manifest.infos, stored.splits, shape)
        return None

    def _opened(self, stored: Stored) -> Tensor | None:
        """Map what is kept; None if it is not there or damaged."""
        try:
            images = _mapped(self.place / stored.images)
            size = sum(map(len, stored.splits))
        except (OSError, ValueError, TypeError, EinopsError):
            return None
        side, channels, _ = stored.shape
        return images if images.shape == (size, channels, side, side) else None

    def _extend(self, manifest: Manifest) -> Decoded:
        """Add a map to the cache: the rows of another one in a new order, or decoded."""
        self._remove_all_but(manifest)  # first of all, because the room may be needed
        infos, shape = manifest.infos, suggested_shape(manifest.infos, self.side)
        source = self._source(manifest, shape)
        if source is not None:
            images, order = self.place / source.images, [*chain(*source.splits)]
        else:
            order = self.plan.likely_order()
            images, infos, shape = self._decode(order)
            if [*map(_as_file, infos)] == [*map(_as_file, manifest.infos)]:
                infos = manifest.infos
        splits = self.plan.arrange(infos)
        images = _reordered(images, order, [*chain(*splits)], shape)
        added = Stored(shape, self.plan.name, self.plan.key, images.name, splits)
        others = manifest.maps if infos == manifest.infos else ()
        kept = (each for each in others if each[:2] != added[:2])
        self._write_manifest(Manifest(infos, (*kept, added)))
        return Decoded(_mapped(images), infos, splits, shape)

    def _source(self, manifest: Manifest, shape: Shape) -> Stored | None:
        """Return a map of this shape with all pictures of the splits; others leave some out."""
        same = [stored for stored in manifest.maps if stored.shape == shape]
        wanted = {*chain(*self.plan.arrange(manifest.infos))} if same else set()
        whole = (stored for stored in same if wanted.issubset(chain(*stored.splits)))
        return next((stored for stored in whole if self._opened(stored) is not None), None)

    def _write_manifest(self, manifest: Manifest) -> None:
        content = {
            "format": FORMAT,
            "root": str(self.root),
            "files": manifest.infos,
            "maps": manifest.maps,
        }
        flush_folder(self.place)  # the maps are there before they are named
        write_atomically(self.place / "manifest.json", json.dumps(content))
        self._remove_all_but(manifest)  # who has one of them open can still read it

    def _remove_all_but(self, manifest: Manifest) -> None:
        """Remove maps that are not named: out of date, or of a killed writer."""
        named = {stored.images for stored in manifest.maps}
        for path in self.place.glob("images-*.npy"):
            if path.name not in named:
                with contextlib.suppress(OSError):  # Windows keeps a file that is in use
                    path.unlink()

    def _decode(self, order: list[int]) -> tuple[Path, tuple[FileInfo, ...], Shape]:
        """Decode all files in this order: as some headers suggest, again if all differ."""
        step = max(1, len(self.files) // SAMPLE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about oddities of files it can read
            headers = [_header_info(self.root, file) for file in self.files[::step]]
            guess = suggested_shape(headers, self.side)
            images, infos = self._decode_as(guess, order)
            shape = suggested_shape(infos, self.side)
            if shape != guess:
                images.unlink()
                images, infos = self._decode_as(shape, order)
            return images, self._compared(infos, shape), shape

    def _decode_as(self, shape: Shape, order: list[int]) -> tuple[Path, tuple[FileInfo, ...]]:
        """Decode all files into a new file of rows in this order, in threads."""
        infos, done = [UNKNOWN] * len(self.files), 0
        with draft(self.place, shape, len(order)) as rows:
            size = min(CHUNK, rows.at_once)

            def decode_some(start: int) -> list[FileInfo]:
                some = [self.files[index] for index in order[start : start + size]]
                decoded = [_decode_file(self.root, file, shape) for file in some]
                rows.put(start, np.stack([pixels for _, pixels in decoded]))
                return [info for info, _ in decoded]

            with closing(_in_threads(decode_some, range(0, len(order), size))) as decoded:
                for some in decoded:
                    for info in some:
                        infos[order[done]] = info
                        done += 1
                    if self.progress is not None:
                        self.progress(done, len(order))
        return rows.path, tuple(infos)

    def _compared(self, infos: tuple[FileInfo, ...], shape: Shape) -> tuple[FileInfo, ...]:
        """Return the same with hashes of whole pixels, where different files may show one picture.

        Only pictures that became the same row are decoded whole.
        """
        alike: dict[str, set[str]] = defaultdict(set)
        for info in infos:
            alike[info.pixels].add(info.digest)
        doubtful = [
            index for index, info in enumerate(infos) if info.pixels and len(alike[info.pixels]) > 1
        ]
        known = [*map(_as_file, infos)]
        paths = (f"{self.root}/{infos[index].path}" for index in doubtful)
        with closing(_in_threads(lambda path: _whole_pixels(path, shape), paths)) as found:
            for index, pixels in zip(doubtful, found, strict=True):
                known[index] = infos[index]._replace(pixels=pixels)
        return tuple(known)


def _as_file(info: FileInfo) -> FileInfo:
    """Return what is known of a file alone, not compared with others."""
    return info._replace(pixels="")


def _in_threads(function: Callable[[A], B], items: Iterable[A]) -> Generator[B, None, None]:
    """Apply a function in threads, as many as there are processors; in the order of the items."""
    pool = ThreadPoolExecutor(min(processors(), 16))
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _mapped(images: Path) -> Tensor:
    """Map a file of rows; what is written into the tensor never reaches the file."""
    rows = np.load(images, mmap_mode="c", allow_pickle=False)
    return rearrange(torch.from_numpy(rows), "n h w c -> n c h w")


def _reordered(images: Path, written: list[int], wanted: list[int], shape: Shape) -> Path:
    """Return a file with these rows of a file in this order: itself if it is so already."""
    if written == wanted:
        return images
    old = np.load(images, mmap_mode="r", allow_pickle=False)
    row_of = {index: row for row, index in enumerate(written)}
    with draft(images.parent, shape, len(wanted)) as rows:
        for start in range(0, len(wanted), rows.at_once):
            some = wanted[start : start + rows.at_once]
            rows.put(start, old[[row_of[index] for index in some]])
    return rows.path


def suggested_shape(infos: Sequence[FileInfo], side: int | None) -> Shape:
    """Choose what all pictures are made into.

    The side is the longer one of the pictures, if more than half of them agree on it; otherwise
    the first of 16, 24, 32, 48, 64 and 96 that reaches their median. It is even and at most 96.
    Pictures are grey if all are, and keep sixteen bits if any has them.
    """
    smallest = FileInfo("", 0, 0, "", USUAL_SIDES[0], USUAL_SIDES[0])
    good = [info for info in infos if not info.problem] or [smallest]
    channels = 1 if all(info.mode in GREY for info in good) else 3
    return Shape(side or _side(good), channels, any(info.mode in DEEP for info in good))


def _side(good: Sequence[FileInfo]) -> int:
    longer = sorted(max(info.width, info.height) for info in good)
    common, times = Counter(longer).most_common(1)[0]
    if 2 * times > len(longer):
        return max(2, min(common + common % 2, USUAL_SIDES[-1]))
    median = longer[len(longer) // 2]
    return next((side for side in USUAL_SIDES if side >= median), USUAL_SIDES[-1])


def _header_info(root: Path, file: ListedFile) -> FileInfo:
    """Look at the header of a file."""
    try:
        image = open_picture(read_bytes(f"{root}/{file.path}")[0])
    except DataError as error:
        return UNKNOWN._replace(problem=str(error))
    return UNKNOWN._replace(width=image.width, height=image.height, mode=image.mode)


def _decode_file(root: Path, file: ListedFile, shape: Shape) -> tuple[FileInfo, Pixels]:
    """Read a file once: its hash and its pixels come from the same bytes. A bad one is black."""
    path, digest = file.path, ""
    try:
        data, found = read_bytes(f"{root}/{path}")
        digest = _digest(data)
        image = open_picture(data, suffix(path))
        (width, height), mode, reduced = image.size, image.mode, loses_depth(image)
        pixels = decode(
            image, side=shape.side, channels=shape.channels, sixteen_bit=shape.sixteen_bit
        )
    except DataError as error:
        bad = FileInfo(path, file.size, file.modified, digest, problem=str(error))
        return bad, np.zeros(shape.row, shape.dtype)
    stamp = (path, found.st_size, found.st_mtime_ns)
    row = _digest(np.ascontiguousarray(pixels).data)
    return FileInfo(*stamp, digest, width, height, mode, reduced, pixels=row), pixels


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def _whole_pixels(path: str, shape: Shape) -> str:
    """Return a hash of all pixels of a picture; empty if they cannot be read any more."""
    try:
        data, _ = read_bytes(path)
        image = open_picture(data, suffix(path))
        pixels = decode(image, channels=shape.channels, sixteen_bit=shape.sixteen_bit)
    except DataError:
        return ""
    height, width, _ = pixels.shape
    return f"{width}x{height} {_digest(np.ascontiguousarray(pixels).data)}"


class Rows:
    """Rows of a NumPy file, written in any order and by several threads.

    Attributes:
        at_once: How many rows to write at a time, so that memory stays bounded.
    """

    def __init__(self, file: IO[bytes], path: Path, shape: Shape, count: int) -> None:
        self.file, self.path, self.lock = file, path, threading.Lock()
        whole = (count, *shape.row)
        np.lib.format.write_array_header_1_0(
            file, {"descr": shape.dtype.str, "fortran_order": False, "shape": whole}
        )
        self.begin, self.row_bytes = file.tell(), math.prod(shape.row) * shape.dtype.itemsize
        self.at_once = max(1, AT_ONCE // self.row_bytes)
        file.truncate(self.begin + count * self.row_bytes)

    def put(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows from this one on."""
        with self.lock:
            self.file.seek(self.begin + start * self.row_bytes)
            self.file.write(rows.data)


@contextlib.contextmanager
def draft(place: Path, shape: Shape, count: int) -> Iterator[Rows]:
    """Open a new file of rows: whole and on the disk afterwards, or not there."""
    descriptor, name = tempfile.mkstemp(dir=place, prefix="images-", suffix=".npy")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield Rows(file, Path(name), shape, count)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def processors() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
