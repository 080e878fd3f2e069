"""The data sets by name: what they are, where their files lie, how they are read."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invint.data import official
from invint.data.arrays import load_arrays
from invint.data.dataset import Dataset, Progress
from invint.data.download import Download, Watcher, fetch_files, verify
from invint.data.folder import load_folder
from invint.errors import ConfigError, DataError, did_you_mean


@dataclass(frozen=True)
class CatalogEntry:
    """What is known of a data set before it is read.

    Attributes:
        title: What it is, in a few words.
        load: Takes its folder to the data set; `folder` and `arrays` the user's path and options.
        images: Training and test images.
        classes: Number of classes.
        shape: Size and channels of an image.
        licence: What its makers say of its use.
        downloads: Its official files.
        home: The folder its files lie in, if not one of its own name.
        note: What a table must say beside figures from it.
    """

    title: str
    load: Callable[..., Dataset]
    images: str = "your own"
    classes: str = "your own"
    shape: str = "your own"
    licence: str = "your own"
    downloads: tuple[Download, ...] = ()
    home: str = ""
    note: str = ""

    @property
    def counts(self) -> tuple[int, int] | None:
        """Numbers of training and test images; `None` where only the files can tell."""
        numbers = self.images.replace(",", "").split(" + ")
        return (int(numbers[0]), int(numbers[-1])) if numbers[0].isdecimal() else None

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Channels, height and width of an image; `None` where only the files can tell."""
        size, _, colours = self.shape.partition(" ")
        height, _, width = size.partition("x")
        channels = {"grey": 1, "colour": 3}.get(colours)
        return None if channels is None else (channels, int(height), int(width))


DATASETS = {
    "digits": CatalogEntry(
        title="scikit-learn's digits, turned",
        load=lambda _: official.load_digits(),
        images="1,000 + 797",
        classes="10",
        shape="20x20 grey",
        licence="CC BY 4.0",
    ),
    "mnist": CatalogEntry(
        title="MNIST",
        load=official.load_mnist,
        images="60,000 + 10,000",
        classes="10",
        shape="28x28 grey",
        licence="CC BY-SA 3.0",
        downloads=official.MNIST_FILES,
    ),
    "rotmnist": CatalogEntry(
        title="Rotated MNIST",
        load=official.load_rotated_mnist,
        images="12,000 + 50,000",
        classes="10",
        shape="28x28 grey",
        licence="none stated",
        downloads=official.ROTATED_MNIST_FILES,
    ),
    "rotmnist-regenerated": CatalogEntry(
        title="Rotated MNIST, made anew from MNIST",
        load=official.regenerate_rotated_mnist,
        images="12,000 + 50,000",
        classes="10",
        shape="28x28 grey",
        licence="CC BY-SA 3.0",
        downloads=official.MNIST_FILES,
        home="mnist",
        note=official.REGENERATED_NOTE,
    ),
    "fashion-mnist": CatalogEntry(
        title="Fashion-MNIST",
        load=official.load_fashion_mnist,
        images="60,000 + 10,000",
        classes="10",
        shape="28x28 grey",
        licence="MIT",
        downloads=official.FASHION_FILES,
    ),
    "fashion-rotated": CatalogEntry(
        title="Fashion-MNIST, rotated",
        load=official.rotate_fashion_mnist,
        images="12,000 + 10,000",
        classes="10",
        shape="28x28 grey",
        licence="MIT",
        downloads=official.FASHION_FILES,
        home="fashion-mnist",
    ),
    "svhn": CatalogEntry(
        title="Street View House Numbers",
        load=official.load_svhn,
        images="73,257 + 26,032",
        classes="10",
        shape="32x32 colour",
        licence="non-commercial use",
        downloads=official.SVHN_FILES,
    ),
    "svhn-recropped": CatalogEntry(
        title="SVHN, other crops in the same layout",
        load=official.load_recropped_svhn,
        images="any",
        classes="10",
        shape="32x32 colour",
        licence="non-commercial use",
        downloads=official.RECROPPED_FILES,
        note=official.RECROPPED_NOTE,
    ),
    "cifar10": CatalogEntry(
        title="CIFAR-10, binary version",
        load=official.load_cifar10,
        images="50,000 + 10,000",
        classes="10",
        shape="32x32 colour",
        licence="none stated",
        downloads=official.CIFAR10_FILES,
    ),
    "stl10": CatalogEntry(
        title="STL-10, labelled images",
        load=official.load_stl10,
        images="5,000 + 8,000",
        classes="10",
        shape="96x96 colour",
        licence="none stated; ImageNet terms",
        downloads=official.STL10_FILES,
    ),
    "folder": CatalogEntry("folder:PATH, a folder per class or a CSV", load_folder),
    "arrays": CatalogEntry("arrays:PATH, an .npz file", load_arrays),
}
OWN_OPTIONS = {  # what may be asked of the user's own images, by kind
    "folder": (
        *("skip_bad", "side", "test_share", "split_seed"),
        *("drop_leaks", "min_per_class", "skip_class"),
    ),
    "arrays": ("test_share", "split_seed", "drop_leaks"),
}


