"""`invint study`: carrying it out with a bar, its plan, its table, its page."""

import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from invint.cli.console import loaded
from invint.errors import ConfigError, Interrupted
from invint.recipes import Recipe
from invint.recipes.recipe import DataChoice
from invint.study.forecast import Forecast, forecast
from invint.study.grid import Cell
from invint.study.pool import Outcome, Place, one_by_one, side_by_side, threads_each
from invint.study.records import RunRecord, find_runs, read_records, write_records
from invint.study.tables import Table, make_table
from invint.train import Callback
from invint.version import __version__

LOOK = 1.0  # seconds between two looks at the logs of other processes

Engine = Callable[[Sequence[Cell], Place, "Whole"], Generator[Outcome, None, None]]


def choose_engine(name: str, jobs: int, address: str | None) -> Engine:
    """Return what carries out runs, and lets a bar know of them."""
    if name == "dask":
        from invint.study.pool import on_cluster

        return lambda cells, place, bar: on_cluster(
            cells, place, jobs=jobs, address=address, note=bar.say
        )
    if jobs > 1:
        return lambda cells, place, bar: side_by_side(cells, place, jobs, bar.say)
    return lambda cells, place, bar: one_by_one(cells, place, bar.watch, bar.say)


class Whole:
    """A bar over the steps of all runs, with the time left, and a line for each finished run.

    Args:
        cells: The runs of the study, finished or not.
        place: Where their logs are.
    """

    def __init__(self, cells: Sequence[Cell], place: Place) -> None:
        self.cells, self.place = cells, place
        self.steps = {cell: place.steps_done(cell) for cell in cells}
        self.begun = sum(self.steps.values())
        self.over = len(cells) - len(place.unfinished(cells))
        self.ended = threading.Event()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=32),
            TextColumn("{task.percentage:.0f} % of all steps"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            speed_estimate_period=300.0,
        )
        total = sum(cell.steps for cell in cells)
        self.task = self.progress.add_task(self._title, total=total, completed=self.begun)

    @property
    def _title(self) -> str:
        return f"{self.over} of {len(self.cells)} runs"

    @contextmanager
    def shown(self) -> Iterator["Whole"]:
        """Show the bar, and follow the logs meanwhile."""
        follower = threading.Thread(target=self._follow, daemon=True)
        with self.progress:
            follower.start()
            try:
                yield self
            finally:
                self.ended.set()
                follower.join()

    def watch(self, cell: Cell) -> Callback:
        """Return who counts the steps of a run in this process."""
        return _StepWatch(self, cell)

    def count(self, cell: Cell, step: int) -> None:
        """Move the bar: a run is at a step."""
        self.steps[cell] = step
        self.progress.update(self.task, completed=sum(self.steps.values()), description=self._title)

    def finish(self, outcome: Outcome) -> None:
        """Say how a run ended."""
        self.over += not outcome.problem
        self.count(outcome.cell, outcome.cell.steps)
        error = "" if outcome.error is None else f"{outcome.error:.2%} error"
        self.say(f"{outcome.cell.label}: {outcome.problem or error}")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _follow(self) -> None:
        while not self.ended.wait(LOOK):
            for cell in self.cells:
                step = self.place.steps_done(cell) if self.steps[cell] < cell.steps else 0
                if step > self.steps[cell]:
                    self.count(cell, step)


class _StepWatch(Callback):
    """Counts the steps of one run for the bar of all.

    Args:
        whole: The bar.
        cell: The run.
    """

    def __init__(self, whole: Whole, cell: Cell) -> None:
        self.whole, self.cell = whole, cell

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        """Count what an earlier start did."""
        self.whole.count(self.cell, step)

    def on_step(self, step: int) -> None:
        """Count a step."""
        self.whole.count(self.cell, step)

    def on_note(self, text: str) -> None:
        """Pass on what the user should know."""
        self.whole.say(f"{self.cell.label}: {text}")


def carry_out(cells: Sequence[Cell], place: Place, engine: Engine) -> list[Outcome]:
    """Carry out what is left, and return the runs that failed."""
    failed = []
    bar = Whole(cells, place)
    try:
        with (
            _terminable(),
            bar.shown(),
            closing(engine(place.unfinished(cells), place, bar)) as outcomes,
        ):
            for outcome in outcomes:
                bar.finish(outcome)
                failed += [outcome] if outcome.problem else []
    except (Interrupted, KeyboardInterrupt) as stop:
        done = len(cells) - len(place.unfinished(cells))
        raise Interrupted(
            f"stopped with {done} of {len(cells)} runs done; the same command goes on from there"
        ) from stop
    return failed


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a study as Ctrl-C does, so that its processes end with it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def keys_of(records: Path | None) -> frozenset[tuple[str, int]]:
    """Return hash and seed of the runs in a file of records, if they are of this version."""
    runs = [] if records is None else read_records(records)
    others = sorted({run.version for run in runs} - {__version__})
    if others:
        raise ConfigError(
            f"{records}: has runs of invint {' and '.join(others)}, this is {__version__}; "
            "runs of several versions do not belong into one table"
        )
    return frozenset((run.hash, run.seed) for run in runs)


