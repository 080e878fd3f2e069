"""What a scan says about a folder, and which findings stop a training."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from invint.data.cache import Shape
from invint.data.folder import Scan, refuse, scan
from invint.data.listing import BadFile
from invint.data.splits import Leak
from invint.errors import DataError

BAD = [
    "train/cat/1.png: is of class 'cat' and, as train/dog/wrong.png, of class 'dog': a picture can "
    "have one class; remove one of them",
    "train/cat/empty.png: is empty; copy it again",
    "train/dog/wrong.png: is of class 'dog' and, as train/cat/1.png, of class 'cat': a picture can "
    "have one class; remove one of them",
]
LEAK = "train/cat/2.png (train) = test/cat/leak.png (test)"


def write_class(folder: Path, count: int, first: int = 0, size: tuple[int, int] = (20, 20)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        Image.new("L", size, number).save(folder / f"{number}.png")


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """A folder with splits and one of each thing a scan tells."""
    root = tmp_path / "messy"
    write_class(root / "train" / "cat", 12)
    write_class(root / "train" / "dog", 4, first=20, size=(20, 16))
    write_class(root / "val" / "cat", 2, first=40)
    write_class(root / "test" / "cat", 2, first=60)
    Image.new("RGB", (20, 20), (9, 8, 7)).save(root / "train" / "dog" / "colour.jpg")
    shutil.copy(root / "train/cat/0.png", root / "train/cat/again.png")
    shutil.copy(root / "train/cat/1.png", root / "train/dog/wrong.png")
    shutil.copy(root / "train/cat/2.png", root / "test/cat/leak.png")
    (root / "train" / "cat" / "empty.png").write_bytes(b"")
    (root / "train" / "cat" / "notes.txt").write_text("notes")
    (root / "readme.md").write_text("read me")
    return root


@pytest.fixture
def found(messy: Path, tmp_path: Path) -> Scan:
    return scan(messy, cache=tmp_path / "cache")


def test_classes_and_counts(found: Scan) -> None:
    assert found.classes == ("cat", "dog")
    assert found.counts == {"train": (12, 5), "validation": (2, 0), "test": (3, 0)}
    assert found.images == 22
    assert found.imbalance == 17 / 5
    assert found.held_out is None
    assert found.layout == "train, validation and test folders with a folder for each class"


def test_sizes_modes_and_what_they_become(found: Scan) -> None:
    assert found.sizes == (((20, 20), 18), ((20, 16), 4))
    assert found.modes == {"L": 21, "RGB": 1}
    assert found.shape == (20, 3, False)


def test_copies_leaks_and_conflicts(found: Scan) -> None:
    again = ("train/cat/0.png", "train/cat/again.png")
    leak = ("test/cat/leak.png", "train/cat/2.png")
    pair = ("train/cat/2.png", "train", "test/cat/leak.png", "test", None)
    assert set(found.duplicates) == {again, leak}
    assert found.leaks == (pair,)


def test_bad_and_other_files(found: Scan) -> None:
    assert [str(bad) for bad in found.bad] == BAD
    assert found.others == ("readme.md", "train/cat/notes.txt")


def test_the_report_tells_everything(found: Scan, messy: Path) -> None:
    assert (
        found.report()
        == f"""\
folder    {messy}: train, validation and test folders with a folder for each class
pictures  22 good, 3 bad
classes   2, the largest 3.4 x the smallest
sizes     20 x 20 (18), 20 x 16 (4)
pixels    grey (21), colour (1)
made into 20 x 20, colour, 8 bits
test      as the folder says

class       train  validation        test
cat            12           2           3
dog             5           0           0

warnings (2)
  class 'dog' has no picture to test on
  leakage: {LEAK}; --drop-leaks leaves such pictures out

bad files (3)
  {BAD[0]}
  {BAD[1]}
  {BAD[2]}

leakage (1)
  {LEAK}

same picture several times (2)
  test/cat/leak.png = train/cat/2.png
  train/cat/0.png = train/cat/again.png

