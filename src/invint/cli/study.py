"""`invint study`: a grid of runs, its plan, its table, its report."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invint.cli.console import loaded, say, show, show_table, status, write
from invint.cli.options import (
    Compile,
    Data,
    DataDir,
    Device,
    DropLeaks,
    MinPerClass,
    Precision,
    Runs,
    Scale,
    Side,
    SkipBad,
    SkipClass,
    TestShare,
    Threads,
    own_choices,
)
from invint.errors import ConfigError, Interrupted, RunError
from invint.files import check_writable

if TYPE_CHECKING:  # they need torch, which help does not wait for
    from invint.study.grid import Cell
    from invint.study.pool import Outcome, Workspace
    from invint.study.records import RunRecord
    from invint.study.tables import Table

FORMATS = ("terminal", "markdown", "csv", "latex")
ENGINES = ("local", "dask", "slurm")


def study(  # noqa: PLR0913
    name: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="table1 … table5, digits or digits-selection."),
    ],
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N", help="How many seeds, from 0 on: 3 for 0, 1 and 2."),
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(metavar="SEED", help="Which seed, instead of --seeds; repeatable."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="Numbers of training images, such as 100,1000,all."),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="Recipes, such as pooling,local-ws.")
    ] = None,
    data: Data = None,
    scale: Scale = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Processes side by side.")] = 1,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local, or dask or slurm for a cluster.")
    ] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Dask scheduler.")] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OPTION=VALUE",
            help="An option of sbatch, such as partition=gpu or time=480; repeatable.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan and how long it takes here.")
    ] = False,
    runs: Runs = Path("runs"),
    data_dir: DataDir = None,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="terminal, markdown, csv or latex.")
    ] = "terminal",
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write small records to this file.")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Records of runs made elsewhere: not run again."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page to this file.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    skip_bad: SkipBad = False,
    side: Side = None,
    test_share: TestShare = None,
    drop_leaks: DropLeaks = False,
    min_per_class: MinPerClass = 0,
    skip_class: SkipClass = None,
    device: Device = None,
    precision: Precision = None,
    compile: Compile = None,
    threads: Threads = None,
) -> None:
    """Train the runs of a study that are not complete yet, and show its table."""
    from invint.study.grid import find_study, plan
    from invint.study.pool import Workspace
    from invint.train import Execution

    workers = Workers(jobs, engine, address, tuple(slurm or ()))
    output = Output(format, records, known, report, title or f"Study {name}")
    cells = plan(
        find_study(name),
        cache(lambda choice: len(loaded(choice, data_dir).train)),
        seeds=chosen_seeds(seeds, seed),
        sizes=_sizes(sizes),
        only=[each.strip() for each in only.split(",")] if only else (),
        data=own_choices(
            data,
            skip_bad=skip_bad,
            side=side,
            test_share=test_share,
            drop_leaks=drop_leaks,
            min_per_class=min_per_class,
            skip_class=skip_class,
        ),
        scale=scale,
    )
    execution = Execution(device=device, precision=precision, compile=compile, threads=threads)
    workspace = Workspace(
        runs=runs, data_dir=data_dir, execution=execution, known=known_runs(known)
    )
    if dry_run:
        show_plan(cells, workspace, jobs)
        return
    try:
        failed = train_all(cells, workspace, workers)
    finally:  # also of a study that was stopped
        show_results(cells, workspace, output)
    if report is not None:
        write_page(cells, workspace, output, report)
    if failed:
        raise RunError(
            f"{len(failed)} of {len(cells)} runs failed, first {failed[0].cell.label}: "
            f"{failed[0].problem}"
        )


# The options


@dataclass(frozen=True)
class Workers:
    """Where runs are trained.

    Attributes:
        jobs: Number of processes.
        engine: `local`, `dask` or `slurm`.
        address: Of a Dask scheduler, if there is one already.
        slurm: Options of sbatch.
    """

    jobs: int = 1
    engine: str = "local"
    address: str | None = None
    slurm: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ConfigError(f"--jobs {self.jobs}: expected 1 or more processes")
        if self.engine not in ENGINES:
            raise ConfigError(f"--engine {self.engine}: there are {', '.join(ENGINES)}")
        for option, value, engine in (
            ("--address", self.address, "dask"),
            ("--slurm", " ".join(self.slurm), "slurm"),
        ):
            if value and self.engine != engine:
                raise ConfigError(f"{option} {value}: goes with --engine {engine}")


@dataclass(frozen=True)
class Output:
    """What is made of the finished runs.

    Attributes:
        format: Of the table.
        records: A file to write records to.
        known: A file of records of runs made elsewhere.
        report: A file to write a page to.
        title: Of the page.
    """

    format: str
    records: Path | None
    known: Path | None
    report: Path | None
    title: str

    def __post_init__(self) -> None:
        """Refuse what cannot be written: before the work, not after it."""
        if self.format not in FORMATS:
            raise ConfigError(f"--format {self.format}: there are {', '.join(FORMATS)}")
        for path in (self.records, self.report):
            if path is not None:
                check_writable(path)


def chosen_seeds(count: str | None, given: Sequence[int] | None) -> list[int] | None:
    """Return the seeds of `--seeds`, how many, or of `--seed`, which; `None` without either."""
    if count is None:
        return list(given) if given else None
    if given:
        raise ConfigError("--seeds says how many, --seed which: give one of them")
    if "," in count:
        which = " ".join(f"--seed {each.strip()}" for each in count.split(",") if each.strip())
        raise ConfigError(f"--seeds {count}: expected how many; for these seeds write {which}")
    if not count.strip().isdecimal() or int(count) < 1:
        raise ConfigError(
            f"--seeds {count}: expected how many, 1 or more; --seed 0 asks for the seed 0 alone"
        )
    return list(range(int(count)))


def _sizes(text: str | None) -> list[int | None] | None:
    if text is None:
        return None
    try:
        return [None if each.strip() == "all" else int(each) for each in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--sizes {text}: expected numbers or all, like 100,1000,all") from error


def known_runs(records: Path | None) -> frozenset[tuple[str, int]]:
    """Return hash and seed of the runs in a file of records, if they compare with this version."""
    if records is None:
        return frozenset()
    from invint.study.records import read_records
    from invint.version import COMPARABLE, __version__

    runs = read_records(records)
    alike = COMPARABLE if __version__ in COMPARABLE else ()
    others = sorted({run.version for run in runs} - {__version__, *alike})
    if others:
        raise ConfigError(
            f"{records}: has runs of invint {' and '.join(others)}, this is {__version__}; "
            "runs of several versions do not belong into one table"
        )
    return frozenset((run.hash, run.seed) for run in runs)


# The runs


def train_all(cells: "Sequence[Cell]", workspace: "Workspace", workers: Workers) -> "list[Outcome]":
    """Train what is left, and return the runs that failed."""
    from invint.cli.progress import StudyProgress
    from invint.study.pool import InProcess, completed, executor_for

    failed = []
    left, bar = workspace.unfinished(cells), StudyProgress(cells, workspace)
    elsewhere = workers.engine if left else "local"  # without runs there is no need of a cluster
    jobs = min(workers.jobs, max(1, len(left)))
    try:
        with (
            bar.shown(),
            executor_for(
                workspace,
                engine=elsewhere,
                jobs=jobs,
                address=workers.address if left else None,
                slurm=workers.slurm,
                note=bar.say,
            ) as executor,
            closing(
                completed(
                    executor,
                    left,
                    workspace,
                    at_once=None if elsewhere == "dask" else jobs,
                    callback=bar.callback if isinstance(executor, InProcess) else None,
                    note=bar.say,
                )
            ) as outcomes,
        ):
            for outcome in outcomes:
                bar.finish(outcome)
                failed += [outcome] if outcome.problem else []
    except (Interrupted, KeyboardInterrupt) as stop:
        done = len(cells) - len(workspace.unfinished(cells))
        raise Interrupted(
            f"stopped with {done} of {len(cells)} runs complete; the same command resumes"
        ) from stop
    return failed


# Its plan


def show_plan(cells: "Sequence[Cell]", workspace: "Workspace", jobs: int) -> None:
    """Print each run with its steps, its state and the time it takes on this machine."""
    from invint.study.forecast import forecast
    from invint.study.pool import threads_each

    with status() as tell:
        forecasts = forecast(
            cells,
            workspace,
            threads=threads_each(jobs) if jobs > 1 else None,
            on_recipe=lambda recipe: tell(f"measuring {recipe.name}"),
        )
    titles = ("run", "images", "seed", "steps", "state", "time left")
    rows = [
        (
            each.cell.recipe.name,
            f"{each.cell.size:,}",
            str(each.cell.seed),
            f"{each.cell.steps:,}",
            each.state,
            duration(each.seconds) if each.seconds else "",
        )
        for each in forecasts
    ]
    show_table(titles, rows, right=titles[1:])
    left = [each for each in forecasts if each.seconds]
    seconds = sum(each.seconds for each in left) / jobs
    beside = f", {jobs} side by side" if jobs > 1 else ""
    say(
        f"{len(left)} of {len(forecasts)} runs left: about {duration(seconds)} on this "
        f"machine{beside}"
    )


def duration(seconds: float) -> str:
    """Return a time in the two units that matter."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours / 24:.1f} days"


