"""The progress of a study: a bar over the steps of all its runs."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from invint.cli.console import console, say
from invint.study.grid import Cell
from invint.study.pool import Outcome, Workspace
from invint.train import Callback

LOOK = 1.0  # seconds between two looks at the logs of other processes


class StudyProgress:
    """A bar over the steps of all runs, with the time left, and a line for each finished run.

    Args:
        cells: The runs of the study, finished or not.
        workspace: Where their logs are.
    """

    def __init__(self, cells: Sequence[Cell], workspace: Workspace) -> None:
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

    def callback(self, cell: Cell) -> Callback:
        """Return the callback of a run in this process."""
        return _RunCallback(self, cell)

    def update(self, cell: Cell, step: int) -> None:
        """Move the bar: a run is at a step."""
        self.steps[cell] = step
        self.progress.update(self.task, completed=sum(self.steps.values()), description=self._title)

    def finish(self, outcome: Outcome) -> None:
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

    def __init__(self, study: StudyProgress, cell: Cell) -> None:
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
