"""Files of pictures up to their headers: read whole, known by their first bytes, or refused.

What is not PNG, JPEG, BMP, TIFF or WebP, is cut off, too large or several pictures in one is
refused with one line that says why. Nothing is decoded here.
"""

import os
import stat
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from invint.data.file_names import SUFFIXES, shown
from invint.errors import DataError

MAX_PIXELS = 2**26  # of one picture, 67 million: more is refused before it is decoded
MAX_BYTES = 2**28  # of one file
MARKS = [
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
]
ENDS = {"PNG": b"IEND", "JPEG": b"\xff\xd9"}
OTHER_MARKS = [
    (b"GIF8", "GIF"),
    (b"%PDF", "PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"8BPS", "Photoshop"),
    (b"version https://git-lfs", "a Git LFS pointer"),
]
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")  # Pillow's names of sixteen-bit pixels
GREY = ("1", "L", "LA", "La", *DEEP)  # and of all without colour


def read_bytes(path: Path | str) -> tuple[bytes, os.stat_result]:
    """Read a regular file, never waiting for a pipe or a device."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = (error.strerror or "cannot be opened").lower()
        raise DataError(f"{reason}; check that it is there and may be read") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise DataError("is not a regular file; remove it")
        if not 0 < found.st_size <= MAX_BYTES:
            raise DataError(_wrong_size(found.st_size))
        data = os.read(descriptor, found.st_size)
    except OSError as error:
        raise DataError(f"{(error.strerror or 'cannot be read').lower()}; copy it anew") from error
    finally:
        os.close(descriptor)
    if len(data) < found.st_size:
        raise DataError("changed while it was read; try again")
    return data, found


def _wrong_size(size: int) -> str:
    if size == 0:
        return "is empty; copy it anew"
    return f"has {size:,} bytes, more than {MAX_BYTES:,}; shrink it"


def open_picture(data: bytes, ending: str = "") -> Image.Image:
    """Read the header of a picture; raise `DataError` if it is no single picture of known kind."""
    kind = _kind(data)
    claimed = SUFFIXES.get(ending.lower(), kind)
    if kind != claimed:
        raise DataError(f"is named {ending} but holds {kind}; rename it to .{kind.lower()}")
    if data.rfind(ENDS.get(kind, b"")) < 0:
        raise DataError(f"is cut off: the end of the {kind} is missing; copy it anew")
    try:
        image: Image.Image = _readers()[kind](BytesIO(data))
    except Exception as error:  # readers of damaged headers raise whatever they stumble over
        raise DataError(
            f"has a damaged {kind} header ({first_line(error)}); copy it anew"
        ) from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise DataError(f"has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}; shrink it")
    if getattr(image, "is_animated", False):
        raise DataError("holds several pictures (frames or pages); save each as its own file")
    return image


def _kind(data: bytes) -> str:
    if not data:
        raise DataError("is empty; copy it anew")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    for mark, kind in MARKS:
        if data.startswith(mark):
            return kind
    raise DataError(f"holds {_guess(data)}; expected PNG, JPEG, BMP, TIFF or WebP: convert it")


def _guess(data: bytes) -> str:
    for mark, kind in OTHER_MARKS:
        if data.startswith(mark):
            return kind
    if data[4:8] == b"ftyp":
        return "HEIF, AVIF or video"
    start = data[:256].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if start.startswith((b"<?xml", b"<svg")):
        return "SVG or XML"
    return "no picture"


@cache
def _readers() -> dict[str, Any]:
    """Return Pillow's reader of each format: no other one is ever tried on the bytes."""
    from PIL import (
        BmpImagePlugin,
        JpegImagePlugin,
        PngImagePlugin,
        TiffImagePlugin,
        WebPImagePlugin,
    )

    return {
        "PNG": PngImagePlugin.PngImageFile,
        "JPEG": JpegImagePlugin.JpegImageFile,
        "BMP": BmpImagePlugin.BmpImageFile,
        "TIFF": TiffImagePlugin.TiffImageFile,
        "WebP": WebPImagePlugin.WebPImageFile,
    }


def loses_depth(image: Image.Image) -> bool:
    """Whether an opened picture has sixteen bits a channel of which Pillow keeps eight."""
    tiles: Any = getattr(image, "tile", None)
    if image.mode in DEEP or not tiles:
        return False
    if image.format == "TIFF":
        depths: Any = getattr(image, "tag_v2", {}).get(258, (8,))
        return any(depth > 8 for depth in depths)
    return image.format == "PNG" and ";16" in str(tiles[0][3])


def first_line(error: Exception) -> str:
    """Return what a reader or decoder of pictures says, short and fit for a terminal."""
    return shown((str(error) or type(error).__name__).splitlines()[0])[:100]
