"""Callbacks that show a run: a bar with epoch, error and time left, or JSON for scripts."""

import json
import sys
from pathlib import Path
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from invint.cli.console import Counting, console, say, write
from invint.train import Callback, Callbacks
from invint.train.callbacks import TensorBoard

ROOMY = 100  # columns that have room for the learning rate and the time so far as well


class ProgressBar(Callback):
    """A bar on stderr, and a line above it where something happens.

    Args:
        brief: Show the error alone, for commands that train one network after another.
    """

    def __init__(self, *, brief: bool = False) -> None:
        self.brief, self.decoding = brief, Counting()
        self.preparing = False
        self.begin(None)

    def begin(self, steps: int | None) -> None:
        """Make a bar for a run; it is shown when it is started."""
        out = console(error=True)
        self.roomy = out.width >= ROOMY
        columns = [
            BarColumn(bar_width=24),  # gives way to the text where a terminal is narrow
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[state]}", markup=False),
            *([TimeElapsedColumn()] if self.roomy else []),
            TextColumn("left"),
            TimeRemainingColumn(),
        ]
        self.progress = Progress(*columns, console=out)
        self.task = self.progress.add_task("training", total=steps, state="")

    def on_decode(self, count: int, total: int) -> None:
        """Show a bar of its own."""
        self.decoding(count, total)

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """Show the bar, one for each run."""
        if not self.brief:
            self.on_note(f"{'resuming' if step else 'run'} {folder}")
        self.begin(steps)
        self.progress.update(self.task, completed=step)
        self.preparing = True  # on a GPU the compiler and cuDNN take half a minute
        self._describe("preparing the first step")
        self.progress.start()

    def on_step(self, step: int) -> None:
        """Move on."""
        if self.preparing:
            self.preparing = False
            self._describe("")
        self.progress.update(self.task, completed=step)

    def on_log(self, entry: dict[str, Any]) -> None:
        """Show the numbers of the epoch."""
        if self.brief:
            error = entry.get("validation_error", entry.get("error"))
            self._describe("" if error is None else f"error {error:.1%}")
        elif "event" in entry:
            self.on_note(f"epoch {entry['epoch']:g}: {_selected(entry)}")
        else:
            text = f"epoch {entry['epoch']:.0f}  error {entry['error']:.1%}"
            if "validation_error" in entry:
                text += f"  validation {entry['validation_error']:.1%}"
            self._describe(f"{text}  lr {entry['lr']:.1e}" if self.roomy else text)

    def on_note(self, text: str) -> None:
        """Print a line above the bar, or the lines of a report."""
        self.decoding.close()  # two bars at once would overwrite each other
        for line in text.split("\n"):
            say(line, above=self.progress)

    def on_end(self) -> None:
        """Leave the bar as it is and give the terminal back."""
        self.decoding.close()
        if self.progress.live.is_started:
            self.progress.stop()

    def _describe(self, state: str) -> None:
        self.progress.update(self.task, state=state)


def _selected(entry: dict[str, Any]) -> str:
    """Describe an event of the log: which monomials were selected."""
    if entry["event"] != "selection":
        return f"{len(entry['start']['distances'])} monomials, kept as drawn"
    kept = len(entry["kept"])
    if "tried" in entry:
        tried, accepted = f"{entry['tried']:,}", f"{entry['accepted']:,}"
        return f"{kept} monomials by least squares, {accepted} of {tried} exchanges made"
    return f"{kept} of {len(entry['scores'])} monomials kept"


class JsonLines(Callback):
    """One JSON object a line on stdout, for scripts."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """Print which run it is and where it starts."""
        self._write("started", {"folder": str(folder), "step": step, "steps": steps})

    def on_log(self, entry: dict[str, Any]) -> None:
        """Print what was logged; an entry that is not about an epoch names its own event."""
        self._write("epoch", entry)

    def on_note(self, text: str) -> None:
        """Print a note."""
        self._write("note", {"text": text})

    def on_finish(self, result: dict[str, Any]) -> None:
        """Print the result."""
        self._write("finished", result)

    def _write(self, event: str, values: dict[str, Any]) -> None:
        write(json.dumps({"event": event} | values) + "\n")


def callback_for(
    *, quiet: bool = False, as_json: bool = False, tensorboard: bool = False, brief: bool = False
) -> Callback:
    """Return the callback that the options of a command ask for."""
    callbacks: list[Callback] = [TensorBoard()] if tensorboard else []
    if as_json:
        callbacks.append(JsonLines())
    elif not quiet and sys.stderr:  # None where there is no terminal, as in a service
        callbacks.append(ProgressBar(brief=brief))
    return Callbacks(callbacks)
