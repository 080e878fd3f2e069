"""Files that are either whole or not there, and locks on them between processes."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from invint.errors import ConfigError


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a kill or a full disk leaves the old one, never half of the new one."""
    data = content.encode() if isinstance(content, str) else content
    asked, path = path, check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(asked)) from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock between processes and hold it; it falls with its process, however that ends.

    Args:
        path: A file for the lock alone, which stays behind.
    """
    with FileLock(path):
        yield


def check_writable(path: Path) -> Path:
    """Return where a file may be put, behind links; never in the place of a folder or a device."""
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        kind = "a folder" if place.is_dir() else "a device"
        raise ConfigError(f"{path}: it is {kind}, which no file takes the place of; name a file")
    return place


def is_no_file(path: Path) -> bool:
    """Whether something is there and no file: a pipe would be waited for, a device never ends."""
    return path.exists() and not path.is_file()


def flush_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system allows it."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
