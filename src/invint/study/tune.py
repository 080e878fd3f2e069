"""Tuning: trials of what an optimizer proposes, on any executor, until the budget is spent.

A journal keeps the trials: from it a tuning that was killed is resumed.
"""

import csv
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from invint.errors import ConfigError, RunError
from invint.files import write_atomically
from invint.recipes import Recipe
from invint.study.pool import InProcess, Workspace
from invint.study.search import OWNER, Configuration, Optimizer, Proposal, Space, configured
from invint.train import Execution
from invint.train.store import RunStore

VALIDATION = 0.2  # of the training images, as in the appendix
TITLES = {"bohb": "BOHB", "random": "random search"}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A configuration, tried with a fraction of the iterations.

    Attributes:
        number: Its index among the proposals, from 0.
        configuration: The values tried, by their path in the recipe.
        fidelity: Fraction of the iterations.
        state: `proposed`, `done` or `failed`.
        validation_error: Of the last weights; `None` unless done.
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
        error: The validation error of the last weights; `None` if the trial failed.
        seconds: How long it took.
        folder: Of its run.
        problem: Why it failed.
    """

    error: float | None
    seconds: float = 0.0
    folder: str = ""
    problem: str = ""


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
                f"{self.path}: a line is not a trial ({line[:60]!r}); move the file away to "
                "start over: finished runs are not repeated"
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


# The loop


@dataclass(frozen=True, kw_only=True)
class Budget:
    """When to propose nothing more: after this many trials, or these hours.

    Attributes:
        trials: Number of trials.
        hours: Of the clock, over all starts; trials that are running are completed.
    """

    trials: int | None = None
    hours: float | None = None

    def __post_init__(self) -> None:
        if (self.trials is None) == (self.hours is None):
            raise ConfigError(f"{OWNER}: give either --trials or --hours")
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"{OWNER}: the budget must be positive, got --trials {self.trials}")
        if self.hours is not None and not 0 < self.hours < math.inf:
            raise ConfigError(f"{OWNER}: the budget must be positive, got --hours {self.hours:g}")

    def left(self, trials: int, seconds: float) -> bool:
        """Say whether one more trial may be started."""
        if self.trials is not None:
            return trials < self.trials
        return self.hours is not None and seconds < 3600 * self.hours


def tune(
    optimizer: Optimizer,
    evaluate: Callable[[Configuration, float], Measured],
    journal: Journal,
    budget: Budget,
    *,
    executor: Executor | None = None,
    jobs: int = 1,
    on_trial: Callable[[Trial], None] = lambda trial: None,  # noqa: ARG005
) -> list[Trial]:
    """Try what an optimizer proposes until the budget is spent, and return all trials.

    What the journal has is not tried again: the optimizer, which must be new, is led through it.

    Args:
        optimizer: Proposes; as new as when the journal began.
        evaluate: Returns the validation error of a configuration with a fraction of the iterations.
        journal: Keeps the trials; a tuning that was killed is resumed from it.
        budget: When to end.
        executor: Where trials are trained; this process by default.
        jobs: How many at once.
        on_trial: Receives each trial that has ended.
    """
    executor = executor or InProcess()
    began = time.monotonic() - journal.elapsed
    running = dict[Future[Measured], tuple[Trial, Proposal]]()

    def start(trial: Trial, proposal: Proposal) -> None:
        running[executor.submit(evaluate, trial.configuration, trial.fidelity)] = trial, proposal

    for trial, proposal in replay(optimizer, journal):
        start(trial, proposal)
    while True:
        while len(running) < jobs and budget.left(len(journal.trials), time.monotonic() - began):
            new = optimizer.propose()
            if new is None:  # until there are more results
                break
            trial = Trial(
                number=len(journal.trials), configuration=new.configuration, fidelity=new.fidelity
            )
            journal.add(trial)
            start(trial, new)
        if not running:
            return journal.trials
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda each: running[each][0].number):
            trial, proposal = running.pop(future)
            ended = _ended(trial, future, time.monotonic() - began)
            journal.add(ended)
            optimizer.learn(proposal, ended.validation_error)
            on_trial(ended)


def _ended(trial: Trial, future: "Future[Measured]", elapsed: float) -> Trial:
    """Return a trial with what came of it, or say that its process was lost."""
    try:
        found = future.result()
    except BrokenExecutor as error:
        raise RunError(
            f"{OWNER}: a process was killed, perhaps for want of memory; the same command resumes, "
            "with fewer --jobs if need be"
        ) from error
    return replace(
        trial,
        state="failed" if found.error is None else "done",
        validation_error=found.error,
        seconds=round(found.seconds, 3),
        folder=found.folder,
        problem=found.problem,
        elapsed=round(elapsed, 3),
    )


def replay(optimizer: Optimizer, journal: Journal) -> list[tuple[Trial, Proposal]]:
    """Lead a new optimizer through a journal; return the proposals without a result."""
    unanswered: dict[int, tuple[Trial, Proposal]] = {}
    for entry in journal.entries:
        if entry.state != "proposed":
            optimizer.learn(unanswered.pop(entry.number)[1], entry.validation_error)
            continue
        proposal = optimizer.propose()
        found = None if proposal is None else (proposal.configuration, proposal.fidelity)
        if proposal is None or found != (entry.configuration, entry.fidelity):
            raise RunError(
                f"{journal.path}: trial {entry.number} is not what would be proposed now; the file "
                "comes from other versions: move it away to start over (finished runs are not "
                "repeated)"
            )
        unanswered[entry.number] = entry, proposal
    return list(unanswered.values())


# Trials that are runs


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A recipe, where it is looked for better values, and where the trials are kept.

    Attributes:
        recipe: What is tuned.
        space: The values that are tuned.
        seed: Of the proposals, and of subset, validation images, weights and batches of all trials.
        scales: Lowest and highest fraction of the iterations.
        workspace: Where and how trials are trained.
        keep_weights: Whether to leave the weights of a trial that has ended in its folder.
    """

    recipe: Recipe
    space: Space
    seed: int
    scales: tuple[float, float]
    workspace: Workspace
    keep_weights: bool = False

    @property
    def store(self) -> RunStore:
        """Its folder; it differs with anything that the proposals depend on."""
        text = repr((self.recipe.hash, self.scales, self.space))
        key = hashlib.sha256(text.encode()).hexdigest()[:8]
        return RunStore(self.workspace.runs / self.recipe.name / f"tuning-{key}-{self.seed}")

    def describe(self) -> None:
        """Write down what is tuned, for whoever looks into the folder."""
        values = {
            "recipe": self.recipe.name,
            "choices": self.recipe.choices,
            "seed": self.seed,
            "scales": self.scales,
            "space": [each.path for each in self.space],
        }
        self.store.write("tuning.json", values)

    def recipe_of(self, configuration: Configuration, fidelity: float) -> Recipe:
        """Return the recipe of a trial; rotated copies of test images are left out."""
        recipe = configured(self.recipe, configuration)
        return recipe.replace(
            data={"validation": VALIDATION, "test_turns": 1}, train={"scale": round(fidelity, 6)}
        )

    def evaluate(self, configuration: Configuration, fidelity: float) -> Measured:
        """Train; a loss that is NaN or infinite, or exhausted memory, is a failure of the trial."""
        recipe = self.recipe_of(configuration, fidelity)
        store, began = RunStore.at(self.workspace.runs, recipe, self.seed), time.monotonic()
        finished_before = store.result is not None
        # A run that is resumed keeps the threads it began with.
        execution = None if store.environment is None else Execution()
        try:
            self.workspace.train(recipe, self.seed, execution=execution)
        except RunError as error:
            if isinstance(error.__cause__, OSError):  # the machine's fault, not the trial's
                raise
            return Measured(None, time.monotonic() - began, str(store.path), str(error))
        result = store.result or {}
        if "validation_error" not in result:
            raise RunError(
                f"{store.path}: the run has no validation error; remove the folder to try again"
            )
        if not (finished_before or self.keep_weights):
            store.discard_weights()
        return Measured(result["validation_error"], result["seconds"], str(store.path))

    def equal_budget(self, trials: Sequence[Trial]) -> Budget:
        """Return as many trials with the most iterations as cost no less than these."""
        return Budget(trials=math.ceil(cost(trials) / self.scales[1] - 1e-9))


def tuned_recipe(recipe: Recipe, trial: Trial, method: str, trials: int) -> Recipe:
    """Return the recipe with the values of a trial, to be trained on all images in full."""
    about = (
        f"{recipe.name} tuned by {method}: {trial.validation_error:.2%} validation error with "
        f"{share(trial.fidelity)}, best of {trials} trials"
    )
    found = configured(recipe, trial.configuration)
    return found.replace(name=f"{recipe.name}-tuned", about=about)


# What they say


def trials_csv(ended: Mapping[str, Sequence[Trial]], space: Space) -> str:
    """Return the trials of each method as CSV, one line each, with all digits."""
    before = ("method", "number", "fidelity", "state", "validation_error", "seconds")
    columns = [*before, *(each.path for each in space), "folder", "problem"]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for method, found in ended.items():
        for trial in sorted(found, key=lambda each: each.number):
            writer.writerow({"method": method} | asdict(trial) | trial.configuration)
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


def share(fidelity: float) -> str:
    """Say how many of the iterations a trial had."""
    return "all iterations" if fidelity == 1 else f"{fidelity:.3g} of the iterations"
