"""`invint tune`: find better values for a recipe on validation images."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invint.cli.options import DataDir, chosen_recipe
from invint.errors import ConfigError

if TYPE_CHECKING:
    from invint.recipes import Recipe


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
    from invint.cli.console import loaded
    from invint.cli.terminal.tune import Tuning
    from invint.recipes import RECIPES
    from invint.study.pool import Place, cluster_executor
    from invint.study.search import check_scales, round_of_brackets, search_space
    from invint.study.tune import Budget, processes
    from invint.train import Execution

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
    place = Place(
        runs=runs.resolve(),
        data_dir=None if data_dir is None else data_dir.resolve(),
        execution=execution,
    )
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
    if address is None:
        loaded(chosen.data, data_dir)  # refused here, or decoded once, before there are trials
    on_cluster = engine == "dask" or address is not None
    workers = cluster_executor(place, jobs=jobs, address=address) if on_cluster else processes(jobs)
    tuning.complete(budget, workers, jobs, compare=compare is not None)


def _recipe_file(out: Path | None, recipe: "Recipe") -> Path:
    path = out or Path(f"{recipe.name.replace('/', '-')}-tuned.json")
    if path.suffix != ".json":
        raise ConfigError(f"--out {path}: expected a .json file")
    if not path.parent.is_dir():
        raise ConfigError(f"--out {path}: there is no folder {path.parent}")
    return path
