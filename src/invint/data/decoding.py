"""The files of a folder decoded in threads, each read once, none held for long."""

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from invint.data.dataset import Progress
from invint.data.file_names import suffix
from invint.data.listing import Entry
from invint.data.picture_files import loses_depth, open_picture, read_bytes
from invint.data.pictures import Pixels, decode
from invint.data.row_file import Rows, content, draft
from invint.data.seen import UNSEEN, Seen, Shape
from invint.errors import DataError

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
