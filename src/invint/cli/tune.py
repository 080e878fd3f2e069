"""`invint tune`: find better values for a recipe on validation images."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invint.cli.console import console, loaded, say, show_table
from invint.cli.options import (
    Assignments,
    Data,
    DataDir,
    Device,
    RecipeName,
    Size,
    Threads,
    chosen_recipe,
)
from invint.cli.study import Workers
from invint.errors import ConfigError, RunError
from invint.files import write_atomically

if TYPE_CHECKING:  # they need torch, which help does not wait for
    from invint.recipes import Recipe
    from invint.study.search import Space
    from invint.study.tune import Budget, Journal, Measured, Trial, Tuning

SHOWN = 12  # trials in the terminal; all are in trials.csv


def tune(  # noqa: PLR0913
    recipe: RecipeName,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="How many; one round of Hyperband by default."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(metavar="N", help="How long, instead of --trials.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="SEED", help="Of the proposals and of every run.")
    ] = 0,
    size: Size = None,
    data: Data = None,
    assignments: Assignments = None,
    min_scale: Annotated[
        float, typer.Option(metavar="FRACTION", help="Lowest fraction of the iterations.")
    ] = 0.02,
    max_scale: Annotated[
        float, typer.Option(metavar="FRACTION", help="Highest fraction of the iterations.")
    ] = 1.0,
    compare: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="random: search at random too, at equal cost."),
    ] = None,
    reference: Annotated[
        bool, typer.Option(help="Train the recipe's own values too, once, outside the budget.")
    ] = True,
    jobs: Annotated[int, typer.Option(metavar="N", help="Processes side by side.")] = 1,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local, or dask for a cluster.")
    ] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Dask scheduler.")] = None,
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the folders of trials are.")
    ] = Path("tuning"),
    data_dir: DataDir = None,
    keep_weights: Annotated[
        bool, typer.Option("--keep-weights", help="Leave the weights of trials in their folders.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The recipe file; RECIPE-tuned.json by default."),
    ] = None,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Tune a recipe by BOHB on validation images, or resume tuning it; write a recipe file.

    The objective is the validation error on a fifth of the training images, never the test error.
    The same command with a larger budget resumes; finished trials are not repeated.
    """
    from invint.figures.style import save_figure
    from invint.figures.trials import tuning_figure
    from invint.recipes import RECIPES
    from invint.recipes.registry import write_recipe
    from invint.study.pool import Workspace, threads_each
    from invint.study.search import check_scales, round_of_brackets
    from invint.study.tune import TITLES, Budget, Tuning, trials_csv, tuned_recipe
    from invint.train import Execution

    chosen = chosen_recipe(recipe, size=size, data=data, assignments=assignments)
    scales = check_scales(min_scale, max_scale)
    if trials is None and hours is None:
        trials = sum(number for stages in round_of_brackets(scales) for number, _ in stages)
    if compare not in (None, "random"):
        raise ConfigError(f"--compare {compare}: there is random")
    workers = Workers(jobs, engine, address)
    if threads is None and jobs > 1 and address is None:
        threads = threads_each(jobs)
    execution = Execution(device=device, threads=threads)
    path = _recipe_file(out, chosen)
    tuning = Tuning(
        recipe=chosen,
        space=_space(chosen, data_dir, here=address is None),
        seed=seed,
        scales=scales,
        workspace=Workspace(runs=runs, data_dir=data_dir, execution=execution).absolute(),
        keep_weights=keep_weights,
    )
    budget = Budget(trials=trials, hours=hours)
    with tuning.store.locked():
        ended = search(tuning, budget, workers, compare=compare is not None)
        own = tuning.evaluate({}, max_scale) if reference else None
        figure = tuning_figure(ended, tuning.space, None if own is None else own.error)
        names = ("trials.csv", "tuning.png", "tuning.svg")
        table, *figures = files = [tuning.store.path / name for name in names]
        write_atomically(table, trials_csv(ended, tuning.space))
        for file in figures:
            save_figure(figure, file)
    method, best = show_outcome(ended, own, max_scale)
    found = tuned_recipe(chosen, best, TITLES[method], len(ended[method]))
    write_recipe(found, path, base=recipe if recipe in RECIPES else str(Path(recipe).resolve()))
    say(f"trials and figure: {', '.join(map(str, files))}")
    say(f"recipe of trial {best.number} by {TITLES[method]}: {path}")
    say(f"train it on all images:  invint train {path}")


