"""Pictures decoded once into a memory map, beside a manifest of the files they came from.

The manifest is written last and names the map, so that a killed writer leaves the old cache or
none. Looking for changes takes names, sizes and times alone; no file is opened for it.
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
from invint.data.listing import Entry
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
from invint.files import flush_folder, write_atomically

LADDER = (16, 24, 32, 48, 64, 96)  # sides for folders in which no size prevails


class Seen(NamedTuple):
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


UNSEEN = Seen("", 0, 0)


class Shape(NamedTuple):
    """What all pictures of a folder are made into."""

    side: int
    channels: int
    sixteen_bit: bool

    @property
    def row(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture, as it is stored."""
        return self.side, self.side, self.channels


def suggested_shape(seen: Sequence[Seen], side: int | None) -> Shape:
    """Choose what all pictures are made into.

    The side is the longer one of the pictures, if more than half of them agree on it; otherwise
    the first of 16, 24, 32, 48, 64 and 96 that reaches their median. It is even and at most 96.
    Pictures are grey if all are, and keep sixteen bits if any has them.
    """
    good = [one for one in seen if not one.problem] or [Seen("", 0, 0, "", LADDER[0], LADDER[0])]
    channels = 1 if all(one.mode in GREY for one in good) else 3
    return Shape(side or _side(good), channels, any(one.mode in DEEP for one in good))


def _side(good: Sequence[Seen]) -> int:
    longer = sorted(max(one.width, one.height) for one in good)
    common, times = Counter(longer).most_common(1)[0]
    if 2 * times > len(longer):
        return max(2, min(common + common % 2, LADDER[-1]))
    median = longer[len(longer) // 2]
    return next((side for side in LADDER if side >= median), LADDER[-1])


AT_ONCE = 2**22  # most bytes put at a time, but at least one row
FLUSHED = 2**26  # bytes after which writing to the disk begins, while more is decoded


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


def content(pixels: NDArray[Any]) -> memoryview:
    """Return the bytes of a picture, as they stand in its row."""
    return np.ascontiguousarray(pixels).data


def reordered(images: Path, written: list[int], wanted: list[int]) -> Path:
    """Bring the rows of a file into another order, or leave some out, if they are not so yet."""
    if written == wanted:
        return images
    old = np.load(images, mmap_mode="r", allow_pickle=False)
    place = {number: row for row, number in enumerate(written)}
    shape = Shape(old.shape[1], old.shape[3], old.dtype == np.uint16)
    with draft(images.parent, shape, len(wanted)) as rows:
        size = rows.at_once(len(wanted) or 1)
        for start in range(0, len(wanted), size):
            rows.put(
                start, (content(old[place[number]]) for number in wanted[start : start + size])
            )
    images.unlink()
    return rows.path


CHUNK = 32  # most pictures one thread decodes at a time


def glanced(root: Path, file: Entry) -> Seen:
    """Look at the header of a file."""
    try:
        image = open_picture(read_bytes(f"{root}/{file.path}")[0])
    except DataError as error:
        return UNSEEN._replace(problem=str(error))
    return UNSEEN._replace(width=image.width, height=image.height, mode=image.mode)


def decode_into_rows(
    root: Path,
    files: Sequence[Entry],
    order: list[int],
    place: Path,
    shape: Shape,
    progress: Progress | None,
) -> tuple[Path, list[Seen]]:
    """Decode all files, in this order, into a new file of rows; that of a bad one stays black."""
    seen, done = [UNSEEN] * len(files), 0
    with draft(place, shape, len(order)) as rows:
        for some in _in_threads(root, [files[number] for number in order], rows):
            for one in some:
                seen[order[done]] = one
                done += 1
            if progress is not None:
                progress(done, len(order))
    return rows.path, seen


def _in_threads(root: Path, files: Sequence[Entry], rows: Rows) -> Iterator[list[Seen]]:
    """Decode in threads, in order, only a few chunks ahead of who takes them."""
    size = rows.at_once(CHUNK)
    workers = min(processors(), 16)
    ahead: deque[Future[list[Seen]]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        for start in range(0, len(files), size):
            ahead.append(pool.submit(_chunk, root, files[start : start + size], rows, start))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunk(root: Path, some: Sequence[Entry], rows: Rows, start: int) -> list[Seen]:
    """Decode a few files into as many rows; whole chunks are written, as each write has a price."""
    looked = [_looked(root, file, rows.shape) for file in some]
    black = bytes(rows.row_bytes)
    rows.put(start, [black if pixels is None else content(pixels) for _, pixels in looked])
    return [found for found, _ in looked]


def _looked(root: Path, file: Entry, shape: Shape) -> tuple[Seen, Pixels | None]:
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
        return Seen(path, file.size, file.modified, digest, problem=str(error)), None
    stamp = (path, found.st_size, found.st_mtime_ns)
    return Seen(*stamp, digest, width, height, mode, reduced), pixels


def processors() -> int:
    """Return the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    write_atomically(place / "manifest.json", json.dumps(manifest))
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
