"""`invint data`: the list of sets, what is in one, a sheet of its images."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from torch import Tensor

from invint.cli.terminal.progress import Counting
from invint.data.dataset import Dataset, Split
from invint.data.download import Watcher
from invint.data.folder import scan
from invint.data.registry import (
    DATASETS,
    check_files,
    data_folder,
    dataset_folder,
    fetch_dataset,
    is_here,
    load_dataset,
    own_path,
)
from invint.errors import ConfigError
from invint.figures.sheets import contact_sheet
from invint.figures.style import check_suffix, save_figure

NAME_WIDTH = max(map(len, DATASETS))


def list_sets(folder: Path | None) -> None:
    """Print all data sets, and where they lie."""
    Console().print(_list(folder))
    Console().print(f"\ndata folder: {data_folder(folder)}", soft_wrap=True, highlight=False)


def fetch_set(name: str, folder: Path | None) -> None:
    """Download what is missing of a data set, with a bar for each file."""
    if name in ("folder", "arrays"):
        raise ConfigError(f"{name} is your own data: there is nothing to fetch")
    with _progress() as watch:
        came = fetch_dataset(name, folder, watch=watch)
    if not DATASETS[name].downloads:
        print(f"{name} comes with invint: nothing to fetch")
    else:
        print(f"{name}: {len(came)} files fetched, all in {dataset_folder(name, folder)}")


def check_set(name: str, folder: Path | None, options: dict[str, Any]) -> None:
    """Read all of a data set and print what is in it."""
    kind = name.partition(":")[0]
    published = {} if ":" in name else check_files(kind, folder)
    if kind == "folder":
        _scan(name, options)
    dataset = load_dataset(name, folder, **options)
    for file, known in published.items():
        print(f"{file}: {'checksum ok' if known else 'no checksum published'}")
    if kind != "folder":  # the scan has counted its pictures
        Console().print(_counts(dataset))
    print(f"\nimages       {' x '.join(map(str, dataset.image_shape))} (channels, height, width)")
    print(f"fingerprint  {dataset.fingerprint}")
    if dataset.note:
        print(f"note         {dataset.note}")


def write_sheet(
    name: str,
    folder: Path | None,
    options: dict[str, Any],
    *,
    augment: str,
    out: Path | None,
    count: int,
    seed: int,
) -> None:
    """Write a contact sheet of training images with their labels, and print its path."""
    if out is not None:
        check_suffix(out)
    with Counting() as progress:
        dataset = load_dataset(name, folder, **options, progress=progress)
    steps = tuple(step.strip() for step in augment.split(",") if step.strip())
    images, labels = (
        _augmented(dataset.train, steps, count, seed) if steps else _drawn(dataset, count, seed)
    )
    title = f"{name}, {'augmented: ' + ', '.join(steps) if steps else 'training images'}"
    title += f" ({dataset.note})" if dataset.note else ""
    names = [dataset.class_names[label] for label in labels.tolist()]
    path = out or Path(
        f"{'-'.join((dataset.name, *steps)).replace(':', '-').replace('/', '-')}.png"
    )
    save_figure(contact_sheet(images, names, title=title), path)
    print(path)


def _scan(name: str, options: dict[str, Any]) -> None:
    """Print what a folder of pictures holds; what cannot be used stops nothing here."""
    path = own_path(name, *options)
    if path is None:
        return
    asked = {key: value for key, value in options.items() if key != "skip_bad"}
    with Counting() as progress:
        found = scan(path, progress=progress, **asked)
    print(found.report())


def _list(folder: Path | None) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("name", "what", "images", "classes", "shape", "licence", "download", "here"):
        kept = title in ("name", "here")  # whole on a narrow terminal too
        table.add_column(
            title,
            justify="right" if title == "download" else "left",
            no_wrap=kept,
            overflow="fold",
            min_width=NAME_WIDTH if title == "name" else None,
        )
    for name, entry in DATASETS.items():
        own = name in ("folder", "arrays")
        size = sum(download.file.size or 0 for download in entry.downloads)
        here = "" if own else "yes" if is_here(name, folder) else "no"
        cells = (entry.title, entry.images, entry.classes, entry.shape, entry.licence)
        table.add_row(name, *cells, f"{size / 1e6:,.0f} MB" if size else "", here)
    return table


def _counts(dataset: Dataset) -> Table:
    parts = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    here = {title: part for title, part in parts.items() if part is not None}
    counts = [_per_class(part, len(dataset.class_names)) for part in here.values()]
    table = Table(box=None, header_style="bold")
    table.add_column("class")
    for title in here:
        table.add_column(title, justify="right")
    for number, name in enumerate(dataset.class_names):
        table.add_row(escape(name), *(f"{each[number]:,}" for each in counts))
    table.add_row("all", *(f"{sum(each):,}" for each in counts), style="bold")
    return table


def _per_class(part: Split, classes: int) -> list[int]:
    counts: list[int] = torch.bincount(part.labels, minlength=classes).tolist()
    return counts


def _drawn(dataset: Dataset, count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(dataset.train), generator=generator)[:count]
    some = dataset.train[chosen]
    return some.images, some.labels


def _augmented(part: Split, steps: tuple[str, ...], count: int, seed: int) -> tuple[Tensor, Tensor]:
    from invint.data.batches import Batches

    channels = part.images.shape[1]
    batches = Batches(
        part,
        batch_size=count,
        seed=seed,
        augment=steps,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
    )
    images, labels = next(iter(batches(range(1))))
    return images, labels


@contextmanager
def _progress() -> Iterator[Watcher]:
    """Show a bar for each file on stderr."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def watch(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield watch
