"""A NumPy file with a picture in each row, written in any order: whole on disk, or not there."""

import contextlib
import math
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from invint.data.seen import Shape

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