def load_dataset(  # noqa: PLR0913
    name: str,
    folder: Path | None = None,
    *,
    skip_bad: bool = False,
    side: int | None = None,
    test_share: float | None = None,
    split_seed: int = 0,
    drop_leaks: bool = False,
    min_per_class: int = 0,
    skip_class: Sequence[str] = (),
    progress: Progress | None = None,
) -> Dataset:
    """Read a data set; never downloads.

    Args:
        name: One of `DATASETS`; the user's own as `folder:PATH` or `arrays:PATH`.
        folder: The data folder, in which each set has a folder; see `data_folder`.
        skip_bad: Leave out unreadable pictures of `folder:PATH`. Other sets are whole or refused.
        side: Even side of the squares the pictures of `folder:PATH` are fitted into.
        test_share: Fraction of the user's own images held out where they have no test split.
        split_seed: Decides which of them are held out.
        drop_leaks: Leave training images of the user's own out that are in the test split too.
        min_per_class: Leave out classes of `folder:PATH` with fewer pictures.
        skip_class: Names of classes of `folder:PATH` that are left out.
        progress: Called with the number of pictures decoded and that of all, the first time that
            `folder:PATH` is read.

    Example:
        >>> load_dataset("digits").image_shape
        (1, 20, 20)
    """
    given: dict[str, Any] = {
        "skip_bad": skip_bad or None,
        "side": side,
        "test_share": test_share,
        "split_seed": split_seed or None,
        "drop_leaks": drop_leaks or None,
        "min_per_class": min_per_class or None,
        "skip_class": tuple(skip_class) or None,
    }
    options = {option: value for option, value in given.items() if value is not None}
    home = own_path(name, *options) or dataset_folder(name, folder)
    if "split_seed" in options:
        options["seed"] = options.pop("split_seed")
    kind = name.partition(":")[0]
    if kind == "folder" and progress is not None:
        options["progress"] = progress
    entry = find_entry(kind)
    for download in entry.downloads:
        _refuse_if_missing(download, home, name)
    try:
        return entry.load(home, **options)
    except OSError as error:
        raise DataError(
            f"{name}: cannot read {error.filename or home}: {error.strerror}"
        ) from error


def own_path(name: str, *options: str) -> Path | None:
    """Return the path of the user's own data, None for other sets.

    Args:
        name: Of a data set, with its path.
        options: Names of options that are to be used on it; not every set knows all.
    """
    kind, _, path = name.partition(":")
    find_entry(kind)
    own = kind in OWN_OPTIONS
    if own != bool(path):
        raise ConfigError(
            f"{name}: name the path after a colon, as {kind}:PATH"
            if own
            else f"{name}: {kind} takes no path; --data-dir or INVINT_DATA says where its files are"
        )
    for option in options:
        if option not in OWN_OPTIONS.get(kind, ()):
            known = [f"{each}:PATH" for each, names in OWN_OPTIONS.items() if option in names]
            raise ConfigError(f"{name}: {option} is for {' and '.join(known)}; leave it out")
    return Path(path).expanduser() if own else None


def fetch_dataset(
    name: str, folder: Path | None = None, *, watch: Watcher | None = None
) -> list[str]:
    """Download what is missing of a set; return the names of the files that came.

    Args:
        name: One of `DATASETS`.
        folder: The data folder; see `data_folder`.
        watch: Receives the name of a file, the bytes here so far and those in all.
    """
    downloads = find_entry(name).downloads
    return fetch_files(downloads, dataset_folder(name, folder), owner=name, watch=watch)


def check_files(name: str, folder: Path | None = None) -> dict[str, bool]:
    """Verify size and checksum of every file; tell by name whether a checksum is published."""
    home = dataset_folder(name, folder)
    published = {}
    for download in find_entry(name).downloads:
        _refuse_if_missing(download, home, name)
        for file in download.results:
            try:
                verify(download.find(home, file.name) or home / file.name, file)
            except DataError as error:
                raise DataError(f"{error}; remove it and `invint data fetch {name}`") from None
            published[file.name] = file.md5 is not None
    return published


def is_here(name: str, folder: Path | None = None) -> bool:
    """Tell whether all files of a set are in the data folder; the user's own are not looked for."""
    name = name.partition(":")[0]
    home = dataset_folder(name, folder)
    return all(download.is_here(home) for download in find_entry(name).downloads)


def find_entry(name: str) -> CatalogEntry:
    """Return what is known of a set, or raise `ConfigError` with the nearest name."""
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        raise ConfigError(f"no data set {name!r}; {hint}`invint data` lists all")
    return DATASETS[name]


def dataset_folder(name: str, folder: Path | None = None) -> Path:
    """Return the folder that holds the files of a set."""
    return data_folder(folder) / (find_entry(name).home or name)


def data_folder(folder: Path | None = None) -> Path:
    """Return the data folder: the one given, else `INVINT_DATA`, else one in the user's cache."""
    if folder is not None:
        return folder
    if chosen := os.environ.get("INVINT_DATA"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "invint"


def _refuse_if_missing(download: Download, home: Path, name: str) -> None:
    for file in download.results:
        if download.find(home, file.name) is None:
            if not download.urls:
                raise DataError(f"{name}: {file.name} is not in {home}; put it there")
            raise DataError(
                f"{name}: {file.name} is not in {home}; `invint data fetch {name}` downloads it, "
                f"or put {download.file.name} there ({download.urls[0]})"
            )
