"""`invint study`: a grid of runs, its plan, its table, its report."""

import sys
import time
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
    from invint.recipes.recipe import DataChoice
    from invint.study.grid import Cell
    from invint.study.pool import Outcome, Workspace
    from invint.study.records import RunRecord
    from invint.study.sequence import Goal, Outlook
    from invint.study.tables import Table

FORMATS = ("terminal", "markdown", "csv", "latex")
ENGINES = ("local", "dask", "slurm")
SEEDS = "How many seeds"  # head of a group of options in the help text
UNKNOWN = sys.maxsize  # images of a set that is not here and may have any number


def study(  # noqa: PLR0913
    name: Annotated[
        str,
        typer.Argument(metavar="STUDY", help="table1 … table5, digits, settled-digits, …"),
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
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Train nothing: show what there is by now.")
    ] = False,
    see: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            rich_help_panel=SEEDS,
            help="Say first how many seeds show a difference of so many percentage points.",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", rich_help_panel=SEEDS, help="Two recipes; else each with pooling."
        ),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            rich_help_panel=SEEDS,
            help="Add seeds to --compare until its interval is no wider than this.",
        ),
    ] = None,
    max_seeds: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=SEEDS, help="Add no seed beyond so many."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(rich_help_panel=SEEDS, help="Add no seed after this time.")
    ] = None,
    runs: Runs = Path("runs"),
    data_dir: DataDir = None,
    format: Annotated[
        str, typer.Option(metavar="NAME", help="terminal, markdown, csv or latex.")
    ] = "terminal",
    records: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write small records to this file.")
    ] = None,
    known: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Records of runs made elsewhere: not run again; repeatable."
        ),
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
    output = Output(format, records, tuple(known or ()), report, title or f"Study {name}")
    cells = plan(
        find_study(name),
        cache(lambda choice: training_images(choice, data_dir, must=not (dry_run or tables_only))),
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
        runs=runs, data_dir=data_dir, execution=execution, known=known_runs(output.known)
    )
    goal = chosen_goal(cells, compare, width, max_seeds, minutes)
    if compare is not None and see is None and goal is None:
        raise ConfigError(f"--compare {compare}: goes with --see or --width")
    if see is not None or goal is not None:
        show_seeds(cells, at_hand(cells, workspace, output), see, compare, goal)
    if dry_run:
        show_plan(cells, workspace, jobs)
        return
    if tables_only:
        show_what_there_is(cells, workspace, output, goal)
        return
    train_and_show(cells, workspace, workers, output, goal)


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
        known: Files of records of runs made elsewhere.
        report: A file to write a page to.
        title: Of the page.
    """

    format: str
    records: Path | None
    known: tuple[Path, ...]
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


def known_runs(files: Sequence[Path]) -> frozenset[tuple[str, int]]:
    """Return hash and seed of the runs in files of records, if they compare with this version."""
    from invint.study.records import find_runs, read_records
    from invint.version import COMPARABLE, __version__

    alike = COMPARABLE if __version__ in COMPARABLE else ()
    for path in files:
        others = sorted({run.version for run in read_records(path)} - {__version__, *alike})
        if others:
            raise ConfigError(
                f"{path}: has runs of invint {' and '.join(others)}, this is {__version__}; "
                "runs of several versions do not belong into one table"
            )
    return frozenset((run.hash, run.seed) for run in find_runs(files))


def training_images(choice: "DataChoice", data_dir: Path | None, *, must: bool) -> int:
    """Return the number of training images: read, or as far as it is known where they are not here.

    Args:
        choice: Which data set.
        data_dir: Where data sets are.
        must: Whether to refuse a set that is not here.
    """
    from invint.data.registry import find_entry, is_here

    if must or is_here(choice.name, data_dir):
        return len(loaded(choice, data_dir).train)
    counts = find_entry(choice.name).counts
    return UNKNOWN if counts is None else counts[0]


def chosen_goal(
    cells: "Sequence[Cell]",
    compare: str | None,
    width: float | None,
    seeds: int | None,
    minutes: float | None,
) -> "Goal | None":
    """Return what seeds are to be added for; `None` unless a width is asked for."""
    from invint.study.sequence import Goal, comparisons

    chosen = comparisons(cells, compare)  # refuses what is not in the study
    if width is None:
        if seeds is not None or minutes is not None:
            raise ConfigError("--max-seeds and --minutes end what --width begins: give it too")
        return None
    if compare is None or len(chosen) != 1:
        raise ConfigError(
            "--width is of one comparison at one size: give --compare local-ws,pooling, say, and "
            "one number by --sizes"
        )
    return Goal(comparison=chosen[0], width=width, seeds=seeds, minutes=minutes)


# The runs


def train_and_show(
    cells: "Sequence[Cell]",
    workspace: "Workspace",
    workers: Workers,
    output: Output,
    goal: "Goal | None",
) -> None:
    """Train what is left, add seeds if there is a goal, and show what has come out."""
    failed, began = list["Outcome"](), time.monotonic()
    try:
        failed += train_all(cells, workspace, workers)
        if goal is not None:
            cells, more = add_seeds(cells, goal, workspace, workers, output, began)
            failed += more
    finally:  # also of a study that was stopped
        show_results(cells, workspace, output)
    if goal is not None:
        say(goal.verdict(at_hand(cells, workspace, output), (time.monotonic() - began) / 60))
    if output.report is not None:
        write_page(cells, workspace, output, output.report)
    if failed:
        raise RunError(
            f"{len(failed)} of {len(cells)} runs failed, first {failed[0].cell.label}: "
            f"{failed[0].problem}"
        )


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


def add_seeds(
    cells: "Sequence[Cell]",
    goal: "Goal",
    workspace: "Workspace",
    workers: Workers,
    output: Output,
    began: float,
) -> "tuple[list[Cell], list[Outcome]]":
    """Train more seeds of one comparison until it is decided; return all runs, and failed ones."""
    cells, failed = list(cells), list["Outcome"]()
    while not failed:
        found = at_hand(cells, workspace, output)
        if goal.reached(found) or goal.spent(found, (time.monotonic() - began) / 60):
            break
        more = goal.next_cells(cells, max(1, workers.jobs // 2))
        cells += more
        failed += train_all(more, workspace, workers)
        say(goal.verdict(at_hand(cells, workspace, output), 0.0), error=True)
    return cells, failed


# Its plan


def show_seeds(
    cells: "Sequence[Cell]",
    found: "Sequence[RunRecord]",
    see: float | None,
    compare: str | None,
    goal: "Goal | None",
) -> None:
    """Print how many seeds will show a difference, or make the interval narrow, as far as known."""
    from invint.study.power import BOUND, POWER
    from invint.study.sequence import comparisons, outlook

    if see is not None:
        about = f"seeds that show {see:g} points with a chance of {POWER:.0%}"
        all_of_them = comparisons(cells, compare)
        show_outlooks(about, [outlook(each, found, see=see) for each in all_of_them])
    if goal is not None:
        about = f"seeds after which the interval is {goal.width:g} points wide"
        show_outlooks(about, [outlook(goal.comparison, found, width=goal.width)])
    say(
        "at most: if they deviate by as much as so few pairs allow (upper bound of "
        f"{BOUND:.0%}); unknown: there are not two pairs that differ"
    )


def show_outlooks(about: str, outlooks: "Sequence[Outlook]") -> None:
    """Print how many seeds each comparison needs."""
    titles = ("comparison", "images", "pairs", "deviation", "seeds", "at most")
    say(f"{about}:")
    show_table(titles, [_outlook_row(each) for each in outlooks], right=titles[1:])


def _outlook_row(outlook: "Outlook") -> tuple[str, ...]:
    at_hand = outlook.at_hand
    known = at_hand is not None and bool(at_hand.deviation)
    many = [f"{each:,}" if each else "thousands" for each in (outlook.seeds, outlook.most)]
    return (
        outlook.comparison.label,
        "all" if outlook.comparison.size == UNKNOWN else f"{outlook.comparison.size:,}",
        str(at_hand.count if at_hand else 0),
        f"{at_hand.deviation:.2f}" if at_hand and at_hand.deviation else "",
        *(many if known else ("unknown", "unknown")),
    )


def show_plan(cells: "Sequence[Cell]", workspace: "Workspace", jobs: int) -> None:
    """Print each run with its steps, its state and the time it takes on this machine."""
    from invint.study.forecast import forecast
    from invint.study.pool import threads_each

    titles = ("run", "images", "seed", "steps", "state", "time left")
    if any(cell.images == UNKNOWN for cell in cells):
        show_table(titles, [_unmeasured(cell, workspace) for cell in cells], right=titles[1:])
        say(
            f"{cells[0].recipe.data.name} is not here and may have any number of images: how long "
            "runs are is unknown"
        )
        return
    with status() as tell:
        forecasts = forecast(
            cells,
            workspace,
            threads=threads_each(jobs) if jobs > 1 else None,
            on_recipe=lambda recipe: tell(f"measuring {recipe.name}"),
        )
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


def _unmeasured(cell: "Cell", workspace: "Workspace") -> tuple[str, ...]:
    size = "all" if cell.size == UNKNOWN else f"{cell.size:,}"
    state = "to do" if workspace.unfinished([cell]) else "done"
    return cell.recipe.name, size, str(cell.seed), "unknown", state, "unknown"


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


def show_what_there_is(
    cells: "Sequence[Cell]", workspace: "Workspace", output: Output, goal: "Goal | None"
) -> None:
    """Show table, comparison and page of the runs that are finished."""
    found = at_hand(cells, workspace, output)
    if not any((run.hash, run.seed) in _asked(cells) for run in found):
        raise ConfigError("--tables-only: none of these runs is finished; give --known or --runs")
    show_results(cells, workspace, output)
    if goal is not None:
        say(goal.verdict(found, 0.0))
    if output.report is not None:
        write_page(cells, workspace, output, output.report)


def at_hand(cells: "Sequence[Cell]", workspace: "Workspace", output: Output) -> "list[RunRecord]":
    """Return the finished runs of the recipes of a study, those of other seeds among them."""
    from invint.study.records import find_runs

    paths = [workspace.folder(cell) for cell in cells if workspace.has_result(cell)]
    hashes = {cell.recipe.hash for cell in cells}
    return [run for run in find_runs([*paths, *output.known]) if run.hash in hashes]


def _asked(cells: "Sequence[Cell]") -> set[tuple[str, int]]:
    return {(cell.recipe.hash, cell.seed) for cell in cells}


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
    columns -= {UNKNOWN}
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
    asked = _asked(cells)
    return [run for run in at_hand(cells, workspace, output) if (run.hash, run.seed) in asked]
