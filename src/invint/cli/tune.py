"""`invint tune`: find better values for a recipe on validation images."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from invint.cli.train import DataDir, chosen_recipe
from invint.errors import ConfigError, RunError
from invint.recipes import RECIPES, Recipe
from invint.recipes.files import write_recipe
from invint.run import Execution
from invint.study.cluster import cluster_executor
from invint.study.engine import Place
from invint.study.space import OWNER, Space, search_space
from invint.study.trials import Journal, Measured, Trial, best_trial, cost
from invint.study.tuning import (
    OPTIMIZERS,
    Budget,
    Executor,
    check_scales,
    processes,
    round_of_brackets,
)
from invint.study.tuning import tune as carry_out
from invint.study.tuning_outcome import TITLES, against_own, share, verdict, write_outcome
from invint.study.tuning_runs import TrainedTrial, describe, tuned_recipe, tuning_folder

SHOWN = 12  # trials in the terminal; all are in trials.csv


def tune(  # noqa: PLR0913
    recipe: Annotated[
        str, typer.Argument(help="A recipe of `invint recipes`, or a TOML or JSON file.")
    ],
    trials: Annotated[
        int | None, typer.Option(help="How many; one round of Hyperband by default.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="How long, instead of --trials.")] = None,
    seed: Annotated[int, typer.Option(help="Of the proposals and of every run.")] = 0,
    size: Annotated[int | None, typer.Option(help="Number of training images.")] = None,
    data: Annotated[str | None, typer.Option(help="Another data set than the recipe's.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: train.epochs=10.")
    ] = None,
    min_scale: Annotated[float, typer.Option(help="Lowest share of the iterations.")] = 0.02,
    max_scale: Annotated[float, typer.Option(help="Highest share of the iterations.")] = 1.0,
    compare: Annotated[
        str | None, typer.Option(help="random: search at random too, at equal cost.")
    ] = None,
    reference: Annotated[
        bool, typer.Option(help="Train the recipe's own values too, once, outside the budget.")
    ] = True,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    engine: Annotated[str, typer.Option(help="local, or dask for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Dask scheduler.")] = None,
    runs: Annotated[Path, typer.Option(help="Where the folders of trials are.")] = Path("tuning"),
    data_dir: DataDir = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each process.")] = None,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Leave the weights of trials in their folders.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The recipe file; RECIPE-tuned.json by default.")
    ] = None,
) -> None:
    """Tune a recipe by BOHB on validation images, or go on with it; write a recipe file.

    The objective is the validation error on a fifth of the training images, never the test error.
    The same command with a larger budget goes on; finished trials are not repeated.
    """
    chosen = chosen_recipe(recipe, size=size, data=data, assignments=assignments)
    scales = check_scales(min_scale, max_scale)
    if trials is None and hours is None:
        trials = sum(number for stages in round_of_brackets(scales) for number, _ in stages)
    if compare not in (None, "random"):
        raise ConfigError(f"--compare {compare}: there is random")
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected 1 or more")
    if engine not in ("local", "dask"):
        raise ConfigError(f"--engine {engine}: there are local and dask")
    if threads is None and jobs > 1 and address is None:
        threads = max(1, (os.cpu_count() or 1) // jobs)
    execution = Execution(device=device, threads=threads)
    place = Place(runs=runs.resolve(), data_dir=data_dir, execution=execution)
    tuning = Tuning(
        recipe=chosen,
        base=recipe if recipe in RECIPES else str(Path(recipe).resolve()),
        space=search_space(chosen),
        seed=seed,
        scales=scales,
        place=place,
        out=_recipe_file(out, chosen),
        keep_weights=keep_weights,
        reference=reference,
    )
    budget = Budget(trials=trials, hours=hours)
    on_cluster = engine == "dask" or address is not None
    workers = cluster_executor(place, jobs=jobs, address=address) if on_cluster else processes(jobs)
    tuning.complete(budget, workers, jobs, compare=compare is not None)


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
            files = write_outcome(
                folder.path, ended, self.space, None if own is None else own.error
            )
        self.show(ended, files, own)

    def search(
        self, method: str, folder: Path, budget: Budget, executor: Executor, jobs: int
    ) -> list[Trial]:
        """Search by one method and return its trials in the order in which they ended."""
        journal = Journal(folder / f"{method}.jsonl")
        with _bar(method, budget, journal) as heard:
            carry_out(
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
        console.print(f"trials and figure: {', '.join(map(str, files))}")
        console.print(f"recipe of trial {best.number} by {TITLES[method]}: {self.out}")
        console.print(f"train it on all images:  invint train {self.out}")


def _recipe_file(out: Path | None, recipe: Recipe) -> Path:
    path = out or Path(f"{recipe.name.replace('/', '-')}-tuned.json")
    if path.suffix != ".json":
        raise ConfigError(f"--out {path}: expected a .json file")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}")
    return path


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
