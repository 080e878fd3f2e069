"""Which files of a folder are pictures, and which class, split and group each is of.

Only names and sizes are looked at, no picture is opened. Links are never followed out of the
folder, folders that are links not at all.
"""

from pathlib import Path

from invint.data.class_folders import from_folders
from invint.data.file_names import shown
from invint.data.label_table import from_table
from invint.data.listing import Layout
from invint.errors import DataError

TABLES = ("labels.csv", "index.csv")


def read_layout(path: Path) -> Layout:
    """Find the pictures of a folder and what they show.

    Three layouts are known: a folder for each class; train, validation and test folders with a
    folder for each class in them; a CSV file with the columns path and label and, if wanted, split
    and group, given itself or lying in the folder as `labels.csv` or `index.csv`.
    """
    table = _table(path)
    if table is not None:
        return _finished(from_table(table), table)
    return _finished(from_folders(path.resolve()), path)


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


def _finished(layout: Layout, path: Path) -> Layout:
    layout.entries.sort(key=lambda entry: entry.path)
    layout.bad.sort(key=lambda bad: bad.path)
    layout.others.sort()
    layout.classes = _in_order({*layout.classes, *(entry.label for entry in layout.entries)})
    if len(layout.classes) < 2:
        found = f"only {shown(layout.classes[0])!r}" if layout.classes else "none"
        raise DataError(
            f"{shown(str(path))}: expected at least two classes, found {found}; put the pictures "
            "of each class into a folder of its own, or list them in labels.csv"
        )
    return layout


def _in_order(names: set[str]) -> list[str]:
    """Sort names of classes: by number if all are numbers, otherwise by letters."""
    if all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)
