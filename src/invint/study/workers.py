"""Several processes of one machine that carry out the runs of a study side by side."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from invint.errors import Interrupted
from invint.study.engine import Note, Outcome, Place, Waiting, carry_out, silent
from invint.study.grid import Cell

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
