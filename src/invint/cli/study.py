"""`invint study`: a grid of runs, its plan, its table, its report."""

from pathlib import Path
from typing import Annotated

import typer

from invint.cli.options import Side, SkipBad, TestShare, own_choices
from invint.errors import ConfigError, RunError
from invint.files import check_writable

FORMATS = ("terminal", "markdown", "csv", "latex")
ENGINES = ("local", "dask")


def study(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(help="table1 … table5, digits or digits-selection.")],
    seeds: Annotated[str | None, typer.Option(help="How many, or which: 3, or 0,2,4.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Training images: 100,1000,all.")] = None,
    only: Annotated[str | None, typer.Option(help="Recipes: pooling,local-ws.")] = None,
    data: Annotated[str | None, typer.Option(help="Another data set than the recipes'.")] = None,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    scale: Annotated[float | None, typer.Option(help="Share of the iterations to run.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    engine: Annotated[str, typer.Option(help="local, or dask for a cluster.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Dask scheduler.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and how long it takes here.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Where the folders of runs are.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Where data sets are.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    compile: Annotated[
        bool | None, typer.Option(help="Use torch.compile; on CUDA by default. It costs a minute.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each process.")] = None,
    format: Annotated[str, typer.Option(help="terminal, markdown, csv or latex.")] = "terminal",
    records: Annotated[Path | None, typer.Option(help="Write small records to this file.")] = None,
    known: Annotated[
        Path | None, typer.Option(help="Records of runs made elsewhere: not run again.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page to this file.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
) -> None:
    """Carry out the runs of a study that are not done yet, and show its table."""
    from invint.cli.terminal import study as terminal
    from invint.study.grid import find_study, plan
    from invint.study.pool import Place
    from invint.train import Execution

    _check_options(jobs=jobs, engine=engine, address=address, format=format)
    for path in (records, report):
        if path is not None:
            check_writable(path)  # before the work, not after it
    cells = plan(
        find_study(name),
        terminal.counter(data_dir),
        seeds=_seeds(seeds),
        sizes=_sizes(sizes),
        only=[each.strip() for each in only.split(",")] if only else (),
        data=own_choices(data, skip_bad=skip_bad, side=side, test_share=test_share),
        scale=scale,
    )
    execution = Execution(device=device, precision=precision, compile=compile, threads=threads)
    elsewhere = terminal.keys_of(known)
    place = Place(runs=runs, data_dir=data_dir, execution=execution, known=elsewhere)
    if dry_run:
        terminal.show_plan(cells, place, jobs)
        return
    try:
        failed = terminal.carry_out(cells, place, terminal.choose_engine(engine, jobs, address))
    finally:  # also of a study that was stopped
        terminal.show_table(cells, place, known, format=format, records=records)
    if report is not None:
        terminal.write_page(cells, place, known, report, title or f"Study {name}", records)
    if failed:
        raise RunError(
            f"{len(failed)} of {len(cells)} runs failed, first {failed[0].cell.label}: "
            f"{failed[0].problem}"
        )


def _check_options(*, jobs: int, engine: str, address: str | None, format: str) -> None:
    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected 1 or more processes")
    if engine not in ENGINES:
        raise ConfigError(f"--engine {engine}: there are {' and '.join(ENGINES)}")
    if address is not None and engine != "dask":
        raise ConfigError(f"--address {address}: goes with --engine dask")
    if format not in FORMATS:
        raise ConfigError(f"--format {format}: there are {', '.join(FORMATS)}")


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(each) for each in text.strip(",").split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {text}: expected a number, or several like 0,2,4") from error
    return numbers if "," in text else list(range(numbers[0]))


def _sizes(text: str | None) -> list[int | None] | None:
    if text is None:
        return None
    try:
        return [None if each.strip() == "all" else int(each) for each in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sizes {text}: expected numbers or all, like 100,1000,all") from error
