"""Pictures in a folder for each class; links to folders are not followed."""

import os
from pathlib import Path

from invint.data.file_names import FOREIGN, SUFFIXES, shown, suffix
from invint.data.listing import SPLITS, Bad, Layout, file_inside
from invint.errors import DataError

LEFT_BEHIND = ("__MACOSX", "Thumbs.db", "desktop.ini")  # by desktops; passed over like hidden files


def from_folders(root: Path) -> Layout:
    """List a folder for each class, or train, validation and test folders with such in them."""
    folders, loose = _children(root)
    splits = [SPLITS.get(folder.name.lower()) for folder in folders]
    layout = Layout(root, "a folder for each class")
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
        layout.bad.append(Bad(_relative(layout, folder.path), problem))
        return
    layout.classes.append(folder.name)
    waiting = [folder]
    while waiting:
        folders, items = _children(waiting.pop())
        for item in folders:
            if suffix(item.name) in SUFFIXES:
                problem = "is a folder named like a picture; rename or remove it"
                layout.bad.append(Bad(_relative(layout, item.path), problem))
            else:
                waiting.append(item)
        for item in items:
            _add(layout, item, folder.name, split)


def _add(layout: Layout, item: os.DirEntry[str], label: str | None, split: str | None) -> None:
    """Add one file: as a picture, as a bad one, or as something else."""
    path, kind = _relative(layout, item.path), suffix(item.name)
    if kind in FOREIGN:
        problem = f"{kind} files are not read; expected PNG, JPEG, BMP, TIFF or WebP: convert it"
        layout.bad.append(Bad(path, problem))
    elif kind not in SUFFIXES and not _is_linked_folder(item):
        layout.others.append(path)
    elif label is None:
        layout.bad.append(Bad(path, "is in no class; move it into the folder of its class"))
    else:
        layout.add(path, file_inside(layout.root, item.path), label, split)


def _is_linked_folder(item: os.DirEntry[str]) -> bool:
    return item.is_symlink() and item.is_dir()


def _relative(layout: Layout, path: str) -> str:
    return path[len(str(layout.root)) :].replace(os.sep, "/").lstrip("/")
