"""`invint fit`: a folder of your images in, a classifier and advice out."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from invint.cli.console import say, show

if TYPE_CHECKING:
    from invint.fit import FitResult


def fit(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A folder of images, or a CSV file that lists them."),
    ],
    minutes: Annotated[
        float, typer.Option(metavar="N", help="About how long everything may take.")
    ] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where files are written; by default ./FOLDER-fit."),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(
            metavar="PIXELS",
            help="Side of the square images, an even number; by default chosen for the time.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")
    ] = False,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the split and of training.")] = 0,
    test_share: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            help="Held out to test on, unless the folder has a test split.",
        ),
    ] = 0.2,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the advice alone.")] = False,
) -> None:
    """Train ordinary and invariant networks on your images; keep the best and say what helps."""
    from invint.cli.progress import callback_for
    from invint.fit import FitConfig, fit_folder, name_of

    config = FitConfig(
        folder=folder,
        minutes=minutes,
        side=side,
        skip_bad=skip_bad,
        seed=seed,
        test_share=test_share,
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
