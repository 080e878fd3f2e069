"""Unpacking archives from outside: known members only, no links, nothing outside the folder."""

import gzip
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

from invint.errors import DataError

LIMIT = 4 << 30
BLOCK = 1 << 20
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
)


@dataclass(frozen=True)
class File:
    """An official file.

    Attributes:
        name: Its official name.
        size: In bytes, where known.
        md5: Where published.
    """

    name: str
    size: int | None = None
    md5: str | None = None


def unpack(
    archive: Path, members: tuple[File, ...], folder: Path, *, inside: str = "", limit: int = LIMIT
) -> None:
    """Unpack some members of a `.zip` or `.tar.gz` into a folder: all of them or none.

    Args:
        archive: Its kind is told by its name.
        members: What to unpack, by bare name.
        folder: Where to; members are written there without their folders.
        inside: The folder of the archive the members are in.
        limit: Most bytes that may be written.
    """
    wanted = {str(PurePosixPath(inside, file.name)): file for file in members}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking.") as name:
        aside = Path(name)
        try:
            for path, open_member in _members(archive):
                if path in wanted:
                    file = wanted.pop(path)
                    limit -= _copy(open_member, aside / file.name, limit, archive)
                if not wanted:
                    break
        except DAMAGED as error:
            raise DataError(f"{archive}: damaged, or not an archive ({error})") from error
        if wanted:
            raise DataError(f"{archive}: has no {', '.join(wanted)}")
        for file in members:
            (aside / file.name).replace(folder / file.name)


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes] | None]]]:
    """Yield the path of every regular file and a function that opens it; refuse the rest."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if entry.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG) or entry.flag_bits & 1:
                    raise _refused(archive, entry.filename, "is a link, a device or encrypted")
                yield _safe(archive, entry.filename), partial(packed.open, entry)
    else:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isdir():
                    continue
                if not member.isreg():
                    raise _refused(archive, member.name, "is a link or a device")
                yield _safe(archive, member.name), partial(tar.extractfile, member)


def _safe(archive: Path, name: str) -> str:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise _refused(archive, name, "leads out of the folder")
    return str(path)


def _refused(archive: Path, name: str, reason: str) -> DataError:
    return DataError(f"{archive}: member {name!r} {reason}; nothing was unpacked")


def _copy(
    open_member: Callable[[], IO[bytes] | None], target: Path, limit: int, archive: Path
) -> int:
    """Copy a member, but no more than `limit` bytes; return how many."""
    written = 0
    source = open_member()
    if source is None:
        raise tarfile.TarError("a member without content")
    with source, target.open("wb") as file:
        while block := source.read(BLOCK):
            written += len(block)
            if written > limit:
                raise _refused(archive, target.name, f"has more than {limit:,} bytes")
            file.write(block)
    return written
