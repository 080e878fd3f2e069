"""Which pictures a folder holds, and the class, split and group of each; none is opened."""

import csv
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from invint.data.pictures import FOREIGN, SUFFIXES, shown, suffix
from invint.errors import ConfigError, DataError, did_you_mean

SPLITS = ("train", "validation", "test")
SPLIT_NAMES = {  # of folders and in tables, and the splits they mean
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}
TABLES = ("labels.csv", "index.csv")
SHOWN = 20  # classes named in an error
MAX_TABLE = 2**28  # bytes of a CSV file
LEFT_BEHIND = ("__MACOSX", "Thumbs.db", "desktop.ini")  # by desktops; passed over like hidden files


class ListedFile(NamedTuple):
    """A picture file as it is listed, not opened yet.

    Attributes:
        path: Relative to the folder, with forward slashes.
        label: Name of its class.
        split: "train", "validation" or "test"; None if the folder does not say.
        group: Patient, slide or part it is of; None if not known.
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
class BadFile:
    """A file that cannot be used, why, and the class it would be of if that is known."""

    path: str
    problem: str
    label: str = ""

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.problem}"


@dataclass
class Layout:
    """All files of a folder.

    Attributes:
        path: The folder, or the CSV file that lists its pictures, as it was given.
        root: The folder, without links in its own path.
        kind: How the folder says what is what.
        files: Its pictures, sorted by path.
        bad: What is named or listed as a picture but cannot be one.
        others: Files that are no pictures and are passed over.
        classes: Names of the classes, in order.
        skipped: Names of those that were left out on request.
    """

    path: Path
    root: Path
    kind: str
    files: list[ListedFile] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    skipped: tuple[str, ...] = ()

    def without(self, names: Sequence[str]) -> "Layout":
        """Return the same without some of the classes: neither their pictures nor bad files."""
        for name in names:
            if name not in self.classes:
                known = ", ".join(map(repr, self.classes[:SHOWN]))
                more = f" and {len(self.classes) - SHOWN} more" * (len(self.classes) > SHOWN)
                raise ConfigError(
                    f"{shown(str(self.path))}: skip_class: no class {shown(name)!r}; "
                    f"{did_you_mean(name, self.classes)}there are {known}{more}"
                )
        left = replace(
            self,
            files=[file for file in self.files if file.label not in names],
            bad=[file for file in self.bad if file.label not in names],
            classes=[name for name in self.classes if name not in names],
            skipped=tuple(name for name in self.classes if name in names),
        )
        left.check_classes()
        return left

    def check_classes(self) -> None:
        """Raise `DataError` unless there are two classes or more."""
        if len(self.classes) < 2:
            found = f"only {shown(self.classes[0])!r}" if self.classes else "none"
            raise DataError(
                f"{shown(str(self.path))}: expected at least two classes, found {found}; put the "
                "pictures of each class into a folder of its own, or list them in labels.csv"
            )

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
            self.bad.append(BadFile(path, found, label))
        else:
            size, modified = found.st_size, found.st_mtime_ns
            self.files.append(ListedFile(path, label, split, group, size, modified))


def read_layout(path: Path) -> Layout:
    """Find the pictures of a folder and what they show.

    Three layouts are known: a folder for each class; train, validation and test folders with a
    folder for each class in them; a CSV file with the columns path and label and, if wanted, split
    and group, given itself or lying in the folder as `labels.csv` or `index.csv`.
    """
    table = _table(path)
    if table is None:
        return _finished(_from_folders(path))
    return _finished(_from_table(path, table))


def _table(path: Path) -> Path | None:
    """Return the CSV file that lists the pictures, if that is how they are given."""
    if path.is_file():
        return path.absolute().parent.resolve() / path.name
    if not path.is_dir():
        raise DataError(
            f"{shown(str(path))}: no such folder; give a folder of pictures or a CSV file"
        )
    root = path.resolve()
    tables = [root / name for name in TABLES if (root / name).is_file()]
    if len(tables) > 1:
        raise DataError(f"{shown(str(path))}: has both {' and '.join(TABLES)}; remove one")
    return tables[0] if tables else None


def _finished(layout: Layout) -> Layout:
    """Sort what was listed; refuse what is no classification."""
    layout.files.sort(key=lambda file: file.path)
    layout.bad.sort(key=lambda file: file.path)
    layout.others.sort()
    layout.classes = _in_order({*layout.classes, *(file.label for file in layout.files)})
    layout.check_classes()
    return layout


def _in_order(names: set[str]) -> list[str]:
    """Sort names of classes: by number if all are numbers, otherwise by letters."""
    if all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _from_folders(path: Path) -> Layout:
    """List a folder for each class, or train, validation and test folders with such in them."""
    root = path.resolve()
    folders, loose = _children(root)
    splits = [SPLIT_NAMES.get(folder.name.lower()) for folder in folders]
    layout = Layout(path, root, "a folder for each class")
    if "train" in splits:
        layout.kind = "train, validation and test folders with a folder for each class"
        for folder, split in zip(folders, _split_names(root, folders, splits), strict=True):
            classes, more = _children(folder)
            loose += more
            for name in classes:
                _add_class(layout, name, split)
    else:
        for folder in folders:
            _add_class(layout, folder, None)
    for item in loose:
        _add(layout, item, None, None)
    return layout


def _split_names(
    root: Path, folders: list[os.DirEntry[str]], splits: list[str | None]
) -> list[str]:
    odd = [shown(folder.name) for folder, split in zip(folders, splits, strict=True) if not split]
    known = [split for split in splits if split]
    if odd or len(set(known)) < len(known):
        names = ", ".join(shown(folder.name) for folder in folders)
        what = f"also {odd[0]!r}" if odd else "two of one kind"
        raise DataError(
            f"{shown(str(root))}: expected train, validation and test folders alone, got {what} "
            f"({names}); move the others away"
        )
    return known


def _children(
    folder: Path | os.DirEntry[str],
) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """Return the folders in a folder and everything else, hidden files left out, sorted."""
    try:
        with os.scandir(folder) as found:
            items = sorted(
                (i for i in found if not i.name.startswith(".") and i.name not in LEFT_BEHIND),
                key=lambda item: item.name,
            )
    except OSError as error:
        raise DataError(
            f"{shown(os.fspath(folder))}: cannot be listed ({error.strerror})"
        ) from error
    folders = [item for item in items if item.is_dir(follow_symlinks=False)]
    return folders, [item for item in items if not item.is_dir(follow_symlinks=False)]


def _add_class(layout: Layout, folder: os.DirEntry[str], split: str | None) -> None:
    """Add every picture below the folder of a class."""
    if shown(folder.name) != folder.name:
        problem = "the name of a class must be printable UTF-8; rename the folder"
        layout.bad.append(BadFile(_relative(layout, folder.path), problem))
        return
    layout.classes.append(folder.name)
    waiting = [folder]
    while waiting:
        folders, items = _children(waiting.pop())
        for item in folders:
            if suffix(item.name) in SUFFIXES:
                problem = "is a folder named like a picture; rename or remove it"
                layout.bad.append(
                    BadFile(_relative(layout, item.path), problem, layout.classes[-1])
                )
            else:
                waiting.append(item)
        for item in items:
            _add(layout, item, folder.name, split)


def _add(layout: Layout, item: os.DirEntry[str], label: str | None, split: str | None) -> None:
    """Add one file: as a picture, as a bad one, or as something else."""
    path, kind = _relative(layout, item.path), suffix(item.name)
    found: os.stat_result | str
    if kind in FOREIGN:
        found = f"{kind} files are not read; expected PNG, JPEG, BMP, TIFF or WebP: convert it"
    elif kind not in SUFFIXES and not (item.is_symlink() and item.is_dir()):
        layout.others.append(path)
        return
    elif label is None:
        found = "is in no class; move it into the folder of its class"
    else:
        found = _file_inside(layout.root, item.path)
    layout.add(path, found, label or "", split)


def _relative(layout: Layout, path: str) -> str:
    return path[len(str(layout.root)) :].replace(os.sep, "/").lstrip("/")


def _from_table(path: Path, table: Path) -> Layout:
    """List the pictures that a CSV file names, wherever below its own folder they lie."""
    layout = Layout(path, table.parent, f"listed in {table.name}")
    inside = cache(lambda folder: Path(os.path.realpath(folder)).is_relative_to(layout.root))
    labels: dict[str, str] = {}
    for line, row in _rows(table):
        name = row["path"]
        where = f"{shown(str(table))}, line {line}"
        plain = str(PurePosixPath(name))  # ./a.png is a.png
        label, split, group = _cells(row, where)
        if plain in labels:
            raise DataError(f"{where}: {shown(name)} {_again(labels[plain], label)}")
        labels[plain] = label
        layout.add(name, _file_in_table(layout.root, name, inside), label, split, group)
    _check_labels(labels, table)
    return layout


def _again(first: str, second: str) -> str:
    if first == second:
        return "is listed twice; remove one"
    return f"has the labels {first!r} and {second!r}; a picture can have one class: remove one"


def _check_labels(labels: dict[str, str], table: Path) -> None:
    """Raise `DataError` if a cell holds several labels that other pictures have alone."""
    known = set(labels.values())
    for path, label in labels.items():
        parts = [part.strip() for part in re.split(r"[|;,+/&]", label)]
        if len(parts) > 1 and known.issuperset(parts):
            raise DataError(
                f"{shown(str(table))}: {shown(path)} has the labels "
                f"{' and '.join(map(repr, parts))} ({label!r}); a picture can have one class: "
                "give it one, or remove its line"
            )


def _file_in_table(root: Path, path: str, inside: Callable[[str], bool]) -> os.stat_result | str:
    pure = PurePosixPath(path)
    if not path or "\0" in path:
        return "is no path; correct the CSV file"
    if pure.is_absolute() or ".." in pure.parts or Path(path).is_absolute():
        return "leaves the folder; paths must be relative to the CSV file, without '..'"
    full = root / path
    if not inside(str(full.parent)):
        return "leaves the folder through a link; put the files themselves there"
    if not os.path.lexists(full):
        return "is listed but not there (paths are relative to the CSV file); correct the path"
    return _file_inside(root, str(full))


def _rows(table: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Go through the lines of a CSV file."""
    if table.stat().st_size > MAX_TABLE:
        raise DataError(f"{shown(str(table))}: has more than {MAX_TABLE:,} bytes; split the set")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = [*(reader.fieldnames or [])]
            if not {"path", "label"} <= set(columns):
                raise DataError(
                    f"{shown(str(table))}: expected the columns path, label and, if wanted, split "
                    "and group in the first line, got "
                    f"{', '.join(map(shown, columns)) or 'nothing'}"
                )
            for row in reader:
                if None in row:
                    raise DataError(
                        f"{shown(str(table))}, line {reader.line_num}: has more cells than the "
                        'first line; put texts with commas into "quotes"'
                    )
                yield reader.line_num, {key: value or "" for key, value in row.items()}
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{shown(str(table))}: is no CSV file in UTF-8 ({error})") from error


def _cells(row: dict[str, str], where: str) -> tuple[str, str | None, str | None]:
    """Return label, split and group of a line."""
    label, split, group = (row.get(name) for name in ("label", "split", "group"))
    if not label or shown(label) != label:
        raise DataError(f"{where}: expected the name of a class, got {shown(label or '')!r}")
    if split is not None and split.lower() not in SPLIT_NAMES:
        raise DataError(f"{where}: expected train, validation or test, got {shown(split)!r}")
    if group is not None and not group:
        raise DataError(f"{where}: the group is missing; give every picture one")
    return label, None if split is None else SPLIT_NAMES[split.lower()], group


def _file_inside(root: Path, path: str) -> os.stat_result | str:
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
