"""Tuning: an optimizer proposes, runs answer, and a journal remembers both."""

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from invint.errors import ConfigError, RunError
from invint.study.optimizers import Optimizer, Proposal
from invint.study.space import OWNER, Configuration
from invint.study.trials import Journal, Measured, Trial
from invint.study.workers import end_with_parent

Evaluate = Callable[[Configuration, float], Measured]
Heard = Callable[[Trial], None]


@runtime_checkable
class Executor(Protocol):
    """Carries out calls: a pool of processes, the executor of a Dask client, or `Here`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        """Begin a call."""


class Here:
    """Carries out calls in this process, one after the other."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> "Future[Any]":
        """Make a call."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to propose nothing more: after this many trials, or these hours.

    Attributes:
        trials: Number of trials.
        hours: Of the clock, over all starts; trials under way are completed.
    """

    trials: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.hours is None):
            raise ConfigError(f"{OWNER}: give either --trials or --hours")
        if (self.trials is not None and self.trials < 1) or (
            self.hours is not None and not 0 < self.hours < math.inf
        ):
            raise ConfigError(
                f"{OWNER}: the budget must be positive, got "
                + (f"--hours {self.hours:g}" if self.trials is None else f"--trials {self.trials}")
            )

    def left(self, trials: int, seconds: float) -> bool:
        """Say whether one more trial may be begun."""
        if self.trials is not None:
            return trials < self.trials
        return self.hours is not None and seconds < 3600 * self.hours


def tune(
    optimizer: Optimizer,
    evaluate: Evaluate,
    journal: Journal,
    budget: Budget,
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    heard: Heard = lambda trial: None,  # noqa: ARG005
) -> list[Trial]:
    """Try what an optimizer proposes until the budget is spent, and return all trials.

    What the journal has is not tried again: the optimizer, which must be new, is led through it.

    Args:
        optimizer: Proposes; as new as when the journal began.
        evaluate: Takes a configuration and a share of the iterations to a validation error.
        journal: Remembers; a tuning that was killed goes on from it.
        budget: When to end.
        executor: Where trials are carried out; here by default.
        jobs: How many at once.
        heard: Hears of each trial that has ended.
    """
    began, before = time.monotonic(), journal.elapsed
    flight = Flight(executor or Here(), evaluate)
    for trial, proposal in replay(optimizer, journal):
        flight.begin(trial, proposal)
    while True:
        while flight.size < jobs and budget.left(
            len(journal.trials), before + time.monotonic() - began
        ):
            new = propose(optimizer, journal)
            if new is None:
                break
            flight.begin(*new)
        if not flight.size:
            return journal.trials
        for trial, proposal, measured in flight.landed():
            ended = measured.of(trial, before + time.monotonic() - began)
            journal.add(ended)
            optimizer.learn(proposal, ended.validation_error)
            heard(ended)


class Flight:
    """The trials under way.

    Args:
        executor: Where they are carried out.
        evaluate: What is carried out.
    """

    def __init__(self, executor: Executor, evaluate: Evaluate) -> None:
        self.executor, self.evaluate = executor, evaluate
        self.pending: dict[Future[Measured], tuple[Trial, Proposal]] = {}

    @property
    def size(self) -> int:
        """How many."""
        return len(self.pending)

    def begin(self, trial: Trial, proposal: Proposal) -> None:
        """Begin one more."""
        future = self.executor.submit(self.evaluate, trial.configuration, trial.fidelity)
        self.pending[future] = trial, proposal

    def landed(self) -> Iterator[tuple[Trial, Proposal, Measured]]:
        """Wait for the next to end, and yield those that have, in the order of the proposals."""
        done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda each: self.pending[each][0].number):
            trial, proposal = self.pending.pop(future)
            yield trial, proposal, answer(future)


def propose(optimizer: Optimizer, journal: Journal) -> tuple[Trial, Proposal] | None:
    """Ask for a proposal and write it down; none while the optimizer waits for answers."""
    proposal = optimizer.propose()
    if proposal is None:
        return None
    trial = Trial(
        number=len(journal.trials),
        configuration=proposal.configuration,
        fidelity=proposal.fidelity,
    )
    journal.add(trial)
    return trial, proposal


def replay(optimizer: Optimizer, journal: Journal) -> list[tuple[Trial, Proposal]]:
    """Lead a new optimizer through a journal; return the proposals without an answer."""
    open_ones: dict[int, tuple[Trial, Proposal]] = {}
    for entry in journal.entries:
        if entry.state != "proposed":
            optimizer.learn(open_ones.pop(entry.number)[1], entry.validation_error)
            continue
        proposal = optimizer.propose()
        found = None if proposal is None else (proposal.configuration, proposal.fidelity)
        if proposal is None or found != (entry.configuration, entry.fidelity):
            raise RunError(
                f"{journal.path}: trial {entry.number} is not what would be proposed now; the file "
                "comes from other versions: move it away to begin anew (finished runs are not "
                "repeated)"
            )
        open_ones[entry.number] = entry, proposal
    return list(open_ones.values())


def answer(future: "Future[Measured]") -> Measured:
    """Return what came of a trial, or say that its process died."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise RunError(
            f"{OWNER}: a process was killed, perhaps for want of memory; the same command goes on, "
            "with fewer --jobs if need be"
        ) from error


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """Give processes side by side, or this one; stop at once when something goes wrong."""
    if jobs == 1:
        yield Here()
        return
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
