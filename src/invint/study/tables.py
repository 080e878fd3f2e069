"""Tables of test errors by recipe and size: their rows, their notes, and four formats for them."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invint.errors import ConfigError
from invint.study.paper import TABLES, Value, paper_values, printed
from invint.study.records import RunRecord, check_alike
from invint.study.statistics import Difference, Spread, paired_difference, spread

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable

Lines = list[list[str]]
NOT_RUN = "not run"
BASELINE = "pooling"
AVERAGED = "averaged over rotated copies"
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
        ours: Over our seeds; `None` if not run.
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
        parameters: Of the network; `None` if not run.
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

    @property
    def blocks(self) -> list[tuple[str, Lines]]:
        """Errors, and differences if there are any, in words: a title and lines of cells each."""
        sizes = [f"{size:,}" for size in self.sizes]
        errors = [[row.label, _count(row), *map(error_text, row.cells)] for row in self.rows]
        blocks = [(self.title, [["recipe", "parameters", *sizes], *errors])]
        if self.compared:
            shown = [[row.label, *map(difference_text, row.cells)] for row in self.compared]
            blocks.append((DIFFERENCES, [["recipe", *sizes], *shown]))
        return blocks

    def markdown(self) -> str:
        """Return Markdown."""
        parts = [f"**{_capitalised(title)}**\n\n{_markdown(lines)}" for title, lines in self.blocks]
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n\n".join([*parts, notes]) + "\n"

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
        """Return LaTeX for the package booktabs."""
        parts = [_latex(title, lines) for title, lines in self.blocks]
        notes = [rf"\par\smallskip\footnotesize {_escaped(note)}" for note in self.notes]
        return "\n".join([*parts, *notes]) + "\n"

    def terminal(self) -> "Group":
        """Return what rich prints."""
        from rich.console import Group
        from rich.text import Text

        parts = [_rich(title, lines) for title, lines in self.blocks]
        return Group(*parts, *(Text(note, style="dim") for note in self.notes))


class Notes:
    """Collects what has to be said of runs, and gives out the letters that point to it."""

    def __init__(self, runs: Sequence[RunRecord]) -> None:
        self.letters: dict[str, str] = {}
        self.runs = runs

    def marks(self, runs: Sequence[RunRecord]) -> str:
        """Return the letters of the notes that hold for the runs of a cell."""
        scales = sorted({run.scale for run in runs if run.scale < 1})
        texts = [f"scaled down: {scale:.3g} of the recipe's iterations" for scale in scales]
        return "".join(
            self.letters.setdefault(text, chr(ord("a") + len(self.letters))) for text in texts
        )

    def texts(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """Return all notes of a table."""
        cells = [cell for row in rows for cell in row.cells]
        counts = sorted({cell.ours.count for cell in cells if cell.ours})
        seeds = " or ".join(map(str, counts))
        texts = [f"mean ± sample deviation (number of seeds: {seeds})"]
        texts += [f"data: {note}" for note in sorted({run.note for run in self.runs if run.note})]
        texts += [f"{letter}: {text}" for text, letter in self.letters.items()]
        if any(cell.paper for cell in cells):
            texts.append("paper: as printed there, over 5 seeds (Rotated-MNIST) or 3")
        if any(cell.difference for cell in cells):
            texts.append(
                "differences: negative means fewer errors than pooling, over the same seeds and "
                "training images; where the interval holds zero, no difference is shown"
            )
        if any(cell.ours is None for cell in cells):
            texts.append(f"{NOT_RUN}: no finished run at this size")
        return tuple(texts)


# From runs to rows


def make_table(
    runs: Sequence[RunRecord],
    *,
    data: str | None = None,
    recipes: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
) -> Table:
    """Gather runs on one data set into a table.

    Args:
        runs: Finished runs; those on other data are left out if `data` is given.
        data: Name of the data set; by default that of the runs, which must be one.
        recipes: The rows; by default those that ran, in the order of the paper. What is named here
            and did not run is in the table as "not run".
        sizes: The columns; by default those that ran.

    Raises:
        ConfigError: There is nothing to show, or the runs do not belong into one table.
    """
    names = sorted({run.data for run in runs})
    if data is None and len(names) > 1:
        raise ConfigError(f"runs on {', '.join(names)} do not belong into one table; choose one")
    chosen = [run for run in runs if data in (None, run.data)]
    if not chosen:
        raise ConfigError(f"no finished run on {data!r}" if data else "no finished run to tabulate")
    check_alike(chosen)
    columns = tuple(sizes) if sizes else tuple(sorted({run.size for run in chosen}))
    notes = Notes(chosen)
    rows = tuple(
        _row(recipe, averaged, columns, chosen, notes)
        for recipe in recipes or ordered_recipes(chosen)
        for averaged in _variants(recipe, chosen)
    )
    return Table(chosen[0].data, columns, rows, notes.texts(rows))


def tables_by_data(runs: Sequence[RunRecord]) -> list[Table]:
    """Return one table for each data set."""
    return [make_table(runs, data=name) for name in sorted({run.data for run in runs})]


def ordered_recipes(runs: Sequence[RunRecord]) -> list[str]:
    """Return the recipes that ran: plain networks, pooling, then the paper's order and the rest."""
    known = [recipe for table in list(TABLES.values())[1:] for recipe in table.recipes]
    known += [recipe for recipe in TABLES["table1"].recipes if recipe not in known]
    order = [recipe.partition("/")[2] for recipe in known]

    def place(recipe: str) -> tuple[int, int, str]:
        variant = recipe.partition("/")[2]
        plain = any(run.recipe == recipe and run.choices["model"]["head"] is None for run in runs)
        late = order.index(variant) if variant in order else len(order)
        return (0 if plain and variant != BASELINE else 1), late, recipe

    return sorted({run.recipe for run in runs}, key=place)


