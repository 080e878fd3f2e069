"""Arrays of numbers in MATLAB 5.0 files, without believing what a file says of its sizes.

SciPy's reader of such files crashes the interpreter on some damaged ones, and unpacks as much as
they ask for. This one knows plain arrays alone, packed or not.
"""

import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

START = 128  # bytes before the first variable: a text, a version, and the order of bytes
MATRIX, PACKED = 14, 15  # kinds of elements
KINDS = (  # of arrays, counted from 1
    *("cell", "struct", "object", "char", "sparse", "double", "single", "int8", "uint8"),
    *("int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4"}  # numbers, by kind of element
STORED |= {7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MOST_AXES, LONGEST_NAME = 32, 63
DEFLATE = 1032  # times as many bytes as it is given, zlib unpacks at most
Read = Callable[[int], bytes]


class Variable(NamedTuple):
    """An array in a file, not read yet.

    Attributes:
        place: Where it begins in the file.
        shape: Its size along each axis.
        kind: What MATLAB calls its type, as `uint8` or `double`.
    """

    place: int
    shape: tuple[int, ...]
    kind: str


def list_variables(path: Path) -> dict[str, Variable]:
    """Return the arrays of a file by name, from their headers alone.

    Raises:
        ValueError, EOFError, struct.error, zlib.error: The file is damaged.
    """
    found = {}
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        order, place = _order(file), START
        while place < end:
            file.seek(place)
            kind, size = struct.unpack(f"{order}2I", _whole(file, 8))
            if place + 8 + size > end:
                raise EOFError("cut off")
            if kind in (MATRIX, PACKED):
                name, shape, numbers = _header(_inside(file, order, place)[0], order)
                found[name] = Variable(place, shape, numbers)
            place += 8 + size
    return found


def read_variable(path: Path, variable: Variable) -> NDArray[Any]:
    """Return the numbers of an array, as they are stored."""
    with path.open("rb") as file:
        order = _order(file)
        read, most = _inside(file, order, variable.place)
        _, shape, _ = _header(read, order)
        kind, data = _element(read, order, most)
    if kind not in STORED:
        raise ValueError(f"expected numbers, got an element of kind {kind}")
    numbers = np.frombuffer(bytearray(data), dtype=f"{order}{STORED[kind]}")
    if len(numbers) != math.prod(shape):
        raise ValueError(f"expected {math.prod(shape):,} numbers, got {len(numbers):,}")
    return numbers.astype(numbers.dtype.newbyteorder("="), copy=False).reshape(shape, order="F")


def _order(file: IO[bytes]) -> str:
    """Return the order of bytes as `struct` writes it."""
    file.seek(START - 2)
    return "<" if file.read(2) == b"IM" else ">"


def _inside(file: IO[bytes], order: str, place: int) -> tuple[Read, int]:
    """Return what reads the parts of an array, and the most bytes there can be."""
    file.seek(place)
    kind, size = struct.unpack(f"{order}2I", _whole(file, 8))
    if kind == MATRIX:
        return lambda count: _whole(file, count), size
    unpack = _unpacking(file)
    (kind,) = struct.unpack(f"{order}I4x", unpack(8))
    if kind != MATRIX:
        raise ValueError(f"expected an array, got an element of kind {kind}")
    return unpack, DEFLATE * size


def _unpacking(file: IO[bytes]) -> Read:
    """Return what unpacks a file from here on, as many bytes at a time as it is asked for."""
    packer = zlib.decompressobj()

    def unpack(count: int) -> bytes:
        parts, left = list[bytes](), count
        while left:
            packed = packer.unconsumed_tail or file.read(2**16)
            part = packer.decompress(packed, left)
            if not part and (packer.eof or not packed):
                raise EOFError("cut off")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    return unpack


def _header(read: Read, order: str) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and kind of an array."""
    _, flags = _element(read, order, 8)
    _, sizes = _element(read, order, 4 * MOST_AXES)
    _, name = _element(read, order, LONGEST_NAME)
    (bits,) = struct.unpack(f"{order}I4x", flags)
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    if any(size < 0 for size in shape):
        raise ValueError(f"negative sizes {shape}")
    kind = dict(enumerate(KINDS, start=1)).get(bits & 0xFF, "unknown")
    return name.decode("latin-1"), shape, kind


def _element(read: Read, order: str, most: int) -> tuple[int, bytes]:
    """Return kind and content of a part of an array; small ones are within their tag."""
    tag = read(8)
    kind, size = struct.unpack(f"{order}2I", tag)
    if kind >> 16:
        return kind & 0xFFFF, tag[4 : 4 + (kind >> 16)]
    if size > most:
        raise ValueError(f"an element of {size:,} bytes, where at most {most:,} can be")
    content = read(size)
    if most <= 4 * MOST_AXES:  # parts of the header are filled up to eight bytes
        read(-size % 8)
    return kind, content


def _whole(file: IO[bytes], count: int) -> bytes:
    content = file.read(count)
    if len(content) < count:
        raise EOFError("cut off")
    return content
