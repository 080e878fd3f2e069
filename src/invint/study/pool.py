"""Carrying out the runs of a study: where, in which order, and one after the other."""

import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from invint.errors import (
    ConfigError,
    Interrupted,
    InvintError,
    RunError,
    RunLockedError,
    require_extra,
)
from invint.study.grid import Cell
from invint.train import Callback, Execution, train_run
from invint.train.store import RunStore

PAUSE = 2.0  # seconds before a run is tried again that another process is at work on
LOSSES = 3  # processes that may be lost over one run

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
        return RunStore.at(self.runs, cell.recipe, cell.seed).path

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the runs that have no result yet."""
        return [cell for cell in cells if not self._finished(cell)]

    def steps_done(self, cell: Cell) -> int:
        """Return how many steps of a run are done, as far as its log says."""
        if self._finished(cell):
            return cell.steps
        return min(RunStore(self.folder(cell)).steps_logged(), cell.steps)

    def has_result(self, cell: Cell) -> bool:
        """Return whether the folder of a run has its result."""
        return RunStore(self.folder(cell)).is_complete

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


def carry_out(cell: Cell, place: Place, callback: Callback | None = None) -> Outcome:
    """Carry out one run, or what is left of it; what goes wrong with it is its outcome."""
    folder = place.folder(cell)
    try:
        train_run(
            cell.recipe,
            seed=cell.seed,
            runs=place.runs,
            data_dir=place.data_dir,
            execution=place.execution,
            callback=callback,
        )
        result = RunStore(folder).result or {}
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
    watch: Callable[[Cell], Callback] | None = None,
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


def _unexpected(error: Exception, folder: Path) -> str:
    """Keep the traceback of an error that is not ours, and return a line about it."""
    kept = RunStore(folder).write_problem("".join(traceback.format_exception(error)))
    return f"{type(error).__name__}: {error} (the traceback is in {kept})"


PATIENCE = 30.0  # seconds a process has to save a checkpoint when it is to stop


def side_by_side(
    cells: Sequence[Cell], place: Place, jobs: int, note: Note = silent
) -> Generator[Outcome, None, None]:
    """Carry out runs in several processes of this machine, which share its cores and GPUs.

    A process that is lost costs its run what was done since the last checkpoint.

    Args:
        cells: The runs.
        place: Where and how.
        jobs: Number of processes.
        note: Hears of what a user should know.
    """
    waiting = Waiting(cells, note)
    workers = [_Worker(place, number, jobs) for number in range(min(jobs, len(cells)))]
    try:
        while waiting.cells or any(worker.cell for worker in workers):
            for worker in workers:
                if worker.cell is None and waiting.cells:
                    worker.begin(waiting.cells.popleft())
            for worker in _ready(workers):
                outcome = worker.outcome() or waiting.lost(*worker.lost())
                if outcome is not None and not waiting.postponed(outcome):
                    yield outcome
    finally:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.wait()


class _Worker:
    """A process that carries out one run after the other.

    Args:
        place: Where and how.
        number: Of this process.
        jobs: Number of processes.
    """

    def __init__(self, place: Place, number: int, jobs: int) -> None:
        self.place, self.number, self.jobs = place, number, jobs
        self.cell: Cell | None = None
        self.start()

    def start(self) -> None:
        """Start the process; Ctrl-C reaches it only while it trains."""
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.pipe, theirs = context.Pipe()
        arguments = (theirs, self.place, self.number, self.jobs)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _deaf_to_interrupts():
            self.process.start()
        theirs.close()

    def begin(self, cell: Cell) -> None:
        """Hand a run over; should the process be gone, its outcome says so."""
        self.cell = cell
        try:
            self.pipe.send(cell)
        except OSError:
            return

    def outcome(self) -> Outcome | None:
        """Return the outcome of the run, or nothing if the process is gone."""
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.cell = None
        return outcome

    def lost(self) -> tuple[Cell, Path]:
        """Start another process; return the run that this one was at."""
        cell, self.cell = self.cell, None
        if cell is None:
            raise RuntimeError("a process without a run cannot lose one")
        self.process.join()
        self.start()
        return cell, self.place.folder(cell)

    def stop(self) -> None:
        """Ask the process to save and to end."""
        self.pipe.close()
        if self.cell is not None:
            self.process.terminate()

    def wait(self) -> None:
        """Wait for the end of the process, and make it if need be."""
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    by_pipe = {worker.pipe: worker for worker in workers if worker.cell is not None}
    return [by_pipe[pipe] for pipe in wait(list(by_pipe))]  # type: ignore[index]


def _serve(pipe: Connection, place: Place, number: int, jobs: int) -> None:
    """Carry out what comes through the pipe, until it is closed."""
    end_with_parent()
    choose_gpu(number)
    torch.set_num_threads(threads_each(jobs))
    while True:
        try:
            pipe.send(carry_out(pipe.recv(), place))
        except (EOFError, OSError, Interrupted):
            return


def threads_each(jobs: int) -> int:
    """Return how many threads each of several processes gets when it is not told."""
    return max(1, torch.get_num_threads() // jobs)


def choose_gpu(number: int) -> None:
    """Let a process that has not used a GPU yet see one of them only: the next in turn."""
    count = torch.cuda.device_count()
    if count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[number % count]


def end_with_parent() -> None:
    """End this process at once when the one that started it is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a new process inherits it
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


