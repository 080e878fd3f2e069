"""Pictures for tests: a folder of noise, files by Pillow, PNG files put together by hand."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def write_noise(root: Path) -> Path:
    """Write ten pictures of each of two classes, and an empty file beside those of the first."""
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(10):
            pixels = random.integers(0, 256, (24, 24), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    (root / "a" / "bad.png").touch()
    return root


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """Return what Pillow would write into a file of this kind."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 0) -> bytes:
    """Return a PNG file whose header says this, whatever the chunks hold."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


def chunk(name: bytes, data: bytes) -> bytes:
    """Return one part of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
