"""How a run is shown: a bar with epoch, error, learning rate and time left; or lines; or JSON."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from invint.data.dataset import Dataset
from invint.errors import ConfigError
from invint.recipes.recipe import DataChoice
from invint.train import Callback
from invint.train.setup import load_data


class Counting:
    """A bar on a terminal that comes with the first of many things and goes with the last.

    Args:
        what: Happens to them.
    """

    def __init__(self, what: str = "decoding") -> None:
        columns = (
            TextColumn(what),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self.task = self.progress.add_task(what, total=None)

    def __call__(self, count: int, total: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=count, total=total)
        if count == total:
            self.close()
        elif self.progress.console.is_terminal:
            self.progress.start()

    def close(self) -> None:
        """Give the terminal back."""
        if self.progress.live.is_started:
            self.progress.stop()

    def __enter__(self) -> "Counting":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def loaded(choice: DataChoice, data_dir: Path | None) -> Dataset:
    """Read a data set; a bar shows how far pictures are that are decoded for the first time."""
    with Counting() as progress:
        return load_data(choice, data_dir, progress=progress)


class Bar(Callback):
    """A progress bar on stderr, and a line where something happens."""

    def __init__(self) -> None:
        self.console, self.counting = Console(stderr=True), Counting()
        self.preparing = False
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.progress.add_task("training", total=None, state="", visible=False)

    def on_decode(self, count: int, total: int) -> None:
        """Show a bar of its own."""
        self.counting(count, total)

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """Show the bar."""
        self.on_note(f"{'going on in' if step else 'run'} {folder}")
        self.preparing = True  # on a GPU the compiler and cuDNN take half a minute
        state = "preparing the first step"
        self.progress.update(self.task, total=steps, completed=step, visible=True, state=state)
        self.progress.start()

    def on_step(self, step: int) -> None:
        """Move on."""
        if self.preparing:
            self.preparing = False
            self.progress.update(self.task, state="")
        self.progress.update(self.task, completed=step)

    def on_log(self, entry: dict[str, Any]) -> None:
        """Show the numbers of the epoch."""
        if "event" in entry:
            self.on_note(f"epoch {entry['epoch']:g}: {_chosen(entry)}")
            return
        state = f"epoch {entry['epoch']:.0f}  error {entry['error']:.1%}  lr {entry['lr']:.1e}"
        if "validation_error" in entry:
            state += f"  validation {entry['validation_error']:.1%}"
        self.progress.update(self.task, state=state)

    def on_note(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def on_end(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        self.counting.close()
        if self.progress.live.is_started:
            self.progress.stop()


class Lines(Callback):
    """One JSON object a line on stdout, for scripts."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """Print where the run is and how far."""
        self._print({"event": "started", "folder": str(folder), "step": step, "steps": steps})

    def on_log(self, entry: dict[str, Any]) -> None:
        """Print what was logged."""
        self._print({"event": "epoch"} | entry)

    def on_note(self, text: str) -> None:
        """Print what is to be known."""
        self._print({"event": "note", "text": text})

    def on_finish(self, result: dict[str, Any]) -> None:
        """Print the result."""
        self._print({"event": "finished"} | result)

    def _print(self, values: dict[str, Any]) -> None:
        print(json.dumps(values), flush=True)


class TensorBoard(Callback):
    """Passes everything on, and writes the log for TensorBoard into the run's folder."""

    def __init__(self, inner: Callback) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "--tensorboard: needs tensorboard; pip install 'invint[tensorboard]'"
            ) from error
        self.inner, self.make = inner, SummaryWriter
        self.writer: Any = None

    def on_decode(self, count: int, total: int) -> None:
        """Pass on."""
        self.inner.on_decode(count, total)

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """Open the file."""
        self.writer = self.make(str(folder / "tensorboard"), purge_step=step)
        self.inner.on_start(folder, step, steps)

    def on_step(self, step: int) -> None:
        """Pass on."""
        self.inner.on_step(step)

    def on_log(self, entry: dict[str, Any]) -> None:
        """Write every number."""
        for name, value in entry.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, entry["step"], time.time())
        self.inner.on_log(entry)

    def on_note(self, text: str) -> None:
        """Pass on."""
        self.inner.on_note(text)

    def on_finish(self, result: dict[str, Any]) -> None:
        """Pass on."""
        self.inner.on_finish(result)

    def on_end(self) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
        self.inner.on_end()


def _chosen(entry: dict[str, Any]) -> str:
    """Say what a line of the log about monomials says."""
    if entry["event"] != "selection":
        return f"{len(entry['start']['distances'])} monomials, kept as drawn"
    kept = len(entry["kept"])
    if "tried" in entry:
        tried, accepted = f"{entry['tried']:,}", f"{entry['accepted']:,}"
        return f"{kept} monomials by least squares, {accepted} of {tried} exchanges made"
    return f"{kept} of {len(entry['scores'])} monomials kept"


def watcher(*, quiet: bool, as_json: bool, tensorboard: bool) -> Callback:
    """Return who looks on: a bar, JSON lines or nobody, perhaps with TensorBoard."""
    inner = Lines() if as_json else Callback() if quiet or not sys.stderr else Bar()
    return TensorBoard(inner) if tensorboard else inner
