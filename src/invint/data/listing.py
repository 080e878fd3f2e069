"""The files of a folder as they are listed: pictures, bad ones and others, none opened yet."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from invint.data.file_names import shown

PARTS = ("train", "validation", "test")
SPLITS = {  # names of folders and in tables, and the parts they mean
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}


class Entry(NamedTuple):
    """A picture file, not opened yet.

    Attributes:
        path: Relative to the folder, with forward slashes.
        label: Name of its class.
        split: "train", "validation" or "test"; none if the folder does not say.
        group: Patient, slide or part it is of; none if not known.
        size: In bytes.
        modified: When it was last written, in nanoseconds.
    """

    path: str
    label: str
    split: str | None
    group: str | None
    size: int
    modified: int


@dataclass(frozen=True)
class Bad:
    """A file that cannot be used, and why."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.problem}"


@dataclass
class Layout:
    """All files of a folder.

    Attributes:
        root: The folder, without links in its own path.
        kind: How the folder says what is what.
        entries: Its pictures, sorted by path.
        bad: What is named or listed as a picture but cannot be one.
        others: Files that are no pictures and are passed over.
        classes: Names of the classes, in order.
    """

    root: Path
    kind: str
    entries: list[Entry] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)

    def add(
        self,
        path: str,
        found: os.stat_result | str,
        label: str,
        split: str | None,
        group: str | None = None,
    ) -> None:
        """Add a file: as a picture, or as a bad one if what was found of it is a problem."""
        if isinstance(found, str):
            self.bad.append(Bad(path, found))
        else:
            size, modified = found.st_size, found.st_mtime_ns
            self.entries.append(Entry(path, label, split, group, size, modified))


def file_inside(root: Path, path: str) -> os.stat_result | str:
    """Return size and time of a regular file inside the folder, or what is wrong with it."""
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            if not Path(os.path.realpath(path)).is_relative_to(root):
                return "is a link out of the folder; put the file itself there"
            found = Path(path).stat()
    except OSError as error:
        return f"{(error.strerror or 'cannot be found').lower()}; check that it is there"
    if stat.S_ISDIR(found.st_mode):
        return "is a folder or a link to one; links to folders are not followed"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file; remove it"
    return found
