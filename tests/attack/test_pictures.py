"""Pictures: every kind of pixel, cut off and damaged, as files to predict."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.attack import Judge, cut, damaged
from support.hostile_pictures import CONTENTS, NOISE, THINGS
from support.pictures import encoded

from invint.data.pictures import read_picture
from invint.errors import DataError

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

KINDS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "TIFF": ("1", "L", "P", "RGB", "CMYK", "LAB", "I;16", "F"),
    "BMP": ("1", "P", "RGB"),
    "WebP": ("RGB", "RGBA"),
}
EVERY = [(kind, mode) for kind, modes in KINDS.items() for mode in modes]


def picture(kind: str, mode: str) -> bytes:
    """Return a small file of a kind of pixels."""
    if mode == "I;16":
        return encoded(Image.fromarray(NOISE[..., 0].astype(np.uint16) * 250), kind)
    return encoded(Image.fromarray(NOISE).convert(mode), kind)


def save(folder: Path, kind: str, content: bytes) -> str:
    path = folder / f"picture.{kind.lower()}"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_whole_ones_are_read(at_home: Path, kind: str, mode: str) -> None:
    """Otherwise nothing could be learned from what becomes of damaged ones."""
    path = Path(save(at_home, kind, picture(kind, mode)))
    if mode == "F":
        with pytest.raises(DataError, match="has float pixels without a known range"):
            read_picture(path)
    else:
        assert read_picture(path).shape[1:] == (40, 40)


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_cut_off(judge: Judge, network: Path, at_home: Path, kind: str, mode: str) -> None:
    content = cut(picture(kind, mode), seed=EVERY.index((kind, mode)))
    judge.refused("predict", str(network), save(at_home, kind, content))


@pytest.mark.parametrize(("kind", "mode"), EVERY)
def test_damaged(judge: Judge, network: Path, at_home: Path, kind: str, mode: str) -> None:
    content = damaged(picture(kind, mode), seed=EVERY.index((kind, mode)))
    judge.refused_or_taken("predict", str(network), save(at_home, kind, content))


@pytest.mark.parametrize("name", CONTENTS)
def test_not_what_they_claim_to_be(judge: Judge, network: Path, at_home: Path, name: str) -> None:
    content, problem = CONTENTS[name]
    (at_home / name).write_bytes(content)
    line = judge.refused("predict", str(network), str(at_home / name))
    assert problem in line or name == "really.gif"  # only folders are told what is not read


@pytest.mark.parametrize("name", sorted(THINGS.keys() - {"parent", "root.png"}))
def test_no_files(judge: Judge, network: Path, at_home: Path, name: str) -> None:
    make: Callable[[Path], object] = THINGS[name][0]
    make(at_home / name)
    judge.refused("predict", str(network), str(at_home / name))


def test_a_loop_of_links(judge: Judge, network: Path, at_home: Path) -> None:
    (at_home / "one").symlink_to("two")
    (at_home / "two").symlink_to("one")
    judge.refused("predict", str(network), "one")


def test_a_folder_that_is_in_itself(judge: Judge, network: Path, at_home: Path) -> None:
    (at_home / "within").mkdir()
    (at_home / "within" / "again").symlink_to("..")
    judge.refused("predict", str(network), str(at_home))