def _space(recipe: "Recipe", data_dir: Path | None, *, here: bool) -> "Space":
    """Return what is tuned, after loading the data if they are here.

    They are refused before there are trials, or decoded once, and say how large the maps are.
    """
    from invint.study.search import is_steerable, search_space
    from invint.train.setup import map_size

    space = search_space(recipe)
    if not here:
        return space
    dataset = loaded(recipe.data, data_dir)
    return search_space(recipe, min(map_size(recipe, dataset))) if is_steerable(recipe) else space


def _recipe_file(out: Path | None, recipe: "Recipe") -> Path:
    path = out or Path(f"{recipe.name.replace('/', '-')}-tuned.json")
    if path.suffix != ".json":
        raise ConfigError(f"--out {path}: expected a .json file")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}")
    return path


def search(
    tuning: "Tuning", budget: "Budget", workers: Workers, *, compare: bool
) -> "dict[str, list[Trial]]":
    """Spend the budget, and return the trials of each method in the order in which they ended."""
    from invint.study.pool import executor_for
    from invint.study.search import OPTIMIZERS
    from invint.study.tune import Journal, tune

    ended: dict[str, list[Trial]] = {}
    tuning.describe()
    with executor_for(
        tuning.workspace, engine=workers.engine, jobs=workers.jobs, address=workers.address
    ) as executor:
        for method in ("bohb", "random") if compare else ("bohb",):
            budget = tuning.equal_budget(ended["bohb"]) if ended else budget
            journal = Journal(tuning.store.path / f"{method}.jsonl")
            with _bar(method, budget, journal) as update:
                tune(
                    OPTIMIZERS[method](tuning.space, tuning.scales, tuning.seed),
                    tuning.evaluate,
                    journal,
                    budget,
                    executor=executor,
                    jobs=workers.jobs,
                    on_trial=update,
                )
            ended[method] = journal.ended
    return ended


@contextmanager
def _bar(method: str, budget: "Budget", journal: "Journal") -> "Iterator[Callable[[Trial], None]]":
    """Show a bar over a search, and yield what moves it."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from invint.study.tune import TITLES, best_trial, share

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console(error=True)) as progress:
        total = float(budget.trials or 3600 * (budget.hours or 0))
        task = progress.add_task(TITLES[method], total=total, state="")

        def update(_: "Trial | None" = None) -> None:
            seconds, best = journal.elapsed, best_trial(journal.ended)
            done = len(journal.ended) if budget.trials else seconds
            state = f"{len(journal.ended)} trials"
            if best is not None:
                state += f", {best.validation_error:.2%} with {share(best.fidelity)}"
            progress.update(task, completed=done, state=state)

        update()
        yield update


def show_outcome(
    ended: "Mapping[str, Sequence[Trial]]", own: "Measured | None", scale: float
) -> "tuple[str, Trial]":
    """Print the best trials and what they say; return the best of all, and its method."""
    from invint.study.search import OWNER
    from invint.study.tune import against_own, best_trial, verdict

    best = best_trial(trial for found in ended.values() for trial in found)
    _show_trials(ended)
    for line in verdict(ended):
        say(line)
    if own is not None:
        say(against_own(best, own, scale))
    if best is None:
        problem = next(trial.problem for found in ended.values() for trial in found)
        raise RunError(f"{OWNER}: no trial succeeded; first: {problem}")
    return next(method for method, found in ended.items() if best in found), best


def _show_trials(ended: "Mapping[str, Sequence[Trial]]") -> None:
    trials = [(method, trial) for method, found in ended.items() for trial in found]
    trials.sort(key=lambda each: _rank(each[1]))
    rows = [
        (
            f"{method} {trial.number}",
            f"{trial.fidelity:.3g}",
            "failed" if trial.validation_error is None else f"{trial.validation_error:.2%}",
            f"{trial.seconds:.1f}",
            " ".join(
                f"{path.partition('.')[2]}={value:g}" for path, value in trial.configuration.items()
            ),
        )
        for method, trial in trials[:SHOWN]
    ]
    titles = ("trial", "iterations", "error", "seconds", "values")
    show_table(titles, rows, right=("iterations", "error", "seconds"), wrap=("values",))
    more = "; the others are in trials.csv" if len(trials) > SHOWN else ""
    say(f"{len(trials)} trials, best first{more}")


def _rank(trial: "Trial") -> tuple[bool, float, float]:
    error = trial.validation_error
    return error is None, -trial.fidelity, 1.0 if error is None else error
