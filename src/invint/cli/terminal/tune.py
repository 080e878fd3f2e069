"""`invint tune`: the search with a bar, its best trials, the recipe file."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from invint.errors import RunError
from invint.figures.style import save_figure
from invint.figures.trials import tuning_figure
from invint.recipes import Recipe
from invint.recipes.registry import write_recipe
from invint.study.pool import Place
from invint.study.search import OPTIMIZERS, OWNER, Space
from invint.study.tune import (
    TITLES,
    Budget,
    Executor,
    Journal,
    Measured,
    TrainedTrial,
    Trial,
    against_own,
    best_trial,
    cost,
    describe,
    share,
    tune,
    tuned_recipe,
    tuning_folder,
    verdict,
    write_trials,
)

SHOWN = 12  # trials in the terminal; all are in trials.csv


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What is tuned, where, and where the outcome goes."""

    recipe: Recipe
    base: str
    space: Space
    seed: int
    scales: tuple[float, float]
    place: Place
    out: Path
    keep_weights: bool
    reference: bool

    @property
    def evaluate(self) -> TrainedTrial:
        """What a trial is."""
        return TrainedTrial(
            recipe=self.recipe, seed=self.seed, place=self.place, keep_weights=self.keep_weights
        )

    def complete(
        self,
        budget: Budget,
        workers: AbstractContextManager[Executor],
        jobs: int,
        *,
        compare: bool,
    ) -> None:
        """Spend the budget, show what was found and write it."""
        arguments = (self.recipe, self.seed, self.scales, self.space)
        folder = tuning_folder(self.place.runs, *arguments)
        with folder.locked():
            describe(
                folder,
                recipe=self.recipe.name,
                choices=self.recipe.choices,
                seed=self.seed,
                scales=self.scales,
                space=[each.path for each in self.space],
            )
            ended = {}
            with workers as executor:
                ended["bohb"] = self.search("bohb", folder.path, budget, executor, jobs)
                if compare:
                    number = math.ceil(cost(ended["bohb"]) / self.scales[1] - 1e-9)
                    equal = Budget(trials=number)
                    ended["random"] = self.search("random", folder.path, equal, executor, jobs)
            own = self.evaluate({}, self.scales[1]) if self.reference else None
            figure = tuning_figure(ended, self.space, None if own is None else own.error)
            files = [folder.path / "tuning.png", folder.path / "tuning.svg"]
            for path in files:
                save_figure(figure, path)
            files.insert(0, write_trials(folder.path, ended, self.space))
        self.show(ended, files, own)

    def search(
        self, method: str, folder: Path, budget: Budget, executor: Executor, jobs: int
    ) -> list[Trial]:
        """Search by one method and return its trials in the order in which they ended."""
        journal = Journal(folder / f"{method}.jsonl")
        with _bar(method, budget, journal) as heard:
            tune(
                OPTIMIZERS[method](self.space, self.scales, self.seed),
                self.evaluate,
                journal,
                budget,
                executor=executor,
                jobs=jobs,
                heard=heard,
            )
        return journal.ended

    def show(
        self, ended: Mapping[str, Sequence[Trial]], files: Sequence[Path], own: Measured | None
    ) -> None:
        """Print the best trials and write the recipe."""
        console = Console(highlight=False, soft_wrap=True)
        method, best = _winner(ended)
        console.print(_table(ended))
        for line in verdict(ended):
            console.print(line)
        if own is not None:
            console.print(against_own(best, own, self.scales[1]))
        if best is None:
            problem = next(trial.problem for found in ended.values() for trial in found)
            raise RunError(f"{OWNER}: no trial succeeded; first: {problem}")
        found = tuned_recipe(self.recipe, best, TITLES[method], len(ended[method]))
        write_recipe(found, self.out, base=self.base)
        for line in (
            f"trials and figure: {', '.join(map(str, files))}",
            f"recipe of trial {best.number} by {TITLES[method]}: {self.out}",
            f"train it on all images:  invint train {self.out}",
        ):
            console.print(line, markup=False)


@contextmanager
def _bar(method: str, budget: Budget, journal: Journal) -> Iterator:  # type: ignore[type-arg]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(TITLES[method], total=_total(budget), state="")

        def heard(_: Trial | None = None) -> None:
            seconds, best = journal.elapsed, best_trial(journal.ended)
            done = len(journal.ended) if budget.trials else seconds
            state = f"{len(journal.ended)} trials"
            if best is not None:
                state += f", {best.validation_error:.2%} with {share(best.fidelity)}"
            progress.update(task, completed=done, state=state)

        heard()
        yield heard


def _total(budget: Budget) -> float:
    return float(budget.trials or 3600 * (budget.hours or 0))


def _winner(ended: Mapping[str, Sequence[Trial]]) -> tuple[str, Trial | None]:
    best = best_trial(trial for found in ended.values() for trial in found)
    for method, found in ended.items():
        if best is not None and best in found:
            return method, best
    return "bohb", None


def _table(ended: Mapping[str, Sequence[Trial]]) -> Table:
    rows = [(method, trial) for method, found in ended.items() for trial in found]
    rows.sort(key=lambda row: _order(row[1]))
    more = "; the others are in trials.csv" if len(rows) > SHOWN else ""
    table = Table(box=None, header_style="bold", caption=f"{len(rows)} trials, best first{more}")
    table.add_column("trial")
    for title in ("iterations", "error", "seconds"):
        table.add_column(title, justify="right")
    table.add_column("values")
    for method, trial in rows[:SHOWN]:
        error = trial.validation_error
        table.add_row(
            f"{method} {trial.number}",
            f"{trial.fidelity:.3g}",
            "failed" if error is None else f"{error:.2%}",
            f"{trial.seconds:.1f}",
            " ".join(
                f"{path.partition('.')[2]}={value:g}" for path, value in trial.configuration.items()
            ),
        )
    return table


def _order(trial: Trial) -> tuple[bool, float, float]:
    error = trial.validation_error
    return error is None, -trial.fidelity, 1.0 if error is None else error
