"""Official files from the network: resumed where they broke off, verified, unpacked.

Nothing that comes is trusted: sizes and checksums are compared, and of an archive only the members
that are asked for are read, none of them a link, into files whose names are ours and not its own.
"""

import errno
import gzip
import hashlib
import os
import socket
import stat
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO

from invint.errors import DataError
from invint.files import flush_folder, locked

LIMIT = 4 << 30  # bytes an archive may unpack to
BLOCK = 1 << 20  # bytes copied at once
RETRIES = 3  # how often a cut connection is resumed without any progress
PAUSE = 1.0  # seconds before the first new attempt; doubled each time
FULL = (errno.ENOSPC, errno.EDQUOT)
DAMAGED = (  # RuntimeError: what `zipfile` says of encrypted members and unknown compression
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile),
    *(zlib.error, EOFError, RuntimeError),
)
Watcher = Callable[[str, int, int | None], None]  # hears a file's name, bytes here, bytes in all


@dataclass(frozen=True)
class File:
    """An official file.

    Attributes:
        name: Its official name.
        size: In bytes, where known.
        md5: Where published.
        repacked: Sizes and checksums of the same content, compressed anew by others.
        sha256: Where published; for files nobody may forge.
    """

    name: str
    size: int | None = None
    md5: str | None = None
    repacked: dict[int, str] = field(default_factory=dict)
    sha256: str | None = None


@dataclass(frozen=True)
class Download:
    """A file to fetch, and what is in it if it is an archive.

    Attributes:
        file: Its official name, size and checksum.
        urls: Where it is, the official place first; empty if nobody offers it.
        members: For an archive: the files a loader reads. Nothing else is unpacked.
        inside: For an archive: the folder its members are in.
    """

    file: File
    urls: tuple[str, ...] = ()
    members: tuple[File, ...] = ()
    inside: str = ""

    @property
    def results(self) -> tuple[File, ...]:
        """The files a loader reads."""
        return self.members or (self.file,)

    def find(self, folder: Path, name: str) -> Path | None:
        """Return where a file lies, in the folder or in the archive's own folder inside it."""
        places = (folder / name, folder / self.inside / name)
        return next((place for place in places if place.is_file()), None)

    def is_here(self, folder: Path) -> bool:
        """Tell whether all results are in the folder."""
        return all(self.find(folder, file.name) for file in self.results)


def fetch_files(
    downloads: tuple[Download, ...], folder: Path, *, owner: str, watch: Watcher | None = None
) -> list[str]:
    """Bring what is missing into a folder; return the names of the files that came.

    A cut connection is resumed where it broke, in this call or in the next. A second process that
    fetches into the same folder waits, then uses what the first one brought.

    Args:
        downloads: What to fetch.
        folder: Where to; made if it is not there.
        owner: Name of the data set, for messages.
        watch: Receives the name of a file, the bytes here so far and those in all.
    """
    came: list[str] = []
    if all(download.is_here(folder) for download in downloads):
        return came
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock"):
            for download in downloads:
                if not download.is_here(folder):
                    _fetch_one(download, folder, owner, watch or (lambda *_: None))
                    came += [file.name for file in download.results]
    except OSError as error:
        if error.errno in FULL:
            raise DataError(
                f"{owner}: no space left in {folder}; what came is kept: "
                f"make room and run `invint data fetch {owner}` again"
            ) from error
        problem = error.strerror or error
        raise DataError(f"{owner}: cannot write to {folder}: {problem}") from error
    return came


def _fetch_one(download: Download, folder: Path, owner: str, watch: Watcher) -> None:
    target = folder / download.file.name
    was_here = target.is_file()
    if was_here:  # somebody put it here, so it is not ours to remove
        try:
            verify(target, download.file)
        except DataError as error:
            raise DataError(f"{error}; remove it and fetch again") from None
    else:
        _from_anywhere(download, target, owner, watch)
    if download.members:
        unpack(target, download.members, folder, inside=download.inside)
        if not was_here:
            target.unlink()


def _from_anywhere(download: Download, target: Path, owner: str, watch: Watcher) -> None:
    problems = []
    for url in download.urls:
        try:
            return _resume(url, target, download.file, watch)
        except _UnavailableError as error:
            problems.append(f"{url}: {error}")
    reason = "; ".join(problems) or "no place offers it"
    then = f" and run `invint data fetch {owner}` again" if download.members else ""
    raise DataError(
        f"{owner}: cannot fetch {target.name} ({reason}); put it in {target.parent}{then}"
    )


class _UnavailableError(Exception):
    """This address does not give the file."""


