"""Bytes to pixels: the one decoder of picture files, for folders, predictions and the server.

Files are read as strangers' files: by what their bytes say, with limits on sizes, one frame, and
errors that say what to do about the file.

Axes:  c channel   h w pixel
"""

import contextlib
import os
import stat
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange, repeat
from jaxtyping import UInt8, UInt16
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from torch import Tensor

from invint.errors import ConfigError, DataError

SUFFIXES = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".jpe": "JPEG",
    ".jfif": "JPEG",
    ".bmp": "BMP",
    ".dib": "BMP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WebP",
}
FOREIGN = {  # pictures of other kinds: they are named, not passed over as other files are
    *(".gif", ".heic", ".heif", ".avif", ".svg", ".ico", ".jp2", ".j2k", ".jxl", ".psd", ".tga"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".exr", ".hdr", ".dcm", ".raw", ".cr2", ".cr3", ".nef"),
    *(".arw", ".dng", ".xcf", ".pcx", ".hif", ".heics", ".avifs", ".apng", ".mpo", ".jxr", ".rw2"),
    *(".orf", ".raf", ".icns"),
}
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
BRANDS = {b"avif": "AVIF", b"avis": "AVIF"} | dict.fromkeys(
    (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"), "HEIF"
)
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I")  # Pillow's names of sixteen-bit pixels
GREY = ("1", "L", "LA", "La", *DEEP)  # and of all without colour
READERS: dict[str, Any] = {  # Pillow's, called by name so that no other is tried on the bytes
    "PNG": PngImagePlugin.PngImageFile,
    "JPEG": JpegImagePlugin.JpegImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
}
MAX_SIDE = 2**13  # of the square a picture is fitted into
HALF = 0.499  # rounds halves down whatever the last bit: they are frequent at whole ratios
STRIP = 2**20  # pixels of a large picture that are resized together
LARGE = 2**23  # pixels; pictures above it are decoded one at a time, so that memory stays bounded
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
ORIENTATION = 0x0112  # the EXIF tag
EXIF = {"exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp"}  # where it may be written

Pixels = NDArray[np.uint8] | NDArray[np.uint16]
_one_large_picture = threading.Lock()


def read_picture(
    source: Path | bytes,
    *,
    side: int | None = None,
    channels: int | None = None,
    sixteen_bit: bool | None = None,
) -> UInt8[Tensor, "c h w"] | UInt16[Tensor, "c h w"]:
    """Decode a picture, upright as its EXIF orientation says, transparent parts black.

    Args:
        source: A file, or its content.
        side: Fit the picture into a square of this even side: the longer side is made this long,
            the rest is black, the picture in the middle. One pixel less is padded, not enlarged.
            But for that, a turned picture becomes what the picture becomes, turned; of sixteen
            bits the last may differ.
        channels: 1 for grey, 3 for colour; as the picture is if not given.
        sixteen_bit: Whether values go to 65,535 or to 255; as in the picture if not given.
    """
    check_request(side, channels)
    name = shown(str(source)) if isinstance(source, Path) else "picture"
    try:
        data = source if isinstance(source, bytes) else read_bytes(source)[0]
        image = open_picture(data, source.suffix if isinstance(source, Path) else "")
        pixels = decode(image, side=side, channels=channels, sixteen_bit=sixteen_bit)
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    return torch.from_numpy(rearrange(pixels, "h w c -> c h w").copy())


def check_request(side: int | None, channels: int | None = None) -> None:
    """Raise `ConfigError` unless pictures can be given this side and these channels."""
    if side is not None and (side not in range(2, MAX_SIDE + 1) or side % 2):
        raise ConfigError(f"pictures: expected an even side from 2 to {MAX_SIDE:,}, got {side}")
    if channels not in (None, 1, 3):
        raise ConfigError(f"pictures: expected 1 or 3 channels, got {channels}")


class TooManyPixelsError(DataError):
    """A picture is too large to be decoded."""


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
        if found.st_size == 0:
            raise DataError("is empty; copy it again")
        if found.st_size > MAX_BYTES:
            raise DataError(f"has {found.st_size:,} bytes, more than {MAX_BYTES:,}; shrink it")
        data = os.read(descriptor, found.st_size)
    except OSError as error:
        raise DataError(f"{(error.strerror or 'cannot be read').lower()}; copy it again") from error
    finally:
        os.close(descriptor)
    if len(data) < found.st_size:
        raise DataError("changed while it was read; try again")
    return data, found


def open_picture(data: bytes, ending: str = "") -> Image.Image:
    """Read the header of a picture; raise `DataError` if it is no single picture of known kind."""
    kind = _kind(data)
    claimed = SUFFIXES.get(ending.lower(), kind)
    if kind != claimed:
        raise DataError(f"is named {ending} but holds {kind}; rename it to .{kind.lower()}")
    if data.rfind(ENDS.get(kind, b"")) < 0:
        raise DataError(f"is cut off: the end of the {kind} is missing; copy it again")
    try:
        image: Image.Image = READERS[kind](BytesIO(data))
    except Exception as error:  # readers of damaged headers raise whatever they stumble over
        raise DataError(
            f"has a damaged {kind} header ({first_line(error)}); copy it again"
        ) from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise TooManyPixelsError(
            f"has {width:,} x {height:,} pixels, more than {MAX_PIXELS:,}; shrink it"
        )
    if getattr(image, "is_animated", False):
        raise DataError("holds several pictures (frames or pages); save each as its own file")
    return image


def _kind(data: bytes) -> str:
    if not data:
        raise DataError("is empty; copy it again")
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
        return BRANDS.get(data[8:12], "HEIF, AVIF or video")
    start = data[:256].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    if start.startswith((b"<?xml", b"<svg")):
        return "SVG or XML"
    return "no picture"


def decode(
    image: Image.Image,
    *,
    side: int | None = None,
    channels: int | None = None,
    sixteen_bit: bool | None = None,
) -> Pixels:
    """Return the pixels `(h, w, c)` of an opened picture, as `read_picture` describes."""
    large = image.width * image.height > LARGE
    try:
        with _one_large_picture if large else contextlib.nullcontext():
            return _decoded(image, side, channels, sixteen_bit)
    except DataError:
        raise
    except Exception as error:  # decoders of damaged data raise whatever they stumble over
        raise DataError(f"is damaged or cut off ({first_line(error)}); copy it again") from error


def _decoded(
    image: Image.Image, side: int | None, channels: int | None, sixteen_bit: bool | None
) -> Pixels:
    if side is not None:
        _decode_smaller(image, 2 * side)
    image.load()
    plain = _plain(image)
    if channels == 1 and plain.mode == "RGB":
        plain = plain.convert("L")
    if side is not None:
        plain = _fitted(plain, side)
    turn = _turn(image)  # after fitting: a copy of a large picture would cost memory
    pixels: NDArray[Any] = _values(plain if turn is None else plain.transpose(turn), sixteen_bit)
    if side is not None:
        missing = [side - length for length in pixels.shape[:2]]
        margins = [(each // 2, each - each // 2) for each in missing]
        pixels = np.pad(pixels, [*margins, (0, 0)][: pixels.ndim])
    if pixels.ndim == 2:
        return repeat(pixels, "h w -> h w c", c=channels or 1)
    return pixels


def _decode_smaller(image: Image.Image, longer: int) -> None:
    """Let a large JPEG be decoded at a half, a quarter or an eighth, no smaller than asked."""
    scale = longer / max(image.size)
    if scale <= 0.5:
        image.draft(None, (round(scale * image.width), round(scale * image.height)))


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return what makes a loaded picture upright; TIFF turns itself when it is loaded."""
    if image.info.keys().isdisjoint(EXIF):
        return None
    try:
        return TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged EXIF data says nothing about the pixels
        return None


def _plain(image: Image.Image) -> Image.Image:
    """Return the picture in mode L, RGB or one of sixteen bits; what is transparent is black."""
    if image.mode in DEEP:
        return image
    if image.mode == "F":
        raise DataError("has float pixels without a known range; save it with 8 or 16 bits")
    mode = "L" if image.mode in GREY else "RGB"
    if "A" in image.getbands() or "a" in image.getbands() or "transparency" in image.info:
        cover = image if image.mode == "RGBA" else image.convert("RGBA")
        plain = Image.new(mode, image.size)
        plain.paste(cover, mask=cover.getchannel("A"))
        return plain
    return image if image.mode == mode else image.convert(mode)


def _fitted(image: Image.Image, side: int) -> Image.Image:
    """Resize so that the longer side fits, and the margins of the shorter are equal."""
    longer = max(image.size)
    width, height = (max(2, 2 * round(length * side / longer / 2)) for length in image.size)
    if longer == side - 1 or image.size == (width, height):
        return image
    if image.mode in DEEP:
        deep = Image.fromarray(np.asarray(image).astype(np.float32))
        return deep.resize((width, height), Image.Resampling.BILINEAR)
    bands = [_resized(image.getchannel(name), width, height) for name in image.getbands()]
    return Image.merge(image.mode, bands)


def _resized(band: Image.Image, width: int, height: int) -> Image.Image:
    """Resize a channel in floating point, where a turned picture becomes the picture turned.

    Of whole numbers Pillow rounds what it makes of the rows before it goes on to the columns.
    """
    step = max(1, STRIP // band.width)  # rows that are floating point together
    tops = range(0, band.height, step)
    strips = (band.crop((0, top, band.width, min(top + step, band.height))) for top in tops)
    narrow = [
        np.asarray(each.convert("F").resize((width, each.height), Image.Resampling.BILINEAR))
        for each in strips
    ]
    whole = Image.fromarray(np.concatenate(narrow))
    found = np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR))
    return Image.fromarray(np.floor(found + HALF).astype(np.uint8))


def _values(image: Image.Image, sixteen_bit: bool | None) -> Pixels:
    values = np.asarray(image)
    if image.mode in DEEP or image.mode == "F":
        if values.min() < 0 or values.max() > 65535:
            raise DataError("has values outside 0 to 65,535; save it with 8 or 16 bits")
        deep: NDArray[np.uint16] = np.floor(values + HALF).astype(np.uint16)
        return deep if sixteen_bit is not False else ((deep + 128.0) // 257).astype(np.uint8)
    shallow: NDArray[np.uint8] = values.astype(np.uint8, copy=False)
    if not sixteen_bit:
        return shallow
    spread: NDArray[np.uint16] = shallow.astype(np.uint16) * np.uint16(257)
    return spread


def loses_depth(image: Image.Image) -> bool:
    """Whether an opened picture has sixteen bits a channel of which Pillow keeps eight."""
    tiles: Any = getattr(image, "tile", None)
    if image.mode in DEEP or not tiles:
        return False
    if image.format == "TIFF":
        depths: Any = getattr(image, "tag_v2", {}).get(258, (8,))
        return any(depth > 8 for depth in depths)
    return image.format == "PNG" and ";16" in str(tiles[0][3])


def suffix(name: str) -> str:
    """Return the ending of a file name in small letters, with its dot."""
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem and "/" not in ending else ""


def shown(name: str) -> str:
    """Return a file name fit for a terminal: other bytes and control characters escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(error: Exception) -> str:
    """Return what a reader or decoder of pictures says, short and fit for a terminal."""
    return shown((str(error) or type(error).__name__).splitlines()[0])[:100]
