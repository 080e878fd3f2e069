import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from invint.errors import ConfigError
from invint.files import check_writable, is_no_file, locked, write_atomically


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


HOLDER = """
import sys, time
from pathlib import Path
from invint.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_lock_is_held_by_one_process_and_falls_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Timeout):
            FileLock(tmp_path / "lock").acquire(blocking=False)
        holder.send_signal(signal.SIGKILL)
        with locked(tmp_path / "lock"):
            holder.wait()


def test_a_lock_can_be_taken_again_and_leaves_its_file(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "lock"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_what_is_raised_under_a_lock_comes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "lock"):
        raise KeyError
    with locked(tmp_path / "lock"):
        pass


@pytest.mark.parametrize(
    ("make", "expected"),
    [(os.mkfifo, True), (Path.mkdir, True), (Path.touch, False), (lambda _: None, False)],
)
def test_what_is_there_and_no_file_is_told(
    tmp_path: Path, make: Callable[[Path], object], expected: bool
) -> None:
    make(tmp_path / "thing")
    (tmp_path / "link").symlink_to("thing")
    assert is_no_file(tmp_path / "thing") is expected
    assert is_no_file(tmp_path / "link") is expected
