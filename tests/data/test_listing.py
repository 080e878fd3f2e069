"""The classes of a folder, and folders and CSV files from which nobody can tell them."""

from pathlib import Path

import pytest

from invint.data.listing import read_layout
from invint.errors import DataError


def test_numbers_as_class_names_are_sorted_as_numbers(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        (tmp_path / str(number)).mkdir()
    assert read_layout(tmp_path).classes == ["0", "2", "10"]


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"none: no such folder; give a folder of pictures or a CSV"
    ):
        read_layout(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        DataError, match="empty: expected at least two classes, found none; put the"
    ):
        read_layout(tmp_path / "empty")
    for name in ("train", "val", "valid"):
        (tmp_path / "twice" / name).mkdir(parents=True)
    line = r"twice: expected train, validation and test folders alone, got two of one kind \(train,"
    with pytest.raises(DataError, match=line):
        read_layout(tmp_path / "twice")
    for name in ("train", "cats"):
        (tmp_path / "mixed" / name).mkdir(parents=True)
    with pytest.raises(DataError, match=r"alone, got also 'cats' \(cats, train\); move the others"):
        read_layout(tmp_path / "mixed")
    (tmp_path / "tables").mkdir()
    for name in ("labels.csv", "index.csv"):
        (tmp_path / "tables" / name).touch()
    with pytest.raises(DataError, match=r"tables: has both labels.csv and index.csv; remove one"):
        read_layout(tmp_path / "tables")


def test_a_sign_in_a_label_is_no_list_of_labels(tmp_path: Path) -> None:
    for name in "012":
        (tmp_path / f"{name}.png").touch()
    (tmp_path / "labels.csv").write_text("path,label\n0.png,a\n1.png,b\n2.png,a/c\n")
    assert read_layout(tmp_path).classes == ["a", "a/c", "b"]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["file,label", "a.png,1"], "expected the columns path, label and, if wanted, split and"),
        ([""], "in the first line, got nothing"),
        (["path,label", "0.png,"], "line 2: expected the name of a class, got ''"),
        (["path,label", "0.png,a", "0.png,a"], "line 3: 0.png is listed twice; remove one"),
        (
            ["path,label", "0.png,a", ".//0.png,a"],
            r"line 3: \.//0\.png is listed twice; remove one",
        ),
        (
            ["path,label", "0.png,a", ".//0.png,b"],
            r"line 3: \.//0\.png has the labels 'a' and 'b'; a picture can have one class: remove",
        ),
        (
            ["path,label", "0.png,a", "1.png,b", "2.png,b; a"],
            r"labels.csv: 2.png has the labels 'b' and 'a' \('b; a'\); a picture can have",
        ),
        (["path,label", "0.png,a, large"], "line 2: has more cells than the first line; put texts"),
        (
            ["path,label,split", "0.png,a,dev"],
            "line 2: expected train, validation or test, got 'dev'",
        ),
        (["path,label,split", "0.png,a"], "line 2: expected train, validation or test, got ''"),
        (["path,label,group", "0.png,a,"], "line 2: the group is missing; give every picture one"),
        (["path,label", '0.png,"a'], "is no CSV file in UTF-8"),
        (["path,label", "0.png,\xff"], "is no CSV file in UTF-8"),
        (["path,label", "0.png,a"], "expected at least two classes, found only 'a'"),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, lines: list[str], line: str) -> None:
    for name in ("0.png", "1.png"):
        (tmp_path / name).touch()
    (tmp_path / "labels.csv").write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(DataError, match=line):
        read_layout(tmp_path)
