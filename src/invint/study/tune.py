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
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from invint.errors import ConfigError, RunError
from invint.files import write_atomically, write_figure
from invint.recipes import Recipe
from invint.study.journal import Journal, Measured, Trial, best_trial, cost, incumbents
from invint.study.pool import InProcess, Workspace
from invint.study.search import (
    OPTIMIZERS,
    OWNER,
    Choice,
    Configuration,
    Optimizer,
    Proposal,
    Range,
    Space,
    configured,
)
from invint.train import Execution
from invint.train.store import RunStore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        data = replace(recipe.data, validation=VALIDATION, test_turns=1)
        train = replace(recipe.train, scale=round(fidelity, 6))
        return replace(recipe, data=data, train=train)

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
    return replace(found, name=f"{recipe.name}-tuned", about=about)


TITLES = {"bohb": "BOHB", "random": "random search"}
COLOURS = {"bohb": "#0072b2", "random": "#d55e00"}
MARKERS = {"bohb": "o", "random": "s"}
TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)
PANELS = 4  # beside each other
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


def write_outcome(
    folder: Path,
    ended: Mapping[str, Sequence[Trial]],
    space: Space,
    reference: float | None = None,
) -> list[Path]:
    """Write `trials.csv`, `tuning.png` and `tuning.svg`, and return their paths.

    Args:
        folder: Of the tuning.
        ended: For each method its trials, in the order in which they ended.
        space: What was tuned.
        reference: The validation error of the recipe's own values, if it is known.
    """
    table = folder / "trials.csv"
    by_number = {
        method: sorted(found, key=lambda trial: trial.number) for method, found in ended.items()
    }
    write_atomically(table, trials_csv(by_number, space))
    figure = draw_tuning(ended, space, reference)
    paths = [folder / "tuning.png", folder / "tuning.svg"]
    for path in paths:
        write_figure(figure, path, dpi=150)
    return [table, *paths]


def draw_tuning(
    ended: Mapping[str, Sequence[Trial]], space: Space, reference: float | None = None
) -> "Figure":
    """Draw the lowest error against cost, and the error against each parameter.

    Only trials with the most iterations are compared; those with fewer are smaller and fainter.
    """
    from matplotlib.figure import Figure

    rows = -(-len(space) // PANELS)
    figure = Figure(figsize=(11, 3.4 + 2.5 * rows), layout="constrained")
    top, below = figure.subfigures(2, 1, height_ratios=[3.4, 2.5 * rows], squeeze=False)[:, 0]
    draw_search(top.subplots(), ended, reference)
    panels = list(below.subplots(rows, PANELS, squeeze=False, sharey=True).flat)
    for panel, parameter in zip(panels, space, strict=False):
        draw_parameter(panel, ended, parameter)
    for panel in panels[len(space) :]:
        panel.set_axis_off()
    for panel in panels[::PANELS]:
        panel.set_ylabel("validation error, %")
    return figure


def draw_search(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], reference: float | None = None
) -> None:
    """Draw the lowest validation error so far against what the search has cost."""
    top = max((trial.fidelity for found in ended.values() for trial in found), default=1.0)
    for method, found in ended.items():
        spent = list(accumulate(trial.fidelity for trial in found))
        _dots(axes, spent, found, method, top)
        points = incumbents(found, top)
        if points:
            places, errors = zip(*points, strict=True)
            axes.step(
                [*places, spent[-1]],
                [100 * error for error in (*errors, errors[-1])],
                where="post",
                color=COLOURS[method],
                label=f"{TITLES[method]}: lowest with {share(top)}",
            )
    if reference is not None:
        axes.axhline(100 * reference, color="0.4", linestyle="--", label="the recipe's own values")
    axes.set_xlabel("cost, in trials with all iterations")
    axes.set_ylabel("validation error, %")
    axes.set_title("small and faint: trials with fewer iterations", loc="left", fontsize=10)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    _clean(axes, [trial for found in ended.values() for trial in found])


def draw_parameter(
    axes: "Axes", ended: Mapping[str, Sequence[Trial]], parameter: Range | Choice
) -> None:
    """Draw the validation errors against the values of one parameter; a ring is the best."""
    path = parameter.path
    everything = [trial for found in ended.values() for trial in found]
    top = max((trial.fidelity for trial in everything), default=1.0)
    for method, found in ended.items():
        _dots(axes, [trial.configuration[path] for trial in found], found, method, top)
    best = best_trial(everything)
    if best is not None and best.validation_error is not None:
        place = best.configuration[path], 100 * best.validation_error
        axes.plot(*place, "o", markersize=13, markerfacecolor="none", color="black")
    axes.set_xscale("log" if parameter.log else "linear")
    if isinstance(parameter, Choice):
        axes.set_xticks(parameter.values, labels=[f"{value:g}" for value in parameter.values])
        axes.set_xticks([], minor=True)
        axes.margins(x=0.15)
    else:
        _fit(axes, parameter)
    axes.set_xlabel(path)
    _clean(axes, everything)


def _dots(
    axes: "Axes", places: Sequence[float], trials: Sequence[Trial], method: str, top: float
) -> None:
    """Draw trials; those with fewer iterations smaller and fainter, failed ones not at all."""
    from matplotlib.colors import to_rgba

    done = [
        (place, 100 * trial.validation_error, trial.fidelity / top)
        for place, trial in zip(places, trials, strict=True)
        if trial.validation_error is not None
    ]
    axes.scatter(
        [place for place, _, _ in done],
        [error for _, error, _ in done],
        s=[9 + 36 * share for _, _, share in done],
        c=[to_rgba(COLOURS[method], 0.3 + 0.6 * share) for _, _, share in done],
        marker=MARKERS[method],
        linewidths=0,
    )


def _fit(axes: "Axes", parameter: Range) -> None:
    """Show the whole range of a parameter, with few numbers below."""
    low, high = parameter.low, parameter.high
    if not parameter.log:
        axes.set_xlim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        return
    axes.set_xlim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
    if high / low < 100:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        ticks = [step * 10.0**decade for decade in decades for step in (1, 2, 5, 10)]
        ticks = sorted({tick for tick in ticks if low <= tick <= high})
        axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)


def _clean(axes: "Axes", trials: Sequence[Trial]) -> None:
    """Draw errors logarithmically, linearly below one percent, with whole numbers beside."""
    errors = [100 * each.validation_error for each in trials if each.validation_error is not None]
    lowest = min(errors, default=1.0)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    axes.set_ylim(-0.1 if lowest < 1.5 else 0.75 * lowest, 115)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def share(fidelity: float) -> str:
    """Say how many of the iterations a trial had."""
    return "all iterations" if fidelity == 1 else f"{fidelity:.3g} of the iterations"
