"""Callbacks that show a run: a bar with epoch, error and time left, or JSON for scripts."""

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from invint.train.callbacks import TRACKERS

if TYPE_CHECKING:  # a single run does not need them
    from invint.study.grid import Cell
    from invint.study.pool import Outcome, Workspace

LOOK = 1.0  # seconds between two looks at the logs of other processes
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
    *, quiet: bool = False, as_json: bool = False, brief: bool = False, **trackers: bool
) -> Callback:
    """Return the callback that the options of a command ask for, with the trackers among them."""
    callbacks: list[Callback] = [TRACKERS[name]() for name, asked in trackers.items() if asked]
    if as_json:
        callbacks.append(JsonLines())
    elif not quiet and sys.stderr:  # None where there is no terminal, as in a service
        callbacks.append(ProgressBar(brief=brief))
    return Callbacks(callbacks)


class StudyProgress:
    """A bar over the steps of all runs, with the time left, and a line for each finished run.

    Args:
        cells: The runs of the study, finished or not.
        workspace: Where their logs are.
    """

    def __init__(self, cells: "Sequence[Cell]", workspace: "Workspace") -> None:
        self.cells, self.workspace = cells, workspace
        self.steps = {cell: workspace.steps_done(cell) for cell in cells}
        self.finished = len(cells) - len(workspace.unfinished(cells))
        self.ended = threading.Event()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:.0f} % of all steps"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console(error=True),
            speed_estimate_period=300.0,
        )
        total, done = sum(cell.steps for cell in cells), sum(self.steps.values())
        self.task = self.progress.add_task(self._title, total=total, completed=done)

    @property
    def _title(self) -> str:
        return f"{self.finished} of {len(self.cells)} runs"

    @contextmanager
    def shown(self) -> Iterator["StudyProgress"]:
        """Show the bar, and follow the logs of other processes meanwhile."""
        follower = threading.Thread(target=self._follow, daemon=True)
        with self.progress:
            follower.start()
            try:
                yield self
            finally:
                self.ended.set()
                follower.join()

    def callback(self, cell: "Cell") -> Callback:
        """Return the callback of a run in this process."""
        return _RunCallback(self, cell)

    def update(self, cell: "Cell", step: int) -> None:
        """Move the bar: a run is at a step."""
        self.steps[cell] = step
        self.progress.update(self.task, completed=sum(self.steps.values()), description=self._title)

    def finish(self, outcome: "Outcome") -> None:
        """Say how a run ended."""
        self.finished += not outcome.problem
        self.update(outcome.cell, outcome.cell.steps)
        error = "" if outcome.error is None else f"{outcome.error:.2%} error"
        self.say(f"{outcome.cell.label}: {outcome.problem or error}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        say(text, above=self.progress)

    def read_logs(self) -> None:
        """Move the bar to where the logs of the runs are."""
        for cell in self.cells:
            step = self.workspace.steps_done(cell) if self.steps[cell] < cell.steps else 0
            if step > self.steps[cell]:
                self.update(cell, step)

    def _follow(self) -> None:
        while not self.ended.wait(LOOK):
            self.read_logs()


class _RunCallback(Callback):
    """Counts the steps of one run for the bar of all.

    Args:
        study: The bar.
        cell: The run.
    """

    def __init__(self, study: StudyProgress, cell: "Cell") -> None:
        self.study, self.cell = study, cell

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        """Count what an earlier start did."""
        self.study.update(self.cell, step)

    def on_step(self, step: int) -> None:
        """Count a step."""
        self.study.update(self.cell, step)

    def on_note(self, text: str) -> None:
        """Show what the user should know."""
        self.study.say(f"{self.cell.label}: {text}")
