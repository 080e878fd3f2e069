"""The trials of a tuning, and the file from which a tuning that was killed goes on."""

import csv
import hashlib
import io
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from invint.errors import ConfigError, RunError
from invint.files import write_atomically
from invint.recipes import Recipe
from invint.study.pool import Place, end_with_parent
from invint.study.search import (
    OWNER,
    Configuration,
    Optimizer,
    Proposal,
    Space,
    configured,
)
from invint.train import Execution, train_run
from invint.train.store import RunStore


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A configuration, tried with a share of the iterations.

    Attributes:
        number: Its place among the proposals, from 0.
        configuration: The values tried, by their path in the recipe.
        fidelity: Share of the iterations.
        state: `proposed`, `done` or `failed`.
        validation_error: Of the last weights; none unless done.
        seconds: How long it took.
        folder: Of its run.
        problem: Why it failed.
        elapsed: Seconds of the tuning when it ended, over all its starts.
    """

    number: int
    configuration: Configuration
    fidelity: float
    state: str = "proposed"
    validation_error: float | None = None
    seconds: float = 0.0
    folder: str = ""
    problem: str = ""
    elapsed: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What came of a trial.

    Attributes:
        error: The validation error of the last weights; none if the trial failed.
        seconds: How long it took.
        folder: Of its run.
        problem: Why it failed.
    """

    error: float | None
    seconds: float = 0.0
    folder: str = ""
    problem: str = ""

    def of(self, trial: Trial, elapsed: float) -> Trial:
        """Return the trial with this as its end."""
        return replace(
            trial,
            state="failed" if self.error is None else "done",
            validation_error=self.error,
            seconds=round(self.seconds, 3),
            folder=self.folder,
            problem=self.problem,
            elapsed=round(elapsed, 3),
        )


class Journal:
    """Trials in the order in which they were proposed and ended, one JSON object a line.

    A line is added when a trial is proposed and another when it has ended, each flushed to the
    disk. Replayed in this order, an optimizer with the same seed is where it was.

    Args:
        path: The file; what a kill left of its last line is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self.entries = [self._read(line) for line in whole.splitlines()]
        if whole != text:
            write_atomically(path, whole)

    def _read(self, line: str) -> Trial:
        try:
            values: dict[str, Any] = json.loads(line)
            names = {field.name for field in fields(Trial)}
            return Trial(**{key: value for key, value in values.items() if key in names})
        except (ValueError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self.path}: a line is not a trial ({line[:60]!r}); move the file away to begin "
                "anew: finished runs are not repeated"
            ) from error

    def add(self, trial: Trial) -> None:
        """Write a line and wait until it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(trial)

    @property
    def elapsed(self) -> float:
        """Seconds of the tuning so far."""
        return max((entry.elapsed for entry in self.entries), default=0.0)

    @property
    def trials(self) -> list[Trial]:
        """Every trial as it is now, in the order of the proposals."""
        latest = {entry.number: entry for entry in self.entries}
        return [latest[number] for number in sorted(latest)]

    @property
    def ended(self) -> list[Trial]:
        """The trials that have ended, in this order."""
        return [entry for entry in self.entries if entry.state != "proposed"]


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial with the lowest error among those with the most iterations."""
    done = [trial for trial in trials if trial.validation_error is not None]
    return min(done, key=lambda trial: (-trial.fidelity, trial.validation_error), default=None)


def cost(trials: Iterable[Trial]) -> float:
    """Return what trials cost together, in trials with all iterations."""
    return sum(trial.fidelity for trial in trials)


def incumbents(ended: Sequence[Trial], fidelity: float) -> list[tuple[float, float]]:
    """Return pairs of cost so far and lowest error so far, at each trial of a fidelity."""
    points, spent, lowest = list[tuple[float, float]](), 0.0, float("inf")
    for trial in ended:
        spent += trial.fidelity
        if trial.validation_error is not None and trial.fidelity == fidelity:
            lowest = min(lowest, trial.validation_error)
            points.append((spent, lowest))
    return points


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


VALIDATION = 0.2  # of the training images, as in the appendix


@dataclass(frozen=True, kw_only=True)
class TrainedTrial:
    """Trains a configuration and returns its validation error; can be sent to other processes.

    Attributes:
        recipe: What is tuned.
        seed: Of subset, validation images, weights and batches; the same for all trials.
        place: Where and how runs are carried out.
        keep_weights: Whether to leave the weights of a trial that has ended in its folder.
    """

    recipe: Recipe
    seed: int
    place: Place
    keep_weights: bool = False

    def recipe_of(self, configuration: Configuration, fidelity: float) -> Recipe:
        """Return the recipe of a trial; rotated copies of test images are left out."""
        recipe = configured(self.recipe, configuration)
        return recipe.replace(
            data={"validation": VALIDATION, "test_turns": 1}, train={"scale": round(fidelity, 6)}
        )

    def __call__(self, configuration: Configuration, fidelity: float) -> Measured:
        """Train; a loss that is no number or exhausted memory is a failure of the trial."""
        recipe = self.recipe_of(configuration, fidelity)
        folder, began = RunStore.at(self.place.runs, recipe, self.seed), time.monotonic()
        finished_before = folder.result is not None
        try:
            self._train(recipe, folder)
        except RunError as error:
            if isinstance(error.__cause__, OSError):  # the machine's fault, not the trial's
                raise
            seconds = time.monotonic() - began
            return Measured(None, seconds, str(folder.path), str(error))
        result = folder.result or {}
        if "validation_error" not in result:
            raise RunError(
                f"{folder.path}: the run has no validation error; remove the folder to try again"
            )
        if not (finished_before or self.keep_weights):
            folder.discard_weights()
        return Measured(result["validation_error"], result["seconds"], str(folder.path))

    def _train(self, recipe: Recipe, folder: RunStore) -> None:
        begun = folder.environment is not None  # then it keeps its threads
        train_run(
            recipe,
            seed=self.seed,
            runs=self.place.runs,
            data_dir=self.place.data_dir,
            execution=Execution() if begun else self.place.execution,
        )


def tuning_folder(
    runs: Path, recipe: Recipe, seed: int, scales: tuple[float, float], space: Space
) -> RunStore:
    """Return the folder of a tuning; it differs with anything that its proposals depend on."""
    text = repr((recipe.hash, scales, space))
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    return RunStore(runs / recipe.name / f"tuning-{key}-{seed}")


def tuned_recipe(recipe: Recipe, trial: Trial, method: str, trials: int) -> Recipe:
    """Return the recipe with the values of a trial, to be trained on all images in full."""
    error = "no" if trial.validation_error is None else f"{trial.validation_error:.2%}"
    about = (
        f"{recipe.name} tuned by {method}: {error} validation error with "
        f"{share(trial.fidelity)}, best of {trials} trials"
    )
    found = configured(recipe, trial.configuration)
    return found.replace(name=f"{recipe.name}-tuned", about=about)


def describe(folder: RunStore, **values: object) -> None:
    """Write down what is tuned, for whoever looks into the folder."""
    write_atomically(folder.path / "tuning.json", json.dumps(values, indent=1) + "\n")


TITLES = {"bohb": "BOHB", "random": "random search"}
FIRST_COLUMNS = ("method", "number", "fidelity", "state", "validation_error", "seconds")


def trials_csv(trials: Mapping[str, Sequence[Trial]], space: Space) -> str:
    """Return all trials as CSV, one line each, with all digits."""
    paths = [each.path for each in space]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST_COLUMNS, *paths, "folder", "problem"])
    for method, found in trials.items():
        for trial in found:
            error = "" if trial.validation_error is None else trial.validation_error
            writer.writerow(
                [method, trial.number, trial.fidelity, trial.state, error, trial.seconds]
                + [trial.configuration[path] for path in paths]
                + [trial.folder, trial.problem]
            )
    return text.getvalue()


def against_own(best: Trial | None, own: Measured, scale: float) -> str:
    """Say in a plain line whether the best trial is better than the recipe's own values."""
    if own.error is None:
        return f"the recipe's own values: failed ({own.problem})"
    line = f"the recipe's own values: {own.error:.2%} validation error with {share(scale)}"
    if best is None or best.validation_error is None or best.fidelity != scale:
        return line
    gap = 100 * (own.error - best.validation_error)
    if gap <= 0:
        return f"{line}: tuning found nothing better"
    return f"{line}, {gap:.2f} percentage points more than the best trial"


