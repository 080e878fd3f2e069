"""`invint fit`: what is told meanwhile, and the advice."""

import sys
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console

from invint.cli.terminal.progress import Bar, Counting
from invint.fit import Fitted, Onlooker, Wish, fit_folder, name_of
from invint.train import Callback


def show_fit(wish: Wish, out: Path | None, *, quiet: bool) -> None:
    """Fit, telling about it unless asked to be quiet, and print the advice."""
    target = out or Path(f"{name_of(wish.folder)}-fit")
    onlooker = Onlooker() if quiet or not sys.stderr else Terminal()
    try:
        fitted = fit_folder(wish, target, onlooker=onlooker)
    finally:
        if isinstance(onlooker, Terminal):
            onlooker.counting.close()
    show(fitted)


class Terminal(Onlooker):
    """Tells everything on stderr, with a bar for decoding and one for each run."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.counting = Counting()

    def say(self, text: str) -> None:
        """Print a line, or several."""
        self.counting.close()
        self.console.print(text, markup=False)

    def on_decode(self, count: int, total: int) -> None:
        """Move the bar."""
        self.counting(count, total)

    def watch(self) -> Callback:
        """Return a bar."""
        return ShortBar()


class ShortBar(Bar):
    """A bar that fits a narrow terminal and says only what this command is about."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        """Show the bar, without the folder of the run."""
        self.progress.update(self.task, total=steps, completed=step, visible=True)
        self.progress.start()

    def on_log(self, entry: dict[str, Any]) -> None:
        """Show the error, on validation images where there is one."""
        error = entry.get("validation_error", entry.get("error"))
        self.progress.update(self.task, state="" if error is None else f"error {error:.1%}")


def show(fitted: Fitted) -> None:
    """Print the advice, where everything is and how to go on."""
    console = Console(highlight=False, markup=False)
    console.print(fitted.advice, soft_wrap=not console.is_terminal)
    files = fitted.files
    network = quote(str(files.get("onnx", files["safetensors"])))
    lines = [
        f"report     {files['report'].resolve().as_uri()}",
        f"to label   invint predict {network} PICTURES --out answers.csv",
        f"to try it  invint serve {network}",
    ]
    console.print("\n".join(lines), soft_wrap=True)
