"""`invint fit`: a folder of your images in, a classifier and advice out."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from invint.cli.console import say, show
from invint.cli.options import DropLeaks, MinPerClass, SkipBad, SkipClass

if TYPE_CHECKING:
    from invint.fit import FitResult


def fit(  # noqa: PLR0913
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder of images, or a CSV file that lists them."),
    ],
    minutes: Annotated[
        float, typer.Option(metavar="N", help="How long everything may take, at most.")
    ] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where files are written; by default ./FOLDER-fit."),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|none",
            help="The pretrained network, or none; by default the one that invint[pretrained] "
            "installs, if it is there.",
        ),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(
            metavar="PIXELS",
            help="Side of the square images, an even number; by default what they need.",
        ),
    ] = None,
    skip_bad: SkipBad = False,
    drop_leaks: DropLeaks = False,
    min_per_class: MinPerClass = 0,
    skip_class: SkipClass = None,
    test_share: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            help="Held out to test on, unless the folder has a test split.",
        ),
    ] = 0.2,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of the split, the folds and training.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the advice alone.")] = False,
) -> None:
    """Find the best classifier for your images whose answer stays as they turn, in the time given.

    The strongest answer so far is always in the folder of results. Ctrl-C writes what is done;
    the same command resumes from there.
    """
    from invint.cli.progress import callback_for
    from invint.fit import FitConfig, fit_folder, name_of

    config = FitConfig(
        folder=folder,
        minutes=minutes,
        side=side,
        skip_bad=skip_bad,
        drop_leaks=drop_leaks,
        min_per_class=min_per_class,
        skip_class=tuple(skip_class or ()),
        seed=seed,
        test_share=test_share,
        backbone=backbone,
    )
    target = out or Path(f"{name_of(folder)}-fit")
    show_advice(fit_folder(config, target, callback=callback_for(quiet=quiet, brief=True)))


def show_advice(result: "FitResult") -> None:
    """Print the advice, where everything is and what to do next."""
    files = result.files
    network = quote(str(files.get("onnx", files["safetensors"])))
    show(Text(result.advice))
    say(f"report     {files['report'].resolve().as_uri()}")
    say(f"to label   invint predict {network} PICTURES --out answers.csv")
    say(f"to try it  invint serve {network}")
