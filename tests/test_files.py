import errno
import os
from pathlib import Path

import pytest

from invint.errors import ConfigError
from invint.files import check_writable, write_atomically


def test_a_new_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file.txt"
    for text in ("first", "second"):
        write_atomically(path, text)
        assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_and_what_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("target.txt")
    write_atomically(tmp_path / "link.txt", "text")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "target.txt").read_text() == "text"


def test_neither_a_folder_nor_a_device_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"pipe: it is a device, which no file takes the place"):
        write_atomically(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(ConfigError, match=r"it is a folder, which no file takes the place of"):
        check_writable(tmp_path)


def test_a_full_disk_leaves_the_old_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file\.txt'") as caught:
        write_atomically(path, "new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
