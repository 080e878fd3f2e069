"""What is no single picture of a known kind is refused before it is decoded, in one line."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.pictures import encoded, png

from invint.data.pictures import open_picture, read_picture, shown
from invint.errors import DataError

COLOURS = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)


def refused(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        open_picture(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "is empty; copy it again"),
        (b"GIF89a", "holds GIF; expected PNG, JPEG, BMP, TIFF or WebP: convert it"),
        (b"<!DOCTYPE html><html>", "holds a web page; expected PNG"),
        (b"version https://git-lfs.github.com", "holds a Git LFS pointer; expected"),
        (b"\0\0\0\x18ftypheic", "holds HEIF; expected PNG, JPEG, BMP, TIFF or WebP: convert it"),
        (b"\0\0\0\x18ftypavif", "holds AVIF; expected"),
        (b"\0\0\0\x18ftypisom", "holds HEIF, AVIF or video; expected"),
        (b"\n<svg>", "holds SVG or XML; expected"),
        (b"hello", "holds no picture; expected"),
        (b"\x89PNG\r\n\x1a\n", "is cut off: the end of the PNG is missing; copy it again"),
        (b"\xff\xd8\xff\xd9", "has a damaged JPEG header ("),
        (b"BM", "has a damaged BMP header ("),
        (b"II*\0", "has a damaged TIFF header ("),
        (b"RIFF\0\0\0\0WEBP", "has a damaged WebP header ("),
        (
            png(100_000, 100_000),
            "has 100,000 x 100,000 pixels, more than 67,108,864; shrink it",
        ),
    ],
)
def test_what_is_no_picture_is_said_in_one_line(data: bytes, line: str) -> None:
    message = refused(data)
    assert message.startswith(line)
    assert "\n" not in message


@pytest.mark.parametrize("kind", ["TIFF", "PNG", "WEBP"])
def test_several_pictures_in_one_file_are_refused(kind: str) -> None:
    first, second = Image.fromarray(COLOURS), Image.fromarray(COLOURS[::-1].copy())
    data = encoded(first, kind, save_all=True, append_images=[second])
    assert refused(data) == ("holds several pictures (frames or pages); save each as its own file")


def test_a_wrong_ending_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(Image.fromarray(COLOURS), "PNG"))
    with pytest.raises(DataError, match=r"a.jpg: is named .jpg but holds PNG; rename it to .png"):
        read_picture(path)


def test_large_files_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with path.open("wb") as file:
        file.truncate(2**40)
    line = "has 1,099,511,627,776 bytes, more than 268,435,456; shrink it"
    with pytest.raises(DataError, match=line):
        read_picture(path)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(DataError, match=r"pipe.png: is not a regular file; remove it"):
        read_picture(tmp_path / "pipe.png")
    line = re.escape("none.png: no such file or directory; check that it is there and may be read")
    with pytest.raises(DataError, match=line):
        read_picture(tmp_path / "none.png")


def test_names_are_fit_for_a_terminal() -> None:
    assert shown("grün 1.png") == "grün 1.png"
    assert shown(os.fsdecode(b"a\xff\x1b[31m\n.png")) == r"a\xff\x1b[31m\n.png"