CONNECT = 5.0  # seconds a scheduler has to answer
ONE_RUN = threading.Lock()  # runs of one process would share its random numbers


def on_cluster(
    cells: Sequence[Cell],
    place: Place,
    *,
    jobs: int = 1,
    address: str | None = None,
    note: Note = silent,
) -> Generator[Outcome, None, None]:
    """Carry out runs on a Dask cluster.

    A lost worker costs its run what was done since the last checkpoint: Dask gives the run to
    another one, which goes on in the same folder.

    Args:
        cells: The runs.
        place: Where and how; the folders must be the same for all workers.
        jobs: Number of workers of a cluster on this machine.
        address: Of the scheduler of another cluster.
        note: Hears of what a user should know.

    Raises:
        ConfigError: Dask is not installed, or no scheduler answers.
        RunError: The scheduler was lost.
    """
    if not cells:
        return
    place = _everywhere(place)
    with ExitStack() as stack:
        client = connected(stack, place, jobs=min(jobs, len(cells)), address=address)
        resources = _resources(client, place, note)
        yield from _carried_out(client, cells, place, address is None, resources, note)


@contextmanager
def cluster_executor(
    place: Place, *, jobs: int = 1, address: str | None = None
) -> Iterator[Executor]:
    """Give what carries out calls on a Dask cluster, as a pool of processes would.

    Args:
        place: Whether the calls want a GPU.
        jobs: Number of workers of a cluster on this machine.
        address: Of the scheduler of another cluster, whose workers should have one thread each.
    """
    with ExitStack() as stack:
        client = connected(stack, place, jobs=jobs, address=address)
        resources = _resources(client, place, silent)
        yield stack.enter_context(client.get_executor(pure=False, resources=resources))


def connected(stack: ExitStack, place: Place, *, jobs: int, address: str | None) -> Any:
    """Return a client of a cluster that is closed with the stack."""
    distributed = require_extra("distributed", "--engine dask", "cluster")
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # a run's memory is its own business
            dashboard_address="127.0.0.1:0",  # any free port
            silence_logs=logging.ERROR,
            resources={"GPU": 1} if _wants_gpus(place) and torch.cuda.is_available() else None,
        )
        stack.enter_context(cluster)
        return stack.enter_context(distributed.Client(cluster))
    try:
        return stack.enter_context(distributed.Client(address, timeout=CONNECT))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--address {address}: no Dask scheduler answers there within {CONNECT:g} s; is it "
            "running, and can this machine reach it?"
        ) from error


def _everywhere(place: Place) -> Place:
    """Return a place that means the same wherever a worker was started."""
    data_dir = None if place.data_dir is None else place.data_dir.resolve()
    return replace(place, runs=place.runs.resolve(), data_dir=data_dir)


def _wants_gpus(place: Place) -> bool:
    return place.execution.device != "cpu"


def _resources(client: Any, place: Place, note: Note) -> dict[str, float] | None:
    """Return what a run asks of a worker: a GPU, where the cluster offers some."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    if not workers:
        note("the cluster has no worker yet: waiting for one")
    if any(worker["nthreads"] > 1 for worker in workers):
        note("a worker with several threads makes one run at a time: start it with --nthreads 1")
    offered = any(worker["resources"].get("GPU") for worker in workers)
    if offered and _wants_gpus(place):
        return {"GPU": 1}
    if place.execution.device == "cuda" and workers:
        note("no worker offers GPUs: start it with --resources GPU=1, or runs share its GPU")
    return None


def _carried_out(
    client: Any,
    cells: Sequence[Cell],
    place: Place,
    own: bool,
    resources: dict[str, float] | None,
    note: Note,
) -> Generator[Outcome, None, None]:
    distributed = require_extra("distributed", "--engine dask", "cluster")
    waiting, runs = Waiting(cells, note), dict[str, Cell]()
    pending = distributed.as_completed()
    while True:
        while waiting.cells:
            cell = waiting.cells.popleft()
            key = f"{cell.recipe.name}-{cell.recipe.hash}-{cell.seed}-{len(runs)}"
            runs[key] = cell
            pending.add(
                client.submit(
                    _on_worker, cell, place, own, key=key, pure=False, resources=resources
                )
            )
        if pending.is_empty():
            return
        future = next(pending)
        outcome = _outcome(future, runs[future.key], place)
        if not waiting.postponed(outcome):
            yield outcome


def _outcome(future: Any, cell: Cell, place: Place) -> Outcome:
    distributed = require_extra("distributed", "--engine dask", "cluster")
    folder = place.folder(cell)
    if future.cancelled():
        raise RunError(
            "the Dask scheduler was lost; finished runs are kept, and the same command goes on"
        )
    try:
        outcome: Outcome = future.result()
    except distributed.KilledWorker:
        problem = f"{folder}: several workers were lost over it; is there enough memory for it?"
        return Outcome(cell, folder, problem=problem)
    except Exception as error:
        return Outcome(cell, folder, problem=f"{folder}: {type(error).__name__}: {error}")
    return outcome


def _on_worker(cell: Cell, place: Place, own: bool) -> Outcome:
    """Carry out a run on a worker."""
    from distributed import get_worker

    with ONE_RUN:
        name = get_worker().name
        if own and isinstance(name, int) and _wants_gpus(place):
            choose_gpu(name)
        return carry_out(cell, place)
