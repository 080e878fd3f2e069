"""The layouts of a folder, its splits and groups, and what is done about bad files."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invint.data.dataset import Dataset, Split
from invint.data.folder import load_folder, scan
from invint.errors import ConfigError, DataError

Colour = tuple[int, int, int]


def write_picture(path: Path, colour: Colour | int = 0, size: tuple[int, int] = (12, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(path)


def write_class(folder: Path, count: int, first: int = 0) -> None:
    """Write grey pictures that differ from each other: their grey value is their number."""
    for number in range(first, first + count):
        write_picture(folder / f"{number}.png", number)


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Dataset]:
    def loaded(path: Path, **options: object) -> Dataset:
        return load_folder(path, cache=tmp_path / "cache", **options)  # type: ignore[arg-type]

    return loaded


def numbers(part: Split | None) -> list[int]:
    """Return the grey value of each picture."""
    assert part is not None
    assert torch.equal(part.images.amin((1, 2, 3)), part.images.amax((1, 2, 3)))
    values: list[int] = part.images[:, 0, 0, 0].tolist()
    return values


def test_a_folder_for_each_class(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    write_class(tmp_path / "set" / "cat", 10)
    write_class(tmp_path / "set" / "dog" / "outdoors", 20, first=100)
    found = load(tmp_path / "set")
    assert found.name == "folder:set"
    assert found.class_names == ("cat", "dog")
    assert found.image_shape == (1, 12, 12)
    assert found.validation is None
    assert found.test.labels.bincount().tolist() == [2, 4]
    both = [*numbers(found.train), *numbers(found.test)]
    assert sorted(both) == [*range(10), *range(100, 120)]
    for part in (found.train, found.test):
        assert [number >= 100 for number in numbers(part)] == part.labels.bool().tolist()


@pytest.mark.parametrize("validation", ["val", "valid", "Validation"])
def test_split_folders(tmp_path: Path, load: Callable[..., Dataset], validation: str) -> None:
    for start, (split, count) in enumerate([("train", 4), (validation, 2), ("test", 3)]):
        write_class(tmp_path / "set" / split / "a", count, first=50 * start)
        write_class(tmp_path / "set" / split / "b", count, first=50 * start + 20)
    found = load(tmp_path / "set")
    assert numbers(found.train) == [0, 1, 2, 3, 20, 21, 22, 23]
    assert numbers(found.validation) == [50, 51, 70, 71]
    assert numbers(found.test) == [100, 101, 102, 120, 121, 122]
    assert found.test.labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_without_a_test_folder_a_share_of_train_is_held_out(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for split, first in (("train", 0), ("val", 100)):
        write_class(tmp_path / "set" / split / "a", 10, first)
        write_class(tmp_path / "set" / split / "b", 10, first + 10)
    found = load(tmp_path / "set", test_share=0.3)
    assert numbers(found.validation) == list(range(100, 120))
    assert sorted([*numbers(found.train), *numbers(found.test)]) == list(range(20))
    assert found.test.labels.bincount().tolist() == [3, 3]


def write_table(folder: Path, lines: list[str], name: str = "labels.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


@pytest.mark.parametrize("given", ["table", "folder"])
def test_a_table_with_splits_and_groups(
    tmp_path: Path, load: Callable[..., Dataset], given: str
) -> None:
    root = tmp_path / "set"
    write_class(root / "images", 6)
    lines = ["group,label,path,split,remark"]
    for number, split in enumerate(["train", "Training", "train", "val", "test", "testing"]):
        lines.append(f"p{number % 3 + 3 * (number > 2)},{number % 2},images/{number}.png,{split},x")
    table = write_table(root, lines, "labels.csv" if given == "folder" else "mine.csv")
    found = load(table if given == "table" else root, skip_bad=False)
    assert [numbers(p) for p in (found.train, found.validation, found.test)] == [
        [0, 1, 2],
        [3],
        [4, 5],
    ]
    assert found.train.labels.tolist() == [0, 1, 0]


def test_no_group_is_ever_divided(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    root = tmp_path / "set"
    write_class(root, 120)
    lines = [f"{n}.png,{'ab'[n % 2]},patient {n // 8}" for n in range(120)]
    write_table(root, ["path,label,group", *lines])
    for seed in range(5):
        found = load(root, seed=seed)
        sides = [{number // 8 for number in numbers(part)} for part in (found.train, found.test)]
        assert not sides[0] & sides[1]
        assert 16 <= len(found.test) <= 32
        for part in (found.train, found.test):
            assert part.groups is not None
            pairs = set(zip([n // 8 for n in numbers(part)], part.groups.tolist(), strict=True))
            assert len(pairs) == len({number // 8 for number in numbers(part)})


def test_copies_count_as_a_group_and_stay_on_one_side(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    write_class(tmp_path / "set" / "a", 20)
    write_class(tmp_path / "set" / "b", 20, first=100)
    for number in range(10):
        shutil.copy(tmp_path / "set/a" / f"{number}.png", tmp_path / "set/a" / f"copy{number}.png")
    for seed in range(5):
        found = load(tmp_path / "set", seed=seed)
        assert not set(numbers(found.train)) & set(numbers(found.test))
        assert sorted([*numbers(found.train), *numbers(found.test)]) == sorted(
            [*range(20), *range(10), *range(100, 120)]
        )
        assert found.train.groups is not None


def test_copies_across_given_splits_are_noted(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    for split, first in (("train", 0), ("test", 50)):
        write_class(tmp_path / "set" / split / "a", 3, first)
        write_class(tmp_path / "set" / split / "b", 3, first + 10)
    assert load(tmp_path / "set").note == ""
    shutil.copy(tmp_path / "set/train/a/1.png", tmp_path / "set/test/a/1.png")
    found = load(tmp_path / "set")
    assert found.note == (
        "leakage: train/a/1.png (train) = test/a/1.png (test); "
        "--drop-leaks leaves such pictures out"
    )
    assert len(found.train) == 6
    clean = load(tmp_path / "set", drop_leaks=True)
    assert clean.note == "pictures left out because they leak: 1"
    assert numbers(clean.train) == [0, 2, 10, 11, 12]
    assert numbers(clean.test) == [1, 50, 51, 52, 60, 61, 62]


def test_leaks_are_dropped_from_every_split_but_the_last_that_has_them(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    """0 is in all splits, 1 in training and validation, 2 in validation and test."""
    for split, grey in (("train", (0, 1, 3)), ("val", (0, 1, 2, 4)), ("test", (0, 2, 5))):
        for number in grey:
            write_picture(tmp_path / "set" / split / "a" / f"{number}.png", number)
        write_class(tmp_path / "set" / split / "b", 2, 50 + 10 * len(split))
    found = load(tmp_path / "set", drop_leaks=True)
    sides = (found.train, found.validation, found.test)
    assert [[n for n in numbers(side) if n < 50] for side in sides] == [[3], [1, 4], [0, 2, 5]]
    assert found.note == "pictures left out because they leak: 4"


def test_a_group_on_both_sides_is_a_leak_of_which_training_loses_its_part(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    root = tmp_path / "set"
    write_class(root, 8)
    groups = ["g1", "g2", "g\n3", "g4", "g1", "g5", "g\n3", "g6"]
    rows = [
        f'{n}.png,{n // 2 % 2},{"train" if n < 4 else "test"},"{group}"'
        for n, group in enumerate(groups)
    ]
    write_table(root, ["path,label,split,group", *rows])
    found = load(root)
    assert numbers(found.train) == [0, 1, 2, 3]
    assert found.note == (
        "leakage: 0.png (train) and 4.png (test) are both of group 'g1' and 1 more; "
        "--drop-leaks leaves such pictures out"
    )
    report = scan(root, cache=tmp_path / "cache").report()
    assert "2.png (train) and 6.png (test) are both of group 'g\\n3'" in report
    clean = load(root, drop_leaks=True)
    assert numbers(clean.train) == [1, 3]
    assert numbers(clean.test) == [4, 5, 6, 7]


@pytest.mark.parametrize(("kind", "options"), [("bmp", {}), ("tif", {"compression": "tiff_lzw"})])
def test_the_same_pixels_in_another_file_are_a_leak(
    tmp_path: Path, load: Callable[..., Dataset], kind: str, options: dict[str, str]
) -> None:
    """Three pictures become one grey square of 2 x 2 pixels; two of them are one picture."""
    for split, first in (("train", 0), ("test", 50)):
        write_class(tmp_path / "set" / split / "a", 3, first)
        write_class(tmp_path / "set" / split / "b", 3, first + 10)
    with Image.open(tmp_path / "set/train/a/1.png") as image:
        image.save(tmp_path / "set" / "test" / "a" / f"x.{kind}", **options)
    write_picture(tmp_path / "set/test/a/larger.png", 1, (24, 24))
    copy = f"train/a/1.png (train) = test/a/x.{kind} (test)"
    for side in (2, 12):  # what was found out at one side holds for the other
        found = load(tmp_path / "set", side=side)
        assert found.note == f"leakage: {copy}; --drop-leaks leaves such pictures out"
    assert len(list((tmp_path / "cache").glob("images-*"))) == 2
    assert numbers(load(tmp_path / "set", drop_leaks=True).train) == [0, 2, 10, 11, 12]


def test_the_same_pixels_in_other_files_stay_on_one_side_where_leaks_are_dropped(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for first, name in enumerate("ab"):
        write_class(tmp_path / "set" / name, 10, 20 * first)
        for path in list((tmp_path / "set" / name).iterdir()):
            with Image.open(path) as image:
                image.save(path.with_suffix(".bmp"))
    found = load(tmp_path / "set")
    assert set(numbers(found.train)) & set(numbers(found.test))
    assert found.note.startswith("leakage: a/")
    clean = load(tmp_path / "set", drop_leaks=True)
    assert not set(numbers(clean.train)) & set(numbers(clean.test))
    assert len(clean.train) + len(clean.test) == 40
    assert clean.note == ""


def test_a_picture_in_two_classes_stops_with_both_names_or_is_left_out_of_both(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for first, name in enumerate(("a", "b")):
        write_class(tmp_path / "set" / name, 6, 20 * first)
    shutil.copy(tmp_path / "set/a/1.png", tmp_path / "set/b/x.png")
    with Image.open(tmp_path / "set/b/22.png") as image:
        image.save(tmp_path / "set/a/[red]y.bmp")
    with pytest.raises(DataError) as caught:
        load(tmp_path / "set")
    assert str(caught.value) == (
        f"{tmp_path / 'set'}: 4 bad file(s): "
        "a/1.png: is of class 'a' and, as b/x.png, of class 'b': a picture can have one class; "
        "a/[red]y.bmp: is of class 'a' and, as b/22.png, of class 'b': a picture can have one "
        "class; b/22.png: is of class 'b' and, as a/[red]y.bmp, of class 'a': a picture can have "
        "one class; b/x.png: is of class 'b' and, as a/1.png, of class 'a': a picture can have one "
        f"class. `invint data check folder:{tmp_path / 'set'}` lists them; correct them, or leave "
        "them out with --skip-bad"
    )
    found = load(tmp_path / "set", skip_bad=True)
    assert sorted(numbers(found.train) + numbers(found.test)) == [
        *(0, 2, 3, 4, 5),
        *(20, 21, 23, 24, 25),
    ]


@pytest.mark.parametrize(("share", "left"), [(0.999, 0), (0.96, 1)])
def test_a_test_share_that_leaves_too_little_is_named(
    tmp_path: Path, load: Callable[..., Dataset], share: float, left: int
) -> None:
    write_class(tmp_path / "set" / "a", 12)
    write_class(tmp_path / "set" / "b", 12, first=50)
    with pytest.raises(DataError) as caught:
        load(tmp_path / "set", test_share=share)
    assert str(caught.value) == (
        f"{tmp_path / 'set'}: a test share of {share} leaves {left} of 24 pictures to train on, "
        "too few for 2 classes; ask for a smaller --test-share"
    )
    assert len(load(tmp_path / "set", test_share=0.9).train) == 2


def test_what_the_dropping_of_leaks_takes_from_a_class_is_told(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for split in ("train", "test"):
        write_class(tmp_path / "set" / split / "a", 3, first=9 if split == "test" else 0)
        write_class(tmp_path / "set" / split / "b", 2, first=20)
    line = "class 'b' has no picture to train on; --drop-leaks left out 2 pictures; add pictures"
    with pytest.raises(DataError, match=line):
        load(tmp_path / "set", drop_leaks=True)


def test_small_classes_are_left_out_and_named(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    for first, (name, count) in enumerate((("a", 9), ("b", 2), ("c", 7), ("d", 0))):
        (tmp_path / "set" / name).mkdir(parents=True)
        write_class(tmp_path / "set" / name, count, 20 * first)
    found = load(tmp_path / "set", min_per_class=3)
    assert found.class_names == ("a", "c")
    for part in (found.train, found.test):
        assert [number // 40 for number in numbers(part)] == part.labels.tolist()
    assert sorted(numbers(found.train) + numbers(found.test)) == [*range(9), *range(40, 47)]
    assert found.note == (
        "class 'b' is left out: 2 pictures, fewer than 3; "
        "class 'd' is left out: 0 pictures, fewer than 3"
    )
    with pytest.raises(DataError) as caught:
        load(tmp_path / "set", min_per_class=8)
    assert str(caught.value) == (
        f"{tmp_path / 'set'}: expected at least two classes, found 1 large enough for "
        "--min-per-class (class 'b' is left out: 2 pictures, fewer than 8; class 'c' is left out: "
        "7 pictures, fewer than 8; class 'd' is left out: 0 pictures, fewer than 8); lower it, or "
        "add pictures"
    )
    with pytest.raises(DataError, match="found 0 large enough"):
        load(tmp_path / "set", min_per_class=10)


def test_a_class_is_left_out_by_name_with_its_bad_files(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for first, name in enumerate(("a", "b", "c")):
        write_class(tmp_path / "set" / name, 5, 20 * first)
    (tmp_path / "set" / "b" / "empty.png").touch()
    (tmp_path / "set" / "b" / "moving.gif").touch()
    found = load(tmp_path / "set", skip_class=["b"])
    assert found.class_names == ("a", "c")
    assert sorted(numbers(found.train) + numbers(found.test)) == [*range(5), *range(40, 45)]
    assert found.note == "class 'b' is left out, as asked for"
    with pytest.raises(DataError, match=r"2 bad file\(s\): b/empty.png: is empty"):
        load(tmp_path / "set")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "set", skip_class=["a", "bb"])
    assert str(caught.value) == (
        f"{tmp_path / 'set'}: skip_class: no class 'bb'; did you mean 'b'? there are 'a', 'b', 'c'"
    )
    with pytest.raises(DataError, match="expected at least two classes, found only 'c'"):
        load(tmp_path / "set", skip_class=["a", "b"])


def test_bad_files_stop_with_the_first_of_them_or_are_left_out(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    write_class(tmp_path / "set" / "a", 10)
    write_class(tmp_path / "set" / "b", 10, first=100)
    for number in range(25):
        (tmp_path / "set" / "a" / f"bad{number:02}.png").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        load(tmp_path / "set")
    named = "; ".join(f"a/bad{number:02}.png: is empty" for number in range(5))
    assert str(caught.value) == (
        f"{tmp_path / 'set'}: 25 bad file(s): {named}; and 20 more. `invint data check "
        f"folder:{tmp_path / 'set'}` lists them; correct them, or leave them out with --skip-bad"
    )
    found = load(tmp_path / "set", skip_bad=True)
    assert sorted([*numbers(found.train), *numbers(found.test)]) == [*range(10), *range(100, 110)]
    for part in (found.train, found.test):
        assert [number >= 100 for number in numbers(part)] == part.labels.bool().tolist()


def test_bad_files_do_not_move_labels_or_groups(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    root = tmp_path / "set"
    write_class(root, 60)
    write_table(root, ["path,label,group", *(f"{n}.png,{n % 3},g{n // 5}" for n in range(60))])
    for number in (3, 17, 40):
        (root / f"{number}.png").write_bytes(b"")
    found = load(root, skip_bad=True)
    for part in (found.train, found.test):
        assert part.labels.tolist() == [number % 3 for number in numbers(part)]


def test_everything_is_one_size_and_colour_if_anything_is(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    for number in range(4):
        write_picture(tmp_path / "set/a" / f"{number}.png", 50 + number, (30, 30))
        write_picture(tmp_path / "set/b" / f"{number}.png", (10, 20, 30 + number), (60, 40))
    write_picture(tmp_path / "set/b/wide.png", (1, 2, 3), (20, 10))
    found = load(tmp_path / "set")
    assert found.image_shape == (3, 32, 32)
    assert load(tmp_path / "set", side=48).image_shape == (3, 48, 48)


def test_sixteen_bits_are_kept(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    for name in "ab":
        for number in range(4):
            path = tmp_path / "set" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            deep = np.full((8, 8), 1000 * number + ord(name), dtype=np.uint16)
            Image.fromarray(deep).save(path)
    write_picture(tmp_path / "set/a/shallow.png", 2, (8, 8))
    found = load(tmp_path / "set")
    assert found.train.images.dtype == torch.uint16
    values = {
        int(part.images[i, 0, 0, 0]) for part in (found.train, found.test) for i in range(len(part))
    }
    assert values == {1000 * n + ord(c) for n in range(4) for c in "ab"} | {2 * 257}


def test_a_class_with_one_picture_is_named(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    write_class(tmp_path / "set" / "many", 10)
    write_class(tmp_path / "set" / "one", 1, first=100)
    line = (
        r"class 'one' has too few pictures or groups to hold any out \(1\); add pictures, or leave"
    )
    with pytest.raises(DataError, match=line):
        load(tmp_path / "set")


def test_a_class_without_pictures_is_named(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    write_class(tmp_path / "set" / "many", 10)
    (tmp_path / "set" / "none").mkdir()
    with pytest.raises(
        DataError, match="class 'none' has no picture to train on; add pictures, or"
    ):
        load(tmp_path / "set")


def test_a_class_missing_from_the_given_test_split_is_only_noted(
    tmp_path: Path, load: Callable[..., Dataset]
) -> None:
    write_class(tmp_path / "set/train/a", 3)
    write_class(tmp_path / "set/train/b", 3, first=10)
    write_class(tmp_path / "set/test/a", 3, first=20)
    assert load(tmp_path / "set").note == "class 'b' has no picture to test on"


def test_groups_too_few_to_divide_are_named(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    root = tmp_path / "set"
    write_class(root, 12)
    write_table(root, ["path,label,group", *(f"{n}.png,{n % 2},only" for n in range(12))])
    with pytest.raises(DataError, match="class '0' has too few pictures or groups to hold any out"):
        load(root)


def test_links_within_the_folder_are_pictures(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    write_class(tmp_path / "set" / "a", 5)
    write_class(tmp_path / "set" / ".store", 5, first=100)
    (tmp_path / "set" / "b").mkdir()
    for number in range(100, 105):
        (tmp_path / "set" / "b" / f"{number}.png").symlink_to(f"../.store/{number}.png")
    found = load(tmp_path / "set")
    assert sorted([*numbers(found.train), *numbers(found.test)]) == [*range(5), *range(100, 105)]


def test_hidden_files_are_passed_over(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    write_class(tmp_path / "set" / "a", 5)
    write_class(tmp_path / "set" / "b", 5, first=100)
    for name in (".DS_Store", "a/._0.png", "a/Thumbs.db", "__MACOSX/x.png", ".git/y.png"):
        (tmp_path / "set" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "set" / name).write_bytes(b"x")
    assert load(tmp_path / "set").class_names == ("a", "b")


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../secret.png", "leaves the folder; paths must be relative to the CSV file, without"),
        ("a/../../secret.png", "leaves the folder; paths must be relative"),
        ("/etc/passwd", "leaves the folder; paths must be relative"),
        ("out/secret.png", "leaves the folder through a link; put the files themselves there"),
        ("out.png", "is a link out of the folder; put the file itself there"),
        ("none.png", r"is listed but not there \(paths are relative to the CSV file\)"),
        ("a", "is a folder or a link to one; links to folders are not followed"),
        ("", "is no path; correct the CSV file"),
    ],
)
def test_no_path_leaves_the_folder(
    tmp_path: Path, load: Callable[..., Dataset], path: str, problem: str
) -> None:
    root = tmp_path / "set"
    write_class(root / "a", 4)
    write_picture(tmp_path / "outside" / "secret.png", 77)
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "out.png").symlink_to(tmp_path / "outside" / "secret.png")
    good = [f"a/{number}.png,{number % 2}" for number in range(4)]
    write_table(root, ["path,label", *good, f"{path},1"])
    with pytest.raises(DataError, match=f"1 bad file.*: {path}: {problem.partition(';')[0]}"):
        load(root)
    found = load(root, skip_bad=True)
    assert sorted([*numbers(found.train), *numbers(found.test)]) == [0, 1, 2, 3]


def test_wrong_options_are_named(tmp_path: Path, load: Callable[..., Dataset]) -> None:
    with pytest.raises(ConfigError, match=r"folder: expected a test share .* got 1.5"):
        load(tmp_path, test_share=1.5)
    with pytest.raises(ConfigError, match="folder: expected min_per_class of 0 or more, got -1"):
        load(tmp_path, min_per_class=-1)
    with pytest.raises(
        ConfigError, match="pictures: expected an even side from 2 to 8,192, got 33"
    ):
        load(tmp_path, side=33)
