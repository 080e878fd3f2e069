"""Carrying out the runs of a study: one after the other here, or several processes side by side."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from invint.errors import Interrupted, InvintError
from invint.run import Execution, Watch, train_run
from invint.run.folder import RunFolder
from invint.study.grid import Cell


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how the runs of a study are carried out.

    Attributes:
        runs: Where the folders of runs are.
        data_dir: Where data sets are.
        execution: Device, precision, threads.
    """

    runs: Path = Path("runs")
    data_dir: Path | None = None
    execution: Execution = field(default_factory=Execution)

    def folder(self, cell: Cell) -> Path:
        """Return the folder of a run."""
        return RunFolder.of(self.runs, cell.recipe, cell.seed).path

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the runs that have no result yet."""
        return [cell for cell in cells if not (self.folder(cell) / "result.json").exists()]


@dataclass(frozen=True)
class Outcome:
    """How a run of a study ended.

    Attributes:
        cell: The run.
        folder: Its folder.
        problem: Why there is no result, if there is none.
    """

    cell: Cell
    folder: Path
    problem: str = ""


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
    except Interrupted:
        raise
    except InvintError as error:
        return Outcome(cell, folder, str(error))
    return Outcome(cell, folder)


def one_by_one(
    cells: Sequence[Cell], place: Place, watch: Callable[[Cell], Watch] | None = None
) -> Iterator[Outcome]:
    """Carry out runs in this process."""
    for cell in cells:
        yield carry_out(cell, place, None if watch is None else watch(cell))


def side_by_side(cells: Sequence[Cell], place: Place, jobs: int) -> Iterator[Outcome]:
    """Carry out runs in several processes of this machine."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        pending = [pool.submit(carry_out, cell, place) for cell in cells]
        try:
            for done in as_completed(pending):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
