"""Pictures listed in a CSV file, with the label and, if wanted, the split and group of each."""

import csv
import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from invint.data.file_names import shown
from invint.data.listing import SPLITS, Layout, file_inside
from invint.errors import DataError

MAX_TABLE = 2**28  # bytes of a CSV file


def from_table(table: Path) -> Layout:
    """List the pictures that a CSV file names, wherever below its own folder they lie."""
    layout = Layout(table.parent, f"listed in {table.name}")
    inside = lru_cache(maxsize=None)(lambda folder: _is_inside(layout.root, folder))
    seen: set[str] = set()
    for line, row in _rows(table):
        path = row["path"]
        where = f"{shown(str(table))}, line {line}"
        plain = str(PurePosixPath(path))  # ./a.png is a.png
        if plain in seen:
            raise DataError(f"{where}: {shown(path)} is listed twice; remove one")
        seen.add(plain)
        label, split, group = _cells(row, where)
        layout.add(path, _listed_file(layout.root, path, inside), label, split, group)
    _check_groups(layout)
    return layout


def _listed_file(root: Path, path: str, inside: Callable[[str], bool]) -> os.stat_result | str:
    pure = PurePosixPath(path)
    if not path or "\0" in path:
        return "is no path; correct the CSV file"
    if pure.is_absolute() or ".." in pure.parts or Path(path).is_absolute():
        return "leaves the folder; paths must be relative to the CSV file, without '..'"
    full = root / path
    if not inside(str(full.parent)):
        return "leaves the folder through a link; put the files themselves there"
    return file_inside(root, str(full))


def _is_inside(root: Path, folder: str) -> bool:
    return Path(os.path.realpath(folder)).is_relative_to(root)


def _rows(table: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Go through the lines of a CSV file."""
    if table.stat().st_size > MAX_TABLE:
        raise DataError(f"{shown(str(table))}: has more than {MAX_TABLE:,} bytes; split the set")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _check_columns(table, [*(reader.fieldnames or [])])
            for row in reader:
                if None in row:
                    raise DataError(
                        f"{shown(str(table))}, line {reader.line_num}: has more cells than the "
                        'first line; put texts with commas into "quotes"'
                    )
                yield reader.line_num, {key: value or "" for key, value in row.items()}
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{shown(str(table))}: is no CSV file in UTF-8 ({error})") from error


def _check_columns(table: Path, columns: list[str]) -> None:
    if not {"path", "label"} <= set(columns):
        raise DataError(
            f"{shown(str(table))}: expected the columns path, label and, if wanted, split and "
            f"group in the first line, got {', '.join(map(shown, columns)) or 'nothing'}"
        )


def _cells(row: dict[str, str], where: str) -> tuple[str, str | None, str | None]:
    """Return label, split and group of a line."""
    label, split, group = (row.get(name) for name in ("label", "split", "group"))
    if not label or shown(label) != label:
        raise DataError(f"{where}: expected the name of a class, got {shown(label or '')!r}")
    if split is not None and split.lower() not in SPLITS:
        raise DataError(f"{where}: expected train, validation or test, got {shown(split)!r}")
    if group is not None and not group:
        raise DataError(f"{where}: the group is missing; give every picture one")
    return label, None if split is None else SPLITS[split.lower()], group


def _check_groups(layout: Layout) -> None:
    first: dict[str, str | None] = {}
    for entry in layout.entries:
        if entry.group is None or first.setdefault(entry.group, entry.split) == entry.split:
            continue
        raise DataError(
            f"{shown(str(layout.root))}: group {shown(entry.group)!r} is in {first[entry.group]} "
            f"and in {entry.split}; a group must lie on one side"
        )
