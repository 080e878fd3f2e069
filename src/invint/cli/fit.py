"""`invint fit`: a folder of your images in, a classifier and advice out."""

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from invint.cli.console import Counting, say, show

if TYPE_CHECKING:
    from invint.fit import Fitted, Onlooker
    from invint.train import Callback


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
    from invint.fit import Onlooker, Wish, fit_folder, name_of

    wish = Wish(
        folder=folder,
        minutes=minutes,
        side=side,
        skip_bad=skip_bad,
        seed=seed,
        test_share=test_share,
    )
    onlooker = Onlooker() if quiet or not sys.stderr else _onlooker()
    target = out or Path(f"{name_of(folder)}-fit")
    show_advice(fit_folder(wish, target, onlooker=onlooker))


def _onlooker() -> "Onlooker":
    """Return what tells everything on stderr, with a bar for decoding and one for each run."""
    from invint.cli.progress import ProgressBar
    from invint.fit import Onlooker

    class Terminal(Onlooker):
        def __init__(self) -> None:
            self.decoding = Counting()

        def say(self, text: str) -> None:
            self.decoding.close()
            for line in text.split("\n"):
                say(line, error=True)

        def on_decode(self, count: int, total: int) -> None:
            self.decoding(count, total)

        def watch(self) -> "Callback":
            return ProgressBar(brief=True)

    return Terminal()


def show_advice(fitted: "Fitted") -> None:
    """Print the advice, where everything is and what to do next."""
    files = fitted.files
    network = quote(str(files.get("onnx", files["safetensors"])))
    show(Text(fitted.advice))
    say(f"report     {files['report'].resolve().as_uri()}")
    say(f"to label   invint predict {network} PICTURES --out answers.csv")
    say(f"to try it  invint serve {network}")
