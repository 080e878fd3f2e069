"""Files that claim to be pictures and are not: each with what is said of it."""

import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from support.pictures import chunk, encoded, png

NOISE = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)


def noise(kind: str, **options: object) -> bytes:
    return encoded(Image.fromarray(NOISE), kind, **options)


def bmp(width: int, height: int) -> bytes:
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 100, 0, 0, 54) + header + bytes(100)


def tiff(width: int, height: int) -> bytes:
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 278: height, 279: 64}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def zeros(count: int) -> bytes:
    """Compress zeros, without ever holding all of them."""
    packer = zlib.compressobj(1)
    parts = [packer.compress(bytes(2**20)) for _ in range(count // 2**20)]
    return b"".join([*parts, packer.compress(bytes(count % 2**20)), packer.flush()])


PNG, JPEG = noise("PNG"), noise("JPEG")
SECOND = [Image.fromarray(NOISE[::-1].copy())]
CONTENTS: dict[str, tuple[bytes, str]] = {
    "empty.png": (b"", "is empty"),
    "empty.jpg": (b"", "is empty"),
    "one byte.bmp": (b"B", "holds no picture"),
    "mark only.png": (PNG[:8], "is cut off"),
    "cut in header.png": (PNG[:20], "is cut off"),
    "cut in half.png": (PNG[: len(PNG) // 2], "is cut off"),
    "cut at the end.png": (PNG[:-12], "is cut off"),
    "hole.png": (PNG[:200] + PNG[-200:], "damaged"),
    "mark only.jpg": (JPEG[:3], "is cut off"),
    "cut in half.jpg": (JPEG[: len(JPEG) // 2], "is cut off"),
    "cut but ended.jpg": (JPEG[:300] + b"\xff\xd9", "damaged"),
    "noise in marks.jpg": (b"\xff\xd8\xff" + NOISE.tobytes() + b"\xff\xd9", "damaged"),
    "cut.bmp": (noise("BMP")[:900], "damaged"),
    "cut.tif": (noise("TIFF")[:900], "damaged"),
    "cut.webp": (noise("WEBP")[:300], "damaged"),
    "page.jpg": (b"\n<!DOCTYPE html><html>not found</html>", "holds a web page"),
    "png.jpg": (PNG, "is named .jpg but holds PNG; rename it to .png"),
    "jpeg.png": (JPEG, "is named .png but holds JPEG; rename it to .jpeg"),
    "text.png": (b"hello", "holds no picture"),
    "gif.png": (noise("GIF"), "holds GIF"),
    "really.gif": (noise("GIF"), ".gif files are not read"),
    "paper.tif": (b"%PDF-1.7", "holds PDF"),
    "archive.png": (b"PK\x03\x04", "holds a ZIP archive"),
    "pointer.png": (b"version https://git-lfs.github.com/spec/v1\n", "holds a Git LFS pointer"),
    "photo.jpeg": (b"\0\0\0\x18ftypheic", "holds HEIF"),
    "drawing.png": (b"<svg onload='x'/>", "holds SVG or XML"),
    "vast.png": (png(2**31 - 1, 2**31 - 1), "has 2,147,483,647 x 2,147,483,647 pixels"),
    "vast.bmp": (bmp(2**30, 2**30), "has 1,073,741,824 x 1,073,741,824 pixels"),
    "vast.tif": (tiff(2**20, 2**20), "has 1,048,576 x 1,048,576 pixels"),
    "nothing.png": (png(0, 0, chunk(b"IDAT", zlib.compress(b""))), "damaged"),
    "no pixels.png": (png(40, 40), "damaged"),
    "negative.bmp": (bmp(-5, 5), "pixels, more than"),
    "text bomb.png": (png(8, 8, chunk(b"zTXt", b"a\0\0" + zeros(2**27))), "damaged"),
    "profile bomb.png": (png(8, 8, chunk(b"iCCP", b"a\0\0" + zeros(2**27))), "damaged"),
    "bomb.png": (png(2**16, 2**15, chunk(b"IDAT", zeros(2**24))), "has 65,536 x 32,768 pixels"),
    "pages.tif": (noise("TIFF", save_all=True, append_images=SECOND), "holds several pictures"),
    "frames.png": (noise("PNG", save_all=True, append_images=SECOND), "holds several pictures"),
    "frames.webp": (noise("WEBP", save_all=True, append_images=SECOND), "holds several pictures"),
    "all ones.tiff": (b"\xff" * 1000, "holds no picture"),
    "tags to nowhere.tif": (b"II*\0" + b"\xf0\xff\xff\xff" + bytes(20), "damaged"),
    "\x1b[2J\nname.png": (b"", "is empty"),
    os.fsdecode(b"no utf-8 \xff.png"): (b"", "is empty"),
}


def link_out(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere.png")


def link_to_root(path: Path) -> None:
    path.symlink_to("/")


def link_to_parent(path: Path) -> None:
    path.symlink_to("..")


def listen(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        server.bind(path.name)
    finally:
        os.chdir(here)
        server.close()


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(PNG[:8])
        file.truncate(2**40)


THINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder.png": (Path.mkdir, "is a folder named like a picture"),
    "pipe.png": (os.mkfifo, "is not a regular file"),
    "socket.jpg": (listen, "is not a regular file"),
    "out.png": (link_out, "is a link out of the folder"),
    "itself.png": (link_to_itself, "; "),
    "dangling.png": (link_to_nowhere, "no such file or directory"),
    "root.png": (link_to_root, "is a link out of the folder"),
    "parent": (link_to_parent, "is a folder or a link to one"),
    "terabyte.png": (sparse, "has 1,099,511,627,776 bytes"),
}
