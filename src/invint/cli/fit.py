"""`invint fit`: your own images: a folder in, a classifier and advice out."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from invint.assist import Fitted, Onlooker, Wish, fit_folder
from invint.cli.progress import Bar
from invint.run import Watch


def fit(
    folder: Annotated[
        Path, typer.Argument(help="A folder of pictures, or a CSV file that lists them.")
    ],
    minutes: Annotated[float, typer.Option(help="Time for everything, about.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option(help="Where everything goes; FOLDER-fit by default.")
    ] = None,
    side: Annotated[
        int | None, typer.Option(help="Side of the images in pixels; chosen by default.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unreadable pictures.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the test split and of training.")] = 0,
    test_share: Annotated[
        float, typer.Option(help="Share held out for testing, unless the folder says.")
    ] = 0.2,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the advice only.")] = False,
) -> None:
    """Train ordinary and invariant networks on your images; keep the best and say what helps."""
    wish = Wish(
        folder=folder,
        minutes=minutes,
        side=side,
        skip_bad=skip_bad,
        seed=seed,
        test_share=test_share,
    )
    target = out or Path(f"{folder.resolve().stem}-fit")
    onlooker = Onlooker() if quiet or not sys.stderr else Terminal()
    try:
        fitted = fit_folder(wish, target, onlooker=onlooker)
    finally:
        if isinstance(onlooker, Terminal):
            onlooker.progress.stop()
    show(fitted)


class Terminal(Onlooker):
    """Tells everything on stderr, with a bar for decoding and one for each run."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.progress = Progress(
            TextColumn("decoding"), BarColumn(24), MofNCompleteColumn(), console=self.console
        )
        self.task = self.progress.add_task("", total=None, visible=False)

    def say(self, text: str) -> None:
        """Print a line, or several."""
        self.progress.stop()
        self.console.print(text, markup=False)

    def decoded(self, count: int, total: int) -> None:
        """Move the bar."""
        self.progress.start()
        self.progress.update(self.task, completed=count, total=total, visible=count < total)

    def watch(self) -> Watch:
        """Return a bar."""
        return Bar()


def show(fitted: Fitted) -> None:
    """Print the advice, and how to go on."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(fitted.advice)
    files = fitted.files
    console.print(f"report   {files['report'].resolve().as_uri()}")
    network = files.get("onnx", files["safetensors"])
    console.print(f"network  {network}: try `invint predict {network} PICTURES`")