def show_table(
    cells: Sequence[Cell], place: Place, known: Path | None, *, format: str, records: Path | None
) -> None:
    """Print the table of what is done, and write records if there is a file for them."""
    found = _found(cells, place, known)
    if not found:
        return
    if records is not None:
        write_records(found, records)
    table = study_table(cells, found)
    if format == "terminal":
        Console().print(table.terminal())
    else:
        print(getattr(table, format)())


def study_table(cells: Sequence[Cell], found: Sequence[RunRecord]) -> Table:
    """Return the table of a study; what was asked for and has no run says so."""
    actual = {(run.choices["data"]["size"] or 0, run.size) for run in found}
    columns = set[int]()
    for cell in cells:
        asked = cell.recipe.data.size or 0  # whole groups may make it a few images more or less
        columns |= {size for key, size in actual if key == asked} or {cell.size}
    recipes = list(dict.fromkeys(cell.recipe.name for cell in cells))
    return make_table(found, recipes=recipes, sizes=sorted(columns))


def _found(cells: Sequence[Cell], place: Place, known: Path | None) -> list[RunRecord]:
    """Read the finished runs of a study: from their folders, and from records made elsewhere."""
    paths = [place.folder(cell) for cell in cells if place.has_result(cell)]
    asked = {(cell.recipe.hash, cell.seed) for cell in cells}
    found = find_runs(paths if known is None else [*paths, known])
    return [run for run in found if (run.hash, run.seed) in asked]


def write_page(
    cells: Sequence[Cell],
    place: Place,
    known: Path | None,
    path: Path,
    title: str,
    records: Path | None,
) -> None:
    """Write a page about what is done, and records again: angles were measured for it."""
    from invint.report import write_report

    found = _found(cells, place, known)
    if not found:
        return
    left = [f"not run: {cell.label}" for cell in place.unfinished(cells)]
    with Console(stderr=True).status(f"drawing {len(found)} runs"):
        write_report(found, path, title=title, data_dir=place.data_dir, notes=left)
    if records is not None:
        write_records(_found(cells, place, known), records)
    Console(stderr=True).print(
        f"open {path.resolve().as_uri()}", highlight=False, markup=False, soft_wrap=True
    )


def show_plan(cells: Sequence[Cell], place: Place, jobs: int) -> None:
    """Print each run with its steps, its state and the time it takes on this machine."""
    with Console(stderr=True).status("") as status:

        def tell(recipe: Recipe) -> None:
            status.update(f"measuring {recipe.name}")

        threads = threads_each(jobs) if jobs > 1 else None
        forecasts = forecast(cells, place, threads=threads, watch=tell)
    Console().print(_plan_table(forecasts))
    left = [each for each in forecasts if each.seconds]
    seconds = sum(each.seconds for each in left) / jobs
    beside = f", {jobs} side by side" if jobs > 1 else ""
    Console().print(
        f"{len(left)} of {len(forecasts)} runs left: about {duration(seconds)} on this "
        f"machine{beside}",
        highlight=False,
        soft_wrap=True,
    )


def _plan_table(forecasts: Sequence[Forecast]) -> RichTable:
    table = RichTable(box=None, header_style="bold")
    table.add_column("run", overflow="fold")
    for heading in ("images", "seed", "steps", "state", "time left"):
        table.add_column(heading, justify="right")
    for each in forecasts:
        cell = each.cell
        table.add_row(
            cell.recipe.name,
            f"{cell.size:,}",
            str(cell.seed),
            f"{cell.steps:,}",
            each.state,
            duration(each.seconds) if each.seconds else "",
        )
    return table


def duration(seconds: float) -> str:
    """Return a time in the two units that matter."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours / 24:.1f} days"


def counter(data_dir: Path | None) -> Callable[[DataChoice], int]:
    """Return what counts the training images of a data set, each set once."""

    @cache
    def count(choice: DataChoice) -> int:
        return len(loaded(choice, data_dir).train)

    return count
