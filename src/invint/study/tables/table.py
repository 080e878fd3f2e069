"""A table of test errors: its cells, its rows, and the forms it takes."""

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invint.study.paper import Value
from invint.study.statistics import Difference, Spread
from invint.study.tables.formats import capital, escaped, latex_table, markdown_table, rich_table
from invint.study.tables.texts import interval_text, plus_minus

if TYPE_CHECKING:
    from rich.console import Group

NOT_RUN = "not run"
AVERAGED = "averaged over rotated copies"
HEADINGS = ("recipe", "parameters")
DIFFERENCES = "paired difference to pooling in percentage points, with its 95 % confidence interval"
CSV_COLUMNS = (
    "data",
    "recipe",
    "averaged",
    "parameters",
    "size",
    "seeds",
    "error",
    "deviation",
    "paper_error",
    "paper_deviation",
    "difference",
    "low",
    "high",
    "pairs",
    "verdict",
    "notes",
)


@dataclass(frozen=True)
class Cell:
    """One recipe at one size. Errors are in percent, differences in percentage points.

    Attributes:
        ours: Over our seeds; none if not run.
        paper: The paper's mean and deviation, where it has one for these data.
        printed: The same, as printed there.
        difference: To the pooling head, over the same seeds and subsets.
        marks: Letters of the notes that hold for this cell.
    """

    ours: Spread | None
    paper: Value | None = None
    printed: str | None = None
    difference: Difference | None = None
    marks: str = ""


@dataclass(frozen=True)
class Row:
    """One recipe.

    Attributes:
        recipe: Its name.
        averaged: Whether predictions are averaged over rotated copies of a test image.
        parameters: Of the network; none if not run.
        cells: One for each size.
    """

    recipe: str
    averaged: bool
    parameters: int | None
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """The name, and what was done at test time."""
        return f"{self.recipe}, {AVERAGED}" if self.averaged else self.recipe


@dataclass(frozen=True)
class Table:
    """Test errors on one data set by recipe and number of training images.

    Attributes:
        data: Name of the data set.
        sizes: Numbers of training images, one column each.
        rows: One for each recipe.
        notes: What a reader must know, each said once.
    """

    data: str
    sizes: tuple[int, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"test error in % on {self.data} by number of training images"

    @property
    def compared(self) -> tuple[Row, ...]:
        """Rows with a difference to pooling at any size."""
        return tuple(row for row in self.rows if any(cell.difference for cell in row.cells))

    def markdown(self) -> str:
        """Return Markdown: errors, differences, notes."""
        blocks = [f"**{capital(self.title)}**", markdown_table(self._errors())]
        if self.compared:
            blocks += [f"**{capital(DIFFERENCES)}**", markdown_table(self._differences())]
        blocks += ["\n".join(f"- {note}" for note in self.notes)]
        return "\n\n".join(blocks) + "\n"

    def csv(self) -> str:
        """Return CSV: one line for each recipe and size, with every number and note."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_COLUMNS)
        for row in self.rows:
            for size, cell in zip(self.sizes, row.cells, strict=True):
                writer.writerow(_csv_values(self, row, size, cell))
        return text.getvalue()

    def latex(self) -> str:
        """Return LaTeX for the package booktabs: errors, differences, notes."""
        parts = [latex_table(self.title, self._errors())]
        if self.compared:
            parts.append(latex_table(DIFFERENCES, self._differences()))
        notes = [rf"\par\smallskip\footnotesize {escaped(note)}" for note in self.notes]
        return "\n".join([*parts, *notes]) + "\n"

    def terminal(self) -> "Group":
        """Return what rich prints: errors, differences, notes."""
        from rich.console import Group
        from rich.text import Text

        parts: list[object] = [rich_table(capital(self.title), self._errors())]
        if self.compared:
            parts.append(rich_table(capital(DIFFERENCES), self._differences()))
        parts += [Text(note, style="dim") for note in self.notes]
        return Group(*parts)  # type: ignore[arg-type]

    def _errors(self) -> list[list[str]]:
        head = [*HEADINGS, *(f"{size:,}" for size in self.sizes)]
        return [head, *([row.label, _count(row), *map(error_text, row.cells)] for row in self.rows)]

    def _differences(self) -> list[list[str]]:
        head = ["recipe", *(f"{size:,}" for size in self.sizes)]
        return [head, *([row.label, *map(difference_text, row.cells)] for row in self.compared)]


def error_text(cell: Cell) -> str:
    """Return ours with deviation and seeds, and the paper's beside it."""
    text = NOT_RUN
    if cell.ours is not None:
        text = plus_minus(cell.ours.mean, cell.ours.deviation) + f" ({cell.ours.count})"
    text += cell.marks and f" {cell.marks}"
    return text if cell.printed is None else f"{text} | paper {cell.printed}"


def difference_text(cell: Cell) -> str:
    """Return the difference with its interval, and in a word what it shows."""
    difference = cell.difference
    if difference is None:
        return ""
    return f"{interval_text(difference)} {difference.verdict}"


def _count(row: Row) -> str:
    return "" if row.parameters is None else f"{row.parameters:,}"


def _csv_values(table: Table, row: Row, size: int, cell: Cell) -> list[object]:
    ours, difference = cell.ours, cell.difference
    return [
        table.data,
        row.recipe,
        int(row.averaged),
        row.parameters,
        size,
        ours.count if ours else 0,
        ours.mean if ours else NOT_RUN,
        ours.deviation if ours else None,
        *(cell.paper or (None, None)),
        *((difference.mean, difference.low, difference.high) if difference else (None,) * 3),
        *((difference.pairs, difference.verdict) if difference else (None,) * 2),
        "; ".join(
            note
            for note in table.notes
            if note.startswith("data: ") or any(note.startswith(f"{m}: ") for m in cell.marks)
        ),
    ]