# Its table and its page


def show_results(cells: "Sequence[Cell]", workspace: "Workspace", output: Output) -> None:
    """Print the table of the finished runs, and write records if there is a file for them."""
    from invint.study.records import write_records

    found = _finished(cells, workspace, output)
    if not found:
        return
    if output.records is not None:
        write_records(found, output.records)
    table = study_table(cells, found)
    if output.format == "terminal":
        show(table.terminal())
    else:
        write(getattr(table, output.format)() + "\n")


def study_table(cells: "Sequence[Cell]", found: "Sequence[RunRecord]") -> "Table":
    """Return the table of a study; what was asked for and has no run says so."""
    from invint.study.tables import make_table

    actual = {(run.choices["data"]["size"] or 0, run.size) for run in found}
    columns = set[int]()
    for cell in cells:
        asked = cell.recipe.data.size or 0  # whole groups may make it a few images more or less
        columns |= {size for key, size in actual if key == asked} or {cell.size}
    recipes = list(dict.fromkeys(cell.recipe.name for cell in cells))
    return make_table(found, recipes=recipes, sizes=sorted(columns))


def write_page(cells: "Sequence[Cell]", workspace: "Workspace", output: Output, path: Path) -> None:
    """Write a page about the finished runs, and records again: angles were measured for it."""
    from invint.report import write_report
    from invint.study.records import write_records

    found = _finished(cells, workspace, output)
    if not found:
        return
    left = [f"not run: {cell.label}" for cell in workspace.unfinished(cells)]
    with status(f"drawing {len(found)} runs"):
        write_report(found, path, title=output.title, data_dir=workspace.data_dir, notes=left)
    if output.records is not None:
        write_records(_finished(cells, workspace, output), output.records)
    say(f"open {path.resolve().as_uri()}", error=True)


def _finished(cells: "Sequence[Cell]", workspace: "Workspace", output: Output) -> "list[RunRecord]":
    """Read the finished runs of a study: from their folders, and from records made elsewhere."""
    from invint.study.records import find_runs

    paths = [workspace.folder(cell) for cell in cells if workspace.has_result(cell)]
    asked = {(cell.recipe.hash, cell.seed) for cell in cells}
    found = find_runs(paths if output.known is None else [*paths, output.known])
    return [run for run in found if (run.hash, run.seed) in asked]