def baseline_of(recipe: str) -> str:
    """Return the recipe with pooling that belongs to a recipe."""
    return f"{recipe.partition('/')[0]}/{BASELINE}"


def _variants(recipe: str, runs: Sequence[RunRecord]) -> Iterator[bool]:
    yield False
    if any(run.recipe == recipe and run.averaged_error is not None for run in runs):
        yield True


def _row(
    recipe: str, averaged: bool, sizes: Sequence[int], runs: Sequence[RunRecord], notes: Notes
) -> Row:
    own = [run for run in runs if run.recipe == recipe]
    return Row(
        recipe,
        averaged,
        own[0].parameters if own else None,
        tuple(_cell(recipe, averaged, size, runs, notes) for size in sizes),
    )


def _cell(recipe: str, averaged: bool, size: int, runs: Sequence[RunRecord], notes: Notes) -> Cell:
    own = [run for run in runs if (run.recipe, run.size) == (recipe, size)]
    errors = errors_by_pair(own, averaged)
    baseline = baseline_of(recipe)
    scales = {run.scale for run in own}  # a run cut short is not compared with a whole one
    others = [run for run in runs if (run.recipe, run.size) == (baseline, size)]
    pooled = errors_by_pair([run for run in others if run.scale in scales])
    # "rotmnist-regenerated" stands beside the paper's Rotated-MNIST, and a note says what it is
    known = not averaged and recipe.partition("/")[0] == runs[0].data.partition("-")[0]
    return Cell(
        spread(list(errors.values())) if errors else None,
        paper_values(recipe).get(size) if known else None,
        printed(recipe, size) if known else None,
        paired_difference(errors, pooled) if recipe != baseline else None,
        notes.marks(own),
    )


def errors_by_pair(
    runs: Sequence[RunRecord], averaged: bool = False
) -> dict[tuple[int, str], float]:
    """Return errors in percent by seed and subset."""
    errors = ((run.pair, run.averaged_error if averaged else run.error) for run in runs)
    return {pair: 100 * error for pair, error in errors if error is not None}


# Cells in words, and words in formats


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


def interval_text(difference: Difference) -> str:
    """Return the difference and, of several pairs, its interval."""
    text = signed(difference.mean)
    if difference.low is not None and difference.high is not None:
        text += f" [{signed(difference.low)}, {signed(difference.high)}]"
    return text


def signed(number: float, kind: str = ".2f") -> str:
    """Return a number with its sign, the minus as long as the plus."""
    text = f"{number:+{kind}}"
    return text.replace("-", "−") if float(text) else text[1:]


def decimals(mean: float) -> int:
    """Return how many digits of an error in percent are worth printing."""
    return 2 if mean >= 1 else 3


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return an error in percent with its deviation, if there is one."""
    digits = decimals(mean)
    text = f"{mean:.{digits}f}"
    return text if deviation is None else f"{text} ± {deviation:.{digits}f}"


def _markdown(lines: Lines) -> str:
    """Return a table in Markdown."""
    rows = [[cell.replace("|", "·") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [rows[0], rule, *rows[1:]])


def _latex(title: str, lines: Lines) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    rows = [" & ".join(_escaped(cell.replace("|", "·")) for cell in line) for line in lines]
    body = [rows[0] + r" \\", r"\midrule", *(row + r" \\" for row in rows[1:])]
    columns = "l" + "r" * (len(lines[0]) - 1)
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    about = rf"\multicolumn{{{len(lines[0])}}}{{l}}{{{_escaped(_capitalised(title))}}} \\"
    return "\n".join([*head, about, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def _escaped(text: str) -> str:
    """Return text as LaTeX wants it."""
    for plain, written in (
        ("\\", r"\textbackslash "),
        ("&", r"\&"),
        ("%", r"\%"),
        ("_", r"\_"),
        ("#", r"\#"),
        ("±", r"$\pm$"),
        ("−", "$-$"),
        ("·", r"$\cdot$"),
    ):
        text = text.replace(plain, written)
    return text


def _rich(title: str, lines: Lines) -> "RichTable":
    """Return a table that rich prints."""
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(
        title=_capitalised(title), title_justify="left", box=None, header_style="bold"
    )
    for index, name in enumerate(lines[0]):
        table.add_column(Text(name), justify="right" if index else "left")
    for line in lines[1:]:
        table.add_row(*(Text(cell.replace(" | ", "\n").replace("] ", "]\n")) for cell in line))
    return table


def _capitalised(text: str) -> str:
    """Return text that begins with a capital."""
    return text[:1].upper() + text[1:]