def verdict(trials: Mapping[str, Sequence[Trial]]) -> list[str]:
    """Say in plain lines what each method found at which cost, and which found the better."""
    best = {method: best_trial(found) for method, found in trials.items()}
    lines = [_line(method, found, best[method]) for method, found in trials.items()]
    if len(trials) == 1:
        return lines
    reached = {each.fidelity for each in best.values() if each is not None}
    if None in best.values() or len(reached) > 1:
        return [
            *lines,
            "not compared: their best trials have different iterations, or there is none",
        ]
    errors = {method: each.validation_error or 0.0 for method, each in best.items() if each}
    first, second = sorted(errors, key=lambda method: errors[method])
    gap = errors[second] - errors[first]
    if gap == 0:
        return [*lines, "at equal cost both found the same validation error"]
    return [
        *lines,
        f"at equal cost {TITLES[first]} found {100 * gap:.2f} percentage points less; one tuning "
        "of each says nothing about chance",
    ]


def _line(method: str, trials: Sequence[Trial], best: Trial | None) -> str:
    failed = sum(trial.state == "failed" for trial in trials)
    number = "one trial" if len(trials) == 1 else f"{len(trials)} trials"
    spent = f"{number} that cost {cost(trials):.1f} full ones"
    spent += f", {failed} failed" if failed else ""
    if best is None:
        return f"{TITLES[method]}: no trial succeeded ({spent})"
    return (
        f"{TITLES[method]}: {best.validation_error:.2%} validation error with "
        f"{share(best.fidelity)}, trial {best.number} ({spent})"
    )


def write_trials(folder: Path, ended: Mapping[str, Sequence[Trial]], space: Space) -> Path:
    """Write `trials.csv`, and return its path.

    Args:
        folder: Of the tuning.
        ended: For each method its trials, in the order in which they ended.
        space: What was tuned.
    """
    by_number = {
        method: sorted(found, key=lambda trial: trial.number) for method, found in ended.items()
    }
    write_atomically(folder / "trials.csv", trials_csv(by_number, space))
    return folder / "trials.csv"


def share(fidelity: float) -> str:
    """Say how many of the iterations a trial had."""
    return "all iterations" if fidelity == 1 else f"{fidelity:.3g} of the iterations"
