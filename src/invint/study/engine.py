"""Carrying out the runs of a study: where, in which order, and one after the other."""

import json
import os
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from invint.errors import Interrupted, InvintError, RunLockedError
from invint.files import write_whole
from invint.run import Execution, Watch, train_run
from invint.run.folder import RunFolder
from invint.study.grid import Cell

PAUSE = 2.0  # seconds before a run is tried again that another process is at work on
LOSSES = 3  # processes that may be lost over one run
TAIL = 1 << 16  # bytes of a log that hold its last line, however many monomials are in it

Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how the runs of a study are carried out.

    Attributes:
        runs: Where the folders of runs are.
        data_dir: Where data sets are.
        execution: Device, precision, threads.
        known: Hash of the recipe and seed of runs that were finished elsewhere.
    """

    runs: Path = Path("runs")
    data_dir: Path | None = None
    execution: Execution = field(default_factory=Execution)
    known: frozenset[tuple[str, int]] = frozenset()

    def folder(self, cell: Cell) -> Path:
        """Return the folder of a run."""
        return RunFolder.of(self.runs, cell.recipe, cell.seed).path

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the runs that have no result yet."""
        return [cell for cell in cells if not self._finished(cell)]

    def steps_done(self, cell: Cell) -> int:
        """Return how many steps of a run are done, as far as its log says."""
        if self._finished(cell):
            return cell.steps
        return min(steps_logged(self.folder(cell)), cell.steps)

    def has_result(self, cell: Cell) -> bool:
        """Return whether the folder of a run has its result."""
        return (self.folder(cell) / "result.json").exists()

    def _finished(self, cell: Cell) -> bool:
        return (cell.recipe.hash, cell.seed) in self.known or self.has_result(cell)


@dataclass(frozen=True)
class Outcome:
    """How a run of a study ended.

    Attributes:
        cell: The run.
        folder: Its folder.
        error: Share of the test images with a wrong answer; none without a result.
        problem: Why there is no result, if there is none.
        at_work: Whether the reason is another process at work on the same run.
    """

    cell: Cell
    folder: Path
    error: float | None = None
    problem: str = ""
    at_work: bool = False


class Waiting:
    """The runs that are still to be begun. Those another process works at come again at the end.

    Args:
        cells: The runs.
        note: Hears once of each run that has to wait.
    """

    def __init__(self, cells: Sequence[Cell], note: Note) -> None:
        self.cells, self.note = deque(cells), note
        self.losses, self.told = Counter[Cell](), set[Cell]()

    def postponed(self, outcome: Outcome) -> bool:
        """Return whether a run is to be tried again, and put it last if so."""
        if not outcome.at_work:
            return False
        if outcome.cell not in self.told:
            self.note(f"{outcome.cell.label}: another process is at work on it; trying again later")
        self.told.add(outcome.cell)
        self.cells.append(outcome.cell)
        return True

    def lost(self, cell: Cell, folder: Path) -> Outcome | None:
        """Put a run whose process is gone first; return its end if that happened too often."""
        self.losses[cell] += 1
        if self.losses[cell] >= LOSSES:
            problem = f"its process was lost {LOSSES} times; is there enough memory for it?"
            return Outcome(cell, folder, problem=f"{folder}: {problem}")
        self.note(f"{cell.label}: its process was lost; going on from its last checkpoint")
        self.cells.appendleft(cell)
        return None


def silent(text: str) -> None:
    """Hear nothing."""


def carry_out(cell: Cell, place: Place, watch: Watch | None = None) -> Outcome:
    """Carry out one run, or what is left of it; what goes wrong with it is its outcome."""
    folder = place.folder(cell)
    try:
        train_run(
            cell.recipe,
            seed=cell.seed,
            runs=place.runs,
            data_dir=place.data_dir,
            execution=place.execution,
            watch=watch,
        )
        result = RunFolder(folder).result or {}
    except Interrupted:
        raise
    except RunLockedError as error:
        time.sleep(PAUSE)
        return Outcome(cell, folder, problem=str(error), at_work=True)
    except InvintError as error:
        return Outcome(cell, folder, problem=str(error))
    except Exception as error:
        return Outcome(cell, folder, problem=_unexpected(error, folder))
    return Outcome(cell, folder, error=result["error"])


def one_by_one(
    cells: Sequence[Cell],
    place: Place,
    watch: Callable[[Cell], Watch] | None = None,
    note: Note = silent,
) -> Generator[Outcome, None, None]:
    """Carry out runs in this process.

    Args:
        cells: The runs.
        place: Where and how.
        watch: Returns who looks on at a run.
        note: Hears of what a user should know.
    """
    waiting = Waiting(cells, note)
    while waiting.cells:
        cell = waiting.cells.popleft()
        outcome = carry_out(cell, place, None if watch is None else watch(cell))
        if not waiting.postponed(outcome):
            yield outcome


def steps_logged(folder: Path) -> int:
    """Return the step of the last whole line of a run's log; 0 if there is none."""
    try:
        with (folder / "log.jsonl").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def _unexpected(error: Exception, folder: Path) -> str:
    """Keep the traceback of an error that is not ours, and return a line about it."""
    kept = folder / "problem.txt"
    write_whole(kept, "".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {error} (the traceback is in {kept})"
