"""The one place that prints: text goes out as it is, whatever brackets a path may have in it.

Needs neither torch nor NumPy, as what a command says about itself does not.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console, JustifyMethod, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from invint.data.dataset import Dataset
    from invint.recipes.recipe import DataChoice

UNBOUNDED = 100_000  # columns where nobody looks on: a file or a pipe gets every line whole
GAP = 2  # spaces between two columns of a table
READABLE = 24  # columns for text that is wrapped between words


def console(*, error: bool = False) -> Console:
    """Return stdout, or stderr, as rich writes on it: nothing in a text is taken for markup."""
    out = Console(stderr=error, markup=False, emoji=False, highlight=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = UNBOUNDED
    return out


def say(
    text: str = "", *, bold: str = "", error: bool = False, above: Progress | None = None
) -> None:
    """Print one line on stdout, or on stderr what a script does not want to read.

    Args:
        text: The line; control characters in it, such as a line break in a path, are escaped.
        bold: A part of the text to stand out.
        error: Print on stderr.
        above: Print above these bars, on the stream they are on.
    """
    line = Text(printable(text))
    if bold:
        line.highlight_words([printable(bold)], "bold")
    out = console(error=error) if above is None else above.console
    out.print(line, soft_wrap=True)


def show(what: RenderableType, *, error: bool = False) -> None:
    """Print a table, or paragraphs wrapped to the terminal; in a pipe a paragraph is one line."""
    out = console(error=error)
    out.print(what, soft_wrap=isinstance(what, Text) and not out.is_terminal)


def write(text: str) -> None:
    """Print what another program reads, JSON or CSV, on stdout to the letter."""
    sys.stdout.write(text)
    sys.stdout.flush()


def printable(text: str) -> str:
    """Escape control characters and the bytes of file names that are no text."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def status(text: str = "") -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being done, and yield a function that changes the text."""
    with console(error=True).status(Text(text)) as shown:
        yield lambda text: shown.update(Text(text))


def show_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    wrap: Collection[str] = (),
    spare: Sequence[str] = (),
    styles: Sequence[str] = (),
) -> None:
    """Print a table whose cells are whole on a narrow terminal too.

    Args:
        titles: Heads of the columns, in one or several lines.
        rows: Their cells.
        right: Columns aligned to the right.
        wrap: Columns with sentences, which are wrapped between words.
        spare: Columns to leave out where there is no room, the first of them first.
        styles: Of the rows, such as bold for a sum; none by default.
    """
    out, left_out = console(), list[str]()
    widths = [
        min(width, READABLE) if title in wrap else width
        for title, width in zip(titles, map(_width, zip(titles, *rows, strict=True)), strict=True)
    ]
    kept = list(range(len(titles)))

    def crowded() -> bool:
        return sum(widths[index] + GAP for index in kept) - GAP > out.width

    for title in spare:
        if crowded():
            kept.remove(titles.index(title))
            left_out.append(title)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
    for title in (titles[index] for index in kept):
        side: JustifyMethod = "right" if title in right else "left"
        whole = title not in wrap and not crowded()  # in several lines rather than cut off
        table.add_column(title, justify=side, no_wrap=whole, overflow="fold")
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        table.add_row(*(printable(row[index]) for index in kept), style=style)
    out.print(table)
    if left_out:
        names = ", ".join(" ".join(title.split()) for title in left_out)
        say(f"left out to fit {out.width} columns: {names}", error=True)


def _width(column: Sequence[str]) -> int:
    return max(cell_len(line) for cell in column for line in cell.split("\n"))


class Counting:
    """A bar on a terminal that comes with the first of many things and goes with the last.

    Args:
        what: Happens to them.
    """

    def __init__(self, what: str = "decoding") -> None:
        columns = (
            TextColumn(what),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console(error=True), transient=True)
        self.task = self.progress.add_task(what, total=None)

    def __call__(self, count: int, total: int) -> None:
        """Move the bar."""
        self.progress.update(self.task, completed=count, total=total)
        if count == total:
            self.close()
        elif self.progress.console.is_terminal:
            self.progress.start()

    def close(self) -> None:
        """Give the terminal back."""
        if self.progress.live.is_started:
            self.progress.stop()

    def __enter__(self) -> "Counting":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def loaded(choice: "DataChoice", data_dir: Path | None) -> "Dataset":
    """Read a data set; a bar shows how many pictures are decoded, the first time they are read."""
    from invint.train.setup import load_data

    with Counting() as progress:
        return load_data(choice, data_dir, progress=progress)


@contextmanager
def downloads() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield a function that shows a bar for each file: its name, bytes so far, bytes in all."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console(error=True)) as progress:

        def watch(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=total)
            progress.update(tasks[name], completed=done, total=total)

        yield watch


def tolerant_streams() -> None:
    """Let characters that stdout or stderr cannot encode be escaped instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a stream may be closed, or not there
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
