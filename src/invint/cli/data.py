"""`invint data`: list the data sets; fetch, check and show one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invint.cli.console import Counting, downloads, say, show_table
from invint.cli.options import (
    DataDir,
    DropLeaks,
    MinPerClass,
    Side,
    SkipBad,
    SkipClass,
    TestShare,
    own_choices,
)
from invint.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from invint.data.dataset import Dataset, Split

LIST_COLUMNS = ("name", "what", "images", "classes", "shape", "licence", "download", "here")
OWN = ("folder", "arrays")  # the user's own data: never fetched

data_app = typer.Typer(help="List, fetch, check and show data sets.", invoke_without_command=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A data set that `invint data` lists.")]
AnyName = Annotated[
    str, typer.Argument(metavar="NAME", help="A data set, or folder:PATH, or arrays:PATH.")
]


@data_app.callback(epilog="Examples:\n  invint data\n  invint data --data-dir /data")
def data(context: typer.Context, data_dir: DataDir = None) -> None:
    """List the data sets: size, licence, and whether they are here."""
    context.obj = data_dir
    if context.invoked_subcommand is not None:
        return
    from invint.data.registry import DATASETS, data_folder, is_here

    rows = []
    for name, entry in DATASETS.items():
        size = sum(download.file.size or 0 for download in entry.downloads)
        here = "" if name in OWN else "yes" if is_here(name, data_dir) else "no"
        about = (entry.title, entry.images, entry.classes, entry.shape, entry.licence)
        rows.append((name, *about, f"{size / 1e6:,.0f} MB" if size else "", here))
    show_table(
        LIST_COLUMNS,
        rows,
        right=("download",),
        wrap=("what", "licence"),
        spare=("shape", "licence", "classes", "images"),
    )
    say()
    say(f"data folder: {data_folder(data_dir)}")


@data_app.command(
    epilog="Examples:\n  invint data fetch mnist\n  invint data fetch cifar10 --data-dir /data"
)
def fetch(context: typer.Context, name: Name, data_dir: DataDir = None) -> None:
    """Download what is missing of a data set; resume a download that broke off."""
    from invint.data.registry import dataset_folder, fetch_dataset, find_entry

    if name in OWN:
        raise ConfigError(f"{name} is your own data: there is nothing to fetch")
    folder, entry = data_dir or context.obj, find_entry(name)
    with downloads() as watch:
        came = fetch_dataset(name, folder, watch=watch)
    if not entry.downloads:
        say(f"{name} comes with invint: nothing to fetch")
    else:
        say(f"{name}: {len(came)} files fetched, all in {dataset_folder(name, folder)}")


@data_app.command(
    epilog="Examples:\n  invint data check digits\n  invint data check folder:~/images --skip-bad"
)
def check(  # noqa: PLR0913
    context: typer.Context,
    name: AnyName,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    drop_leaks: DropLeaks = False,
    min_per_class: MinPerClass = 0,
    skip_class: SkipClass = None,
) -> None:
    """Read all of a data set: checksums, images per class, shape, fingerprint."""
    from invint.data.registry import check_files, load_dataset, own_path

    folder, kind = data_dir or context.obj, name.partition(":")[0]
    options = own_choices(
        skip_bad=skip_bad,
        side=side,
        test_share=test_share,
        drop_leaks=drop_leaks,
        min_per_class=min_per_class,
        skip_class=skip_class,
    )
    published = {} if ":" in name else check_files(kind, folder)
    if kind == "folder" and (path := own_path(name, *options)):
        _show_scan(path, options)
    dataset = load_dataset(name, folder, **options)
    for file, known in published.items():
        say(f"{file}: {'checksum ok' if known else 'no checksum published'}")
    if kind != "folder":  # the scan has counted its pictures
        _show_counts(dataset)
    say()
    say(f"images       {' x '.join(map(str, dataset.image_shape))} (channels, height, width)")
    say(f"fingerprint  {dataset.fingerprint}")
    if dataset.note:
        say(f"note         {dataset.note}")


def _show_scan(path: Path, options: dict[str, Any]) -> None:
    """Print what a folder of pictures holds; what cannot be used stops nothing here."""
    from invint.data.folder import scan

    asked = {key: value for key, value in options.items() if key != "skip_bad"}
    with Counting() as progress:
        found = scan(path, progress=progress, **asked)
    for line in found.report().split("\n"):
        say(line)


def _show_counts(dataset: "Dataset") -> None:
    classes = len(dataset.class_names)
    splits = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    counts = {
        title: split.labels.bincount(minlength=classes).tolist()
        for title, split in splits.items()
        if split is not None
    }
    rows = [
        (name, *(f"{count[index]:,}" for count in counts.values()))
        for index, name in enumerate(dataset.class_names)
    ]
    rows.append(("all", *(f"{sum(count):,}" for count in counts.values())))
    show_table(("class", *counts), rows, right=tuple(counts), styles=[""] * classes + ["bold"])


@data_app.command(
    epilog="Examples:\n  invint data show digits\n  invint data show cifar10 --augment crop,flip"
)
def show(  # noqa: PLR0913
    context: typer.Context,
    name: AnyName,
    augment: Annotated[
        str, typer.Option(metavar="NAMES", help="Any of rotate,crop,flip,cutout.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The PNG file; by default NAME.png.")
    ] = None,
    count: Annotated[
        int, typer.Option(metavar="N", min=1, max=1024, help="Number of images.")
    ] = 64,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Decides which images, and how they are augmented.")
    ] = 0,
    data_dir: DataDir = None,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    drop_leaks: DropLeaks = False,
    min_per_class: MinPerClass = 0,
    skip_class: SkipClass = None,
) -> None:
    """Write a contact sheet of training images with their labels."""
    from invint.data.registry import load_dataset
    from invint.figures.sheets import contact_sheet
    from invint.figures.style import check_suffix, save_figure

    if out is not None:
        check_suffix(out)  # before the work, not after it
    options = own_choices(
        skip_bad=skip_bad,
        side=side,
        test_share=test_share,
        drop_leaks=drop_leaks,
        min_per_class=min_per_class,
        skip_class=skip_class,
    )
    with Counting() as progress:
        dataset = load_dataset(name, data_dir or context.obj, **options, progress=progress)
    steps = tuple(step.strip() for step in augment.split(",") if step.strip())
    images, labels = _sample(dataset.train, steps, count, seed)
    title = f"{name}, {'augmented: ' + ', '.join(steps) if steps else 'training images'}"
    title += f" ({dataset.note})" if dataset.note else ""
    names = [dataset.class_names[label] for label in labels.tolist()]
    stem = "-".join((dataset.name, *steps)).replace(":", "-").replace("/", "-")
    path = out or Path(f"{stem}.png")
    save_figure(contact_sheet(images, names, title=title), path)
    say(str(path))


def _sample(
    split: "Split", steps: tuple[str, ...], count: int, seed: int
) -> tuple["Tensor", "Tensor"]:
    """Return some training images with their labels, as stored or as a network would see them."""
    import torch

    from invint.data.batches import Batches

    if not steps:
        generator = torch.Generator().manual_seed(seed)
        some = split[torch.randperm(len(split), generator=generator)[:count]]
        return some.images, some.labels
    channels = split.images.shape[1]
    batches = Batches(
        split,
        batch_size=count,
        seed=seed,
        augment=steps,
        mean=(0.0,) * channels,  # not normalised: these are to be looked at
        std=(1.0,) * channels,
    )
    images, labels = next(iter(batches(range(1))))
    return images, labels
