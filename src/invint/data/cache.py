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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from einops import rearrange
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
from invint.errors import DataError
from invint.files import flush_folder, locked, write_atomically

FORMAT = 2  # of the manifest; another number, another cache
USUAL_SIDES = (16, 24, 32, 48, 64, 96)  # for folders in which no size prevails
SAMPLE = 256  # headers read to guess the shape before everything is decoded
CHUNK = 32  # most pictures one thread decodes at a time
AT_ONCE = 2**22  # most bytes put at a time, but at least one row
FLUSHED = 2**26  # bytes after which writing to the disk begins, while more is decoded


class FileInfo(NamedTuple):
    """What one file turned out to be.

    Attributes:
        path: Relative to the folder.
        size: In bytes.
        modified: When it was last written, in nanoseconds.
        digest: Hash of its bytes; empty if it could not be read.
        width: Of the picture, as stored.
        height: Of the picture, as stored.
        mode: Pillow's name for its kind of pixels.
        reduced: Whether sixteen bits a channel became eight.
        problem: Why it cannot be used; empty for a good picture.
    """

    path: str
    size: int
    modified: int
    digest: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    reduced: bool = False
    problem: str = ""


UNKNOWN = FileInfo("", 0, 0)  # of a file that has not been looked at


class Shape(NamedTuple):
    """What all pictures of a folder are made into."""

    side: int
    channels: int
    sixteen_bit: bool

    @property
    def row(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture, as it is stored."""
        return self.side, self.side, self.channels


@dataclass(frozen=True)
class Arrangement:
    """A way of dividing the pictures of a folder into splits.

    Attributes:
        name: Tells apart the arrangements that are kept side by side.
        key: Hash of everything the arrangement depends on but the content of the files.
        arrange: Takes what is known of each file to the indices of the good pictures in each split.
    """

    name: str
    key: str
    arrange: Callable[[Sequence[FileInfo]], list[list[int]]]


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


def cached(
    root: Path,
    files: Sequence[ListedFile],
    arrangement: Arrangement,
    *,
    place: Path,
    side: int | None = None,
    progress: Progress | None = None,
) -> Decoded:
    """Return the decoded pictures of a folder: from the cache, or decoded now and kept.

    Args:
        root: The folder.
        files: Its files as they are now.
        arrangement: Divides them into splits; asked with what is known of each file, before
            decoding (nothing yet) and after it.
        place: Folder of this cache and nothing else.
        side: Of the squares the pictures are fitted into; chosen if not given.
        progress: Called with the number of files decoded and the number of all.
    """
    found = _found(_read_manifest(place, root, files), arrangement, place, side)
    if found:
        return found
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place / "lock"):
            manifest = _read_manifest(place, root, files)  # another process may have been quicker
            found = _found(manifest, arrangement, place, side)
            return found or _build(manifest, root, files, arrangement, place, side, progress)
    except OSError as error:
        raise DataError(
            f"{place}: cannot keep decoded pictures ({(error.strerror or str(error)).lower()}); "
            "make room there or choose another folder for the cache"
        ) from error


class Stored(NamedTuple):
    """A map of rows, as the manifest names it.

    Attributes:
        shape: Of its rows.
        arrangement: Name of the arrangement its rows are in.
        key: Of that arrangement.
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

    def write(self, place: Path, root: Path) -> None:
        """Put this in the place of the manifest before."""
        content = {"format": FORMAT, "root": str(root), "files": self.infos, "maps": self.maps}
        flush_folder(place)  # the maps are there before they are named
        write_atomically(place / "manifest.json", json.dumps(content))

    def remove_others(self, place: Path) -> None:
        """Remove maps that are not named here: out of date, or of a killed writer."""
        named = {stored.images for stored in self.maps}
        for path in place.glob("images-*.npy"):
            if path.name not in named:
                with contextlib.suppress(OSError):  # Windows keeps a file that is in use
                    path.unlink()


def _read_manifest(place: Path, root: Path, files: Sequence[ListedFile]) -> Manifest:
    """Return what the cache holds: nothing if it is not there, damaged or out of date."""
    try:
        content = json.loads((place / "manifest.json").read_bytes())
        if (content["format"], content["root"]) != (FORMAT, str(root)):
            return Manifest()
        infos = tuple(FileInfo(*values) for values in content["files"])
        maps = tuple(Stored(Shape(*shape), *values) for shape, *values in content["maps"])
    except (OSError, ValueError, KeyError, TypeError):
        return Manifest()
    if len(infos) != len(files) or any(map(_changed, infos, files)):
        return Manifest()
    if any(_may_be_read_now(root, info) for info in infos if not info.digest):
        return Manifest()
    return Manifest(infos, maps)


def _changed(info: FileInfo, file: ListedFile) -> bool:
    return info[:3] != (file.path, file.size, file.modified)


def _may_be_read_now(root: Path, info: FileInfo) -> bool:
    """Whether a file that could not be read may be by now; an empty or too large one is not."""
    return 0 < info.size <= MAX_BYTES and os.access(root / info.path, os.R_OK)


def _found(
    manifest: Manifest, arrangement: Arrangement, place: Path, side: int | None
) -> Decoded | None:
    """Return the pictures in this shape and arrangement, if the cache has them."""
    shape = suggested_shape(manifest.infos, side)
    wanted = (shape, arrangement.name, arrangement.key)
    stored = next((each for each in manifest.maps if each[:3] == wanted), None)
    rows = None if stored is None else _mapped(place, stored)
    if stored is None or rows is None:
        return None
    return Decoded(_tensor(rows), manifest.infos, stored.splits, shape)


def _mapped(place: Path, stored: Stored) -> NDArray[Any] | None:
    """Open a map; None if it is not there or damaged."""
    try:
        rows = np.load(place / stored.images, mmap_mode="c", allow_pickle=False)
        wanted = (sum(map(len, stored.splits)), *stored.shape.row)
    except (OSError, ValueError, TypeError):
        return None
    return rows if rows.shape == wanted else None


def _tensor(rows: NDArray[Any]) -> Tensor:
    return rearrange(torch.from_numpy(rows), "n h w c -> n c h w")


def _build(
    manifest: Manifest,
    root: Path,
    files: Sequence[ListedFile],
    arrangement: Arrangement,
    place: Path,
    side: int | None,
    progress: Progress | None,
) -> Decoded:
    """Add a map to the cache: the rows of another one in a new order, or decoded."""
    manifest.remove_others(place)  # first of all, because the room may be needed
    infos, shape = manifest.infos, suggested_shape(manifest.infos, side)
    same = (stored for stored in manifest.maps if stored.shape == shape)
    source = next((stored for stored in same if _mapped(place, stored) is not None), None)
    if source is not None:
        images, order = place / source.images, _joined(source.splits)
    else:
        order = _joined(arrangement.arrange([UNKNOWN] * len(files)))
        images, infos, shape = _decoded(root, files, order, place, side, progress)
    splits = arrangement.arrange(infos)
    images = _reordered(images, order, _joined(splits), shape)
    added = Stored(shape, arrangement.name, arrangement.key, images.name, splits)
    others = manifest.maps if infos == manifest.infos else ()
    kept = (each for each in others if each[:2] != added[:2])
    now = Manifest(infos, (*kept, added))
    now.write(place, root)
    now.remove_others(place)  # who has one of them open can still read it
    mapped = np.load(images, mmap_mode="c", allow_pickle=False)
    return Decoded(_tensor(mapped), infos, splits, shape)


def _joined(splits: list[list[int]]) -> list[int]:
    return [index for split in splits for index in split]


def _reordered(images: Path, written: list[int], wanted: list[int], shape: Shape) -> Path:
    """Return a file with these rows of a file in this order: itself if it is so already."""
    if written == wanted:
        return images
    old = np.load(images, mmap_mode="r", allow_pickle=False)
    row_of = {index: row for row, index in enumerate(written)}
    with draft(images.parent, shape, len(wanted)) as rows:
        size = rows.at_once(len(wanted) or 1)
        for start in range(0, len(wanted), size):
            some = wanted[start : start + size]
            rows.put(start, (_content(old[row_of[index]]) for index in some))
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


def _decoded(
    root: Path,
    files: Sequence[ListedFile],
    order: list[int],
    place: Path,
    side: int | None,
    progress: Progress | None,
) -> tuple[Path, tuple[FileInfo, ...], Shape]:
    """Decode all files in this order: in the shape some headers suggest, again if all differ."""
    step = max(1, len(files) // SAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about oddities of files it can read
        guess = suggested_shape([_header_info(root, file) for file in files[::step]], side)
        images, infos = _decode_into_rows(root, files, order, place, guess, progress)
        shape = suggested_shape(infos, side)
        if shape != guess:
            images.unlink()
            images, infos = _decode_into_rows(root, files, order, place, shape, progress)
    return images, infos, shape


def _header_info(root: Path, file: ListedFile) -> FileInfo:
    """Look at the header of a file."""
    try:
        image = open_picture(read_bytes(f"{root}/{file.path}")[0])
    except DataError as error:
        return UNKNOWN._replace(problem=str(error))
    return UNKNOWN._replace(width=image.width, height=image.height, mode=image.mode)


def _decode_into_rows(
    root: Path,
    files: Sequence[ListedFile],
    order: list[int],
    place: Path,
    shape: Shape,
    progress: Progress | None,
) -> tuple[Path, tuple[FileInfo, ...]]:
    """Decode all files, in this order, into a new file of rows; that of a bad one stays black."""
    infos, done = [UNKNOWN] * len(files), 0
    with draft(place, shape, len(order)) as rows:
        for chunk in _decoded_chunks(root, [files[index] for index in order], rows):
            for info in chunk:
                infos[order[done]] = info
                done += 1
            if progress is not None:
                progress(done, len(order))
    return rows.path, tuple(infos)


def _decoded_chunks(
    root: Path, files: Sequence[ListedFile], rows: "Rows"
) -> Iterator[list[FileInfo]]:
    """Decode in threads, in order, only a few chunks ahead of who takes them."""
    size = rows.at_once(CHUNK)
    workers = min(processors(), 16)
    ahead: deque[Future[list[FileInfo]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for start in range(0, len(files), size):
            ahead.append(pool.submit(_decode_chunk, root, files[start : start + size], rows, start))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _decode_chunk(
    root: Path, files: Sequence[ListedFile], rows: "Rows", start: int
) -> list[FileInfo]:
    """Decode a few files into as many rows; whole chunks are written, as each write has a price."""
    decoded = [_decode_file(root, file, rows.shape) for file in files]
    black = bytes(rows.row_bytes)
    rows.put(start, [black if pixels is None else _content(pixels) for _, pixels in decoded])
    return [info for info, _ in decoded]


def _decode_file(root: Path, file: ListedFile, shape: Shape) -> tuple[FileInfo, Pixels | None]:
    """Read a file once: its hash and its pixels come from the same bytes."""
    path, digest = file.path, ""
    try:
        data, found = read_bytes(f"{root}/{path}")
        digest = hashlib.sha256(data).hexdigest()[:32]
        image = open_picture(data, suffix(path))
        (width, height), mode, reduced = image.size, image.mode, loses_depth(image)
        pixels = decode(
            image, side=shape.side, channels=shape.channels, sixteen_bit=shape.sixteen_bit
        )
    except DataError as error:
        return FileInfo(path, file.size, file.modified, digest, problem=str(error)), None
    stamp = (path, found.st_size, found.st_mtime_ns)
    return FileInfo(*stamp, digest, width, height, mode, reduced), pixels


def _content(pixels: NDArray[Any]) -> memoryview:
    """Return the bytes of a picture, as they stand in its row."""
    return np.ascontiguousarray(pixels).data


class Rows:
    """Rows of a NumPy file, written in any order and by several threads."""

    def __init__(self, file: IO[bytes], path: Path, shape: Shape, count: int) -> None:
        self.file, self.path, self.shape = file, path, shape
        self.kind = np.dtype(np.uint16 if shape.sixteen_bit else np.uint8)
        self.lock, self.flusher = threading.Lock(), ThreadPoolExecutor(1)
        self.flushes: list[Future[None]] = []
        self.unflushed = 0
        whole = (count, *shape.row)
        np.lib.format.write_array_header_1_0(
            file, {"descr": self.kind.str, "fortran_order": False, "shape": whole}
        )
        self.begin, self.row_bytes = file.tell(), math.prod(whole[1:]) * self.kind.itemsize
        file.truncate(self.begin + count * self.row_bytes)

    def at_once(self, most: int) -> int:
        """Return how many rows to write at a time, so that memory stays bounded."""
        return max(1, min(most, AT_ONCE // self.row_bytes))

    def put(self, start: int, rows: Iterable[bytes | memoryview]) -> None:
        """Write rows from this one on."""
        block = b"".join(rows)
        with self.lock:
            self.file.seek(self.begin + start * self.row_bytes)
            self.file.write(block)
            self.unflushed += len(block)
            if self.unflushed >= FLUSHED:
                self.flush()

    def flush(self) -> None:
        """Begin to bring everything that was put so far to the disk."""
        self.file.flush()
        self.flushes.append(self.flusher.submit(os.fsync, self.file.fileno()))
        self.unflushed = 0


@contextlib.contextmanager
def draft(place: Path, shape: Shape, count: int) -> Iterator[Rows]:
    """Open a new file of rows: whole and on the disk afterwards, or not there."""
    descriptor, name = tempfile.mkstemp(dir=place, prefix="images-", suffix=".npy")
    try:
        with os.fdopen(descriptor, "wb") as file:
            rows = Rows(file, Path(name), shape, count)
            try:
                yield rows
                rows.flush()
                for each in rows.flushes:  # the system tells of a failure once, to any one of them
                    each.result()
            finally:
                rows.flusher.shutdown(cancel_futures=True)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def processors() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