other files, passed over (2)
  readme.md
  train/cat/notes.txt"""
    )


def test_a_held_out_share_is_reported_and_leaks_nothing(tmp_path: Path) -> None:
    write_class(tmp_path / "set" / "a", 20)
    write_class(tmp_path / "set" / "b", 10, first=100)
    for number in range(10):
        shutil.copy(tmp_path / "set/a" / f"{number}.png", tmp_path / "set/a" / f"again{number}.png")
    found = scan(tmp_path / "set", cache=tmp_path / "cache")
    assert found.held_out == 0.2
    assert len(found.duplicates) == 10
    assert found.leaks == ()
    assert "test      20% held out, by class; no group and no set of copies is divided" in (
        found.report()
    )


def test_classes_too_small_for_the_split_are_named_not_raised(tmp_path: Path) -> None:
    write_class(tmp_path / "set" / "many", 10)
    write_class(tmp_path / "set" / "one", 1, first=100)
    (tmp_path / "set" / "none").mkdir()
    found = scan(tmp_path / "set", cache=tmp_path / "cache")
    assert found.few == (
        "class 'none' has no picture to train on",
        "class 'one' has too few pictures or groups to hold any out (1)",
    )
    assert found.imbalance == float("inf")


def test_depth_lost_is_reported(tmp_path: Path) -> None:
    write_class(tmp_path / "set" / "a", 2)
    write_class(tmp_path / "set" / "b", 2, first=10)
    deep = np.full((20, 20), 40_000, dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "set" / "a" / "deep.tif")
    found = scan(tmp_path / "set", cache=tmp_path / "cache")
    assert found.shape.sixteen_bit
    assert found.reduced == 0
    assert "made into 20 x 20, grey, 16 bits" in found.report()


def test_a_folder_of_bad_files_alone_is_reported(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "x.png").write_bytes(b"")
    found = scan(tmp_path / "set", cache=tmp_path / "cache")
    assert found.images == 0
    assert len(found.bad) == 2
    assert "pictures  0 good, 2 bad" in found.report()


PLAIN = Scan(
    path=Path("set"),
    layout="a folder for each class",
    classes=("a", "b"),
    counts={"train": (2, 2), "test": (1, 1)},
    held_out=0.2,
    sizes=(((20, 20), 6),),
    modes={"L": 6},
    shape=Shape(20, 1, False),
    reduced=0,
    bad=(),
    others=(),
    duplicates=(),
    leaks=(),
    few=(),
)


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([((400, 300), 5), ((30, 30), 4)], 400),
        ([((299, 200), 5)], 300),
        ([((4000, 3000), 9)], 512),
        ([((10, 90), 2), ((200, 150), 2), ((30, 20), 2)], 90),
        ([((1, 1), 2)], 2),
        ([], 20),
    ],
)
def test_the_natural_side_is_that_of_most_pictures_or_the_median(
    sizes: list[tuple[tuple[int, int], int]], side: int
) -> None:
    assert replace(PLAIN, sizes=tuple(sizes)).natural_side == side


def test_pictures_of_other_kinds_and_with_several_frames_are_named(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write_class(root / "a", 4)
    write_class(root / "b", 4, first=10)
    one, two = Image.new("RGB", (20, 20), (200, 0, 0)), Image.new("RGB", (20, 20), (0, 200, 0))
    one.save(root / "a" / "still.gif")
    one.save(root / "a" / "still.webp")
    for name in ("moving.gif", "moving.webp", "moving.png", "pages.tiff"):
        one.save(root / "a" / name, save_all=True, append_images=[two])
    for name in ("photo.heic", "photo.HEIF", "photo.avif", "phone.jpg"):
        (root / "b" / name).write_bytes(b"\0\0\0\x18ftypheic" + bytes(100))
    (root / "b" / "film.mp4").write_bytes(b"\0\0\0\x18ftypisom")
    found = scan(root, cache=tmp_path / "cache")
    several = "holds several pictures (frames or pages); save each as its own file"
    convert = "expected PNG, JPEG, BMP, TIFF or WebP: convert it"
    assert [str(bad) for bad in found.bad] == [
        f"a/moving.gif: .gif files are not read; {convert}",
        f"a/moving.png: {several}",
        f"a/moving.webp: {several}",
        f"a/pages.tiff: {several}",
        f"a/still.gif: .gif files are not read; {convert}",
        f"b/phone.jpg: holds HEIF; {convert}",
        f"b/photo.HEIF: .heif files are not read; {convert}",
        f"b/photo.avif: .avif files are not read; {convert}",
        f"b/photo.heic: .heic files are not read; {convert}",
    ]
    assert found.images == 9
    assert found.others == ("b/film.mp4",)


def test_long_lists_are_cut() -> None:
    others = tuple(f"a/{number:02}.txt" for number in range(25))
    lines = replace(PLAIN, others=others).report().splitlines()
    assert lines[-1] == "  and 5 more"
    assert "other files, passed over (25)" in lines


def test_names_cannot_write_to_the_terminal() -> None:
    bad = BadFile(os.fsdecode(b"a/\x1b[2J\n\xff.png"), "is empty; copy it again")
    lines = replace(PLAIN, bad=(bad,)).report().splitlines()
    assert r"  a/\x1b[2J\n\xff.png: is empty; copy it again" in lines


@pytest.mark.parametrize("group", [None, "g\x1b[2J"])
def test_leaks_cannot_write_to_the_terminal(group: str | None) -> None:
    leak = Leak("a/\n[red].png", "train", os.fsdecode(b"b/\xff.png"), "test", group)
    line = r"a/\n[red].png (train) = b/\xff.png (test)"
    if group is not None:
        line = line.replace("=", "and") + r" are both of group 'g\x1b[2J'"
    assert str(leak) == line
    found = replace(PLAIN, leaks=(leak, leak, leak))
    note = f"leakage: {line} and 2 more; --drop-leaks leaves such pictures out"
    assert found.note == note
    assert f"  {note}" in found.report().splitlines()
    assert f"  {line}" in found.report().splitlines()
    assert replace(found, dropped=True).note == "pictures left out because they leak: 3"


def test_classes_named_almost_alike_are_told() -> None:
    classes = ("Cat", "cafe\u0301", "caf\u00e9", "cat ", "dog")
    assert replace(PLAIN, classes=classes).warnings == (
        "classes named almost alike: 'Cat', 'cat '",
        "classes named almost alike: 'cafe\u0301', 'caf\u00e9'",
    )


def test_a_class_is_refused_for_what_it_lacks_and_not_for_its_name() -> None:
    own_test = replace(PLAIN, held_out=None)
    refuse(replace(own_test, few=("class 'train on' has no picture to test on",)), skip_bad=False)
    with pytest.raises(DataError, match="set: class 'a' has no picture to train on; add pictures"):
        refuse(replace(own_test, few=("class 'a' has no picture to train on",)), skip_bad=False)
