"""The classes of a folder, and folders from which nobody can tell them."""

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