def _resume(url: str, target: Path, file: File, watch: Watcher) -> None:
    """Append to the part until it is whole, verify it, and give it its name."""
    part = target.with_name(f"{target.name}.part")
    failures = 0
    while True:
        before = _size(part)
        try:
            _append(url, part, file, watch)
            break
        except (urllib.error.URLError, HTTPException, ConnectionError, TimeoutError) as error:
            moved = _size(part) > before
            failures = 0 if moved else failures + 1
            if failures > RETRIES or _is_final(error):
                raise _UnavailableError(_reason(error)) from error
            time.sleep(PAUSE * 2**failures)
    try:
        verify(part, file)
    except DataError as error:
        part.unlink()
        raise DataError(f"{error}; {url} gave another file, which was removed") from None
    part.replace(target)
    flush_folder(target.parent)


def _is_final(error: Exception) -> bool:
    """Tell whether asking again is pointless."""
    if isinstance(error, urllib.error.HTTPError):
        return 400 <= error.code < 500
    return isinstance(getattr(error, "reason", None), (socket.gaierror, ConnectionRefusedError))


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    return str(getattr(error, "reason", error))


def _append(url: str, part: Path, file: File, watch: Watcher) -> None:
    """Ask for the bytes that the part lacks, and add them to it."""
    have = _size(part)
    if have and have == file.size:
        return
    headers = {"User-Agent": "invint"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:
            raise
        if error.headers.get("Content-Range", "") != f"bytes */{have}":
            part.unlink()  # longer than the file: not a part of it
            raise ConnectionError("the part on disk is not a part of this file") from error
        return
    with response:
        _copy(response, part, file, watch)


def _copy(response: HTTPResponse, part: Path, file: File, watch: Watcher) -> None:
    resumed = response.status == 206
    have = _size(part) if resumed else 0
    if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        raise _UnavailableError("sends other bytes than it was asked for")
    length = response.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else file.size
    with part.open("ab" if resumed else "wb") as stream:
        while block := _read(response):
            stream.write(block)
            have += len(block)
            watch(file.name, have, total)
            if file.size is not None and have > file.size:
                break  # the check of the size says so
        stream.flush()
        os.fsync(stream.fileno())
    if total is not None and have < total:
        raise ConnectionError(f"cut off after {have:,} of {total:,} bytes")


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(BLOCK)
    except OSError as error:  # so that it is not taken for one of the disk
        raise ConnectionError(str(error)) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def verify(path: Path, file: File) -> None:
    """Raise `DataError` unless the file has its published size and checksum."""
    size = path.stat().st_size
    if file.size is not None and size not in (file.size, *file.repacked):
        raise DataError(f"{path}: expected {file.size:,} bytes, got {size:,}")
    for kind, expected in (("md5", file.repacked.get(size, file.md5)), ("sha256", file.sha256)):
        found = expected and _digest(path, kind)
        if found != expected:
            raise DataError(f"{path}: expected the checksum {expected}, got {found}")


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(
            stream, lambda: hashlib.new(kind, usedforsecurity=kind != "md5")
        ).hexdigest()


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
    wanted = {str(PurePosixPath(inside, file.name)): file.name for file in members}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking.") as name:
        aside = Path(name)
        try:
            for path, open_member in _members(archive):
                if path in wanted:
                    target = aside / wanted.pop(path)
                    limit -= _copy_member(open_member, target, limit, archive)
                if not wanted:
                    break
        except DAMAGED as error:
            raise DataError(f"{archive}: damaged, or not an archive ({error})") from error
        if wanted:
            raise DataError(f"{archive}: has no {', '.join(wanted)}")
        for file in members:
            (aside / file.name).replace(folder / file.name)


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes] | None]]]:
    """Yield the path of each member and a function that opens it: None if it is no regular file."""
    opening: Callable[[], IO[bytes] | None]
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                linked = stat.S_ISLNK(entry.external_attr >> 16)
                opening = (lambda: None) if linked else partial(packed.open, entry)
                yield str(PurePosixPath(entry.filename)), opening
    else:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                opening = partial(tar.extractfile, member) if member.isreg() else (lambda: None)
                yield str(PurePosixPath(member.name)), opening


def _copy_member(
    open_member: Callable[[], IO[bytes] | None], target: Path, limit: int, archive: Path
) -> int:
    """Copy a member, but no more than `limit` bytes; return how many."""
    source, member = open_member(), f"{archive}: member {target.name!r}"
    if source is None:
        raise DataError(f"{member} is a link or a device; nothing was unpacked")
    written = 0
    with source, target.open("wb") as file:
        while block := source.read(BLOCK):
            written += len(block)
            if written > limit:
                raise DataError(f"{member} has more than {limit:,} bytes; nothing was unpacked")
            file.write(block)
    return written
