"""`invint study`: a grid of runs, its table, its report."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from invint.errors import ConfigError
from invint.run import Execution
from invint.study.engine import Outcome, Place, one_by_one, side_by_side
from invint.study.grid import Cell, find_study, plan


def study(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(help="table1 … table5, digits or digits-selection.")],
    seeds: Annotated[str | None, typer.Option(help="How many, or which: 3, or 0,2,4.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Training images: 100,1000,all.")] = None,
    only: Annotated[str | None, typer.Option(help="Recipes: pooling,local-ws.")] = None,
    data: Annotated[str | None, typer.Option(help="Another data set than the recipes'.")] = None,
    scale: Annotated[float | None, typer.Option(help="Share of the iterations to run.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    runs: Annotated[Path, typer.Option(help="Where the folders of runs are.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each process.")] = None,
    records: Annotated[Path | None, typer.Option(help="Write small records to this file.")] = None,
) -> None:
    """Carry out the runs of a study that are not done yet, and show its table."""
    from invint.study.records import find_runs, write_records
    from invint.study.tables import tables_by_data

    cells = plan(
        find_study(name),
        seeds=_seeds(seeds),
        sizes=_sizes(sizes),
        only=only.split(",") if only else (),
        data=data,
        scale=scale,
    )
    place = Place(runs=runs, data_dir=data_dir, execution=Execution(device=device, threads=threads))
    problems = _carry_out(cells, place, jobs)
    found = find_runs([folder for cell in cells if (folder := place.folder(cell)).exists()])
    console = Console()
    for table in tables_by_data(found):
        console.print(table.terminal())
    if records is not None:
        write_records(found, records)
    if problems:
        raise ConfigError(f"{len(problems)} of {len(cells)} runs failed; first: {problems[0]}")


def _carry_out(cells: list[Cell], place: Place, jobs: int) -> list[str]:
    left = place.unfinished(cells)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("runs", total=len(cells), completed=len(cells) - len(left))
        done = one_by_one(left, place) if jobs == 1 else side_by_side(left, place, jobs)
        problems = []
        for outcome in done:
            progress.advance(task)
            problems += [outcome.problem] if outcome.problem else []
            progress.console.print(_line(outcome), highlight=False, soft_wrap=True)
    return problems


def _line(outcome: Outcome) -> str:
    cell = outcome.cell
    size = "all" if cell.recipe.data.size is None else f"{cell.recipe.data.size:,}"
    return f"{cell.recipe.name}, {size} images, seed {cell.seed}: {outcome.problem or 'done'}"


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {text}: expected a number, or several like 0,2,4") from error
    return numbers if "," in text else list(range(numbers[0]))


def _sizes(text: str | None) -> list[int | None] | None:
    if text is None:
        return None
    try:
        return [None if each == "all" else int(each) for each in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sizes {text}: expected numbers or all, like 100,1000,all") from error
