"""Tuning: trials of what an optimizer proposes, on any executor, until the budget is spent."""

import csv
import hashlib
import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from invint.errors import ConfigError, RunError
from invint.files import write_atomically
from invint.recipes import Recipe
from invint.study.journal import Journal, Measured, Trial, best_trial, cost
from invint.study.pool import InProcess, Workspace
from invint.study.search import (
    OPTIMIZERS,
    OWNER,
    Configuration,
    Optimizer,
    Proposal,
    Space,
    configured,
)
from invint.train import Execution
from invint.train.store import RunStore

VALIDATION = 0.2  # of the training images, as in the appendix

Evaluate = Callable[[Configuration, float], Measured]
OnTrial = Callable[[Trial], None]


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
        if (self.trials is not None and self.trials < 1) or (
            self.hours is not None and not 0 < self.hours < math.inf
        ):
            raise ConfigError(
                f"{OWNER}: the budget must be positive, got "
                + (f"--hours {self.hours:g}" if self.trials is None else f"--trials {self.trials}")
            )

    def left(self, trials: int, seconds: float) -> bool:
        """Say whether one more trial may be started."""
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
    on_trial: OnTrial = lambda trial: None,  # noqa: ARG005
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
    began, before = time.monotonic(), journal.elapsed
    running = RunningTrials(executor or InProcess(), evaluate)
    for trial, proposal in replay(optimizer, journal):
        running.start(trial, proposal)
    while True:
        while len(running) < jobs and budget.left(
            len(journal.trials), before + time.monotonic() - began
        ):
            new = propose(optimizer, journal)
            if new is None:
                break
            running.start(*new)
        if not len(running):
            return journal.trials
        for trial, proposal, measured in running.next_ended():
            ended = measured.of(trial, before + time.monotonic() - began)
            journal.add(ended)
            optimizer.learn(proposal, ended.validation_error)
            on_trial(ended)


class RunningTrials:
    """The trials that are proposed and have not ended.

    Args:
        executor: Where they are trained.
        evaluate: What is called for each.
    """

    def __init__(self, executor: Executor, evaluate: Evaluate) -> None:
        self.executor, self.evaluate = executor, evaluate
        self.futures: dict[Future[Measured], tuple[Trial, Proposal]] = {}

    def __len__(self) -> int:
        return len(self.futures)

    def start(self, trial: Trial, proposal: Proposal) -> None:
        """Start one more."""
        future = self.executor.submit(self.evaluate, trial.configuration, trial.fidelity)
        self.futures[future] = trial, proposal

    def next_ended(self) -> Iterator[tuple[Trial, Proposal, Measured]]:
        """Wait for the next to end, and yield those that have, in the order of the proposals."""
        done, _ = wait(self.futures, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda each: self.futures[each][0].number):
            trial, proposal = self.futures.pop(future)
            yield trial, proposal, _measured(future)


def _measured(future: "Future[Measured]") -> Measured:
    """Return what came of a trial, or say that its process was lost."""
    try:
        return future.result()
    except BrokenExecutor as error:
        raise RunError(
            f"{OWNER}: a process was killed, perhaps for want of memory; the same command resumes, "
            "with fewer --jobs if need be"
        ) from error


def propose(optimizer: Optimizer, journal: Journal) -> tuple[Trial, Proposal] | None:
    """Ask for a proposal and write it down; `None` while the optimizer waits for results."""
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


@dataclass(frozen=True, kw_only=True)
class TrainedTrial:
    """Trains a configuration and returns its validation error; can be sent to other processes.

    Attributes:
        recipe: What is tuned.
        seed: Of subset, validation images, weights and batches; the same for all trials.
        workspace: Where and how runs are trained.
        keep_weights: Whether to leave the weights of a trial that has ended in its folder.
    """

    recipe: Recipe
    seed: int
    workspace: Workspace
    keep_weights: bool = False

    def recipe_of(self, configuration: Configuration, fidelity: float) -> Recipe:
        """Return the recipe of a trial; rotated copies of test images are left out."""
        recipe = configured(self.recipe, configuration)
        return recipe.replace(
            data={"validation": VALIDATION, "test_turns": 1}, train={"scale": round(fidelity, 6)}
        )

    def __call__(self, configuration: Configuration, fidelity: float) -> Measured:
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
            seconds = time.monotonic() - began
            return Measured(None, seconds, str(store.path), str(error))
        result = store.result or {}
        if "validation_error" not in result:
            raise RunError(
                f"{store.path}: the run has no validation error; remove the folder to try again"
            )
        if not (finished_before or self.keep_weights):
            store.discard_weights()
        return Measured(result["validation_error"], result["seconds"], str(store.path))


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A recipe, where it is looked for better values, and where the trials are kept.

    Attributes:
        recipe: What is tuned.
        space: The values that are tuned.
        seed: Of the proposals and of every run.
        scales: Lowest and highest fraction of the iterations.
        workspace: Where and how trials are trained.
        keep_weights: Whether to leave the weights of trials in their folders.
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

    @property
    def evaluate(self) -> TrainedTrial:
        """What a trial is."""
        return TrainedTrial(
            recipe=self.recipe,
            seed=self.seed,
            workspace=self.workspace,
            keep_weights=self.keep_weights,
        )

    def describe(self) -> None:
        """Write down what is tuned, for whoever looks into the folder."""
        values = {
            "recipe": self.recipe.name,
            "choices": self.recipe.choices,
            "seed": self.seed,
            "scales": self.scales,
            "space": [each.path for each in self.space],
        }
        write_atomically(self.store.path / "tuning.json", json.dumps(values, indent=1) + "\n")

    def search(
        self,
        method: str,
        budget: Budget,
        executor: Executor,
        *,
        jobs: int,
        progress: Callable[[str, Budget, Journal], AbstractContextManager[OnTrial]],
    ) -> list[Trial]:
        """Search by one method and return its trials in the order in which they ended."""
        journal = Journal(self.store.path / f"{method}.jsonl")
        optimizer = OPTIMIZERS[method](self.space, self.scales, self.seed)
        with progress(method, budget, journal) as on_trial:
            tune(
                optimizer,
                self.evaluate,
                journal,
                budget,
                executor=executor,
                jobs=jobs,
                on_trial=on_trial,
            )
        return journal.ended

    def equal_budget(self, trials: Sequence[Trial]) -> Budget:
        """Return as many trials with the most iterations as cost no less than these."""
        return Budget(trials=math.ceil(cost(trials) / self.scales[1] - 1e-9))


def tuned_recipe(recipe: Recipe, trial: Trial, method: str, trials: int) -> Recipe:
    """Return the recipe with the values of a trial, to be trained on all images in full."""
    error = "no" if trial.validation_error is None else f"{trial.validation_error:.2%}"
    about = (
        f"{recipe.name} tuned by {method}: {error} validation error with "
        f"{share(trial.fidelity)}, best of {trials} trials"
    )
    found = configured(recipe, trial.configuration)
    return found.replace(name=f"{recipe.name}-tuned", about=about)


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
