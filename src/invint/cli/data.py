"""`invint data`: list the data sets, fetch, check and show one."""

from pathlib import Path
from typing import Annotated

import typer

from invint.cli.pictures import Side, SkipBad, TestShare, own_choices

data_app = typer.Typer(help="List, fetch, check and show data sets.", invoke_without_command=True)

DataDir = Annotated[
    Path | None,
    typer.Option(help="Data folder; else INVINT_DATA, else one in the user's cache."),
]
Name = Annotated[str, typer.Argument(help="A data set; `invint data` lists them.")]
OwnName = Annotated[str, typer.Argument(help="A data set, or folder:PATH or arrays:PATH.")]


@data_app.callback(epilog="Examples:  invint data   |   invint data --data-dir /data")
def data(context: typer.Context, data_dir: DataDir = None) -> None:
    """List the data sets: size, licence, and whether they are here."""
    if context.invoked_subcommand is None:
        from invint.cli.terminal.data import list_sets

        list_sets(data_dir)
    context.obj = data_dir


@data_app.command(
    epilog="Examples:  invint data fetch mnist   |   invint data fetch cifar10 --data-dir /data"
)
def fetch(context: typer.Context, name: Name, data_dir: DataDir = None) -> None:
    """Download what is missing of a data set; go on where an earlier download broke off."""
    from invint.cli.terminal.data import fetch_set

    fetch_set(name, data_dir or context.obj)


@data_app.command(
    epilog="Examples:  invint data check digits   |   invint data check folder:~/pictures"
)
def check(
    context: typer.Context,
    name: OwnName,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    data_dir: DataDir = None,
) -> None:
    """Read all of a data set: checksums, images per class, shape, fingerprint."""
    from invint.cli.terminal.data import check_set

    options = own_choices(None, skip_bad=skip_bad, side=side, test_share=test_share)
    check_set(name, data_dir or context.obj, options)


@data_app.command(
    epilog="Examples:  invint data show digits   |   invint data show cifar10 --augment crop,flip"
)
def show(  # noqa: PLR0913
    context: typer.Context,
    name: OwnName,
    augment: Annotated[str, typer.Option(help="Any of rotate,crop,flip,cutout.")] = "",
    out: Annotated[Path | None, typer.Option(help="PNG to write; NAME.png by default.")] = None,
    count: Annotated[int, typer.Option(min=1, max=1024, help="Number of images.")] = 64,
    seed: Annotated[int, typer.Option(help="Decides which images, and how augmented.")] = 0,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    data_dir: DataDir = None,
) -> None:
    """Write a contact sheet of training images with their labels."""
    from invint.cli.terminal.data import write_sheet

    options = own_choices(None, skip_bad=skip_bad, side=side, test_share=test_share)
    write_sheet(
        name,
        data_dir or context.obj,
        options,
        augment=augment,
        out=out,
        count=count,
        seed=seed,
    )
