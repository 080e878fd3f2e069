"""Tables of test errors by recipe and size: their rows, their notes, and four formats for them."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from invint.errors import ConfigError
from invint.study.paper import TABLES, Value, paper_values, printed
from invint.study.records import RunRecord, check_alike
from invint.study.statistics import Difference, Spread, paired_difference, spread

Lines = list[list[str]]
NOT_RUN = "not run"
BASELINE = "pooling"
SETTLED = "settled-"  # begins the names of recipes that are compared with settled pooling
AVERAGED = "averaged over rotated copies"
DIFFERENCES = "Paired difference to pooling in percentage points, with its 95 % confidence interval"
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash ",
        "&": r"\&",
        "%": r"\%",
        "_": r"\_",
        "#": r"\#",
        "±": r"$\pm$",
        "−": "$-$",
        "·": r"$\cdot$",
    }
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
    def compared(self) -> tuple[Row, ...]:
        """Rows with a difference to pooling at any size."""
        return tuple(row for row in self.rows if any(cell.difference for cell in row.cells))

    @property
    def blocks(self) -> list[tuple[str, Lines]]:
        """Errors, and differences if there are any, in words: a title and lines of cells each."""
        sizes = [f"{size:,}" for size in self.sizes]
        errors = []
        for row in self.rows:
            parameters = "" if row.parameters is None else f"{row.parameters:,}"
            errors.append([row.label, parameters, *map(error_text, row.cells)])
        title = f"Test error in % on {self.data} by number of training images"
        blocks = [(title, [["recipe", "parameters", *sizes], *errors])]
        if self.compared:
            shown = [[row.label, *map(difference_text, row.cells)] for row in self.compared]
            blocks.append((DIFFERENCES, [["recipe", *sizes], *shown]))
        return blocks

    def markdown(self) -> str:
        """Return Markdown."""
        parts = [f"**{title}**\n\n{_markdown(lines)}" for title, lines in self.blocks]
        notes = "\n".join(f"- {note}" for note in self.notes)
        return "\n\n".join([*parts, notes]) + "\n"

    def csv(self) -> str:
        """Return CSV: one line for each recipe and size, with every number and note."""
        lines = [
            self._csv_line(row, size, cell)
            for row in self.rows
            for size, cell in zip(self.sizes, row.cells, strict=True)
        ]
        text = io.StringIO()
        writer = csv.DictWriter(text, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def _csv_line(self, row: Row, size: int, cell: Cell) -> dict[str, object]:
        ours, difference = cell.ours, cell.difference
        error, deviation = cell.paper or (None, None)
        own = ("data: ", *(f"{mark}: " for mark in cell.marks))
        return {
            "data": self.data,
            "recipe": row.recipe,
            "averaged": int(row.averaged),
            "parameters": row.parameters,
            "size": size,
            "seeds": ours.count if ours else 0,
            "error": ours.mean if ours else NOT_RUN,
            "deviation": ours and ours.deviation,
            "paper_error": error,
            "paper_deviation": deviation,
            "difference": difference and difference.mean,
            "low": difference and difference.low,
            "high": difference and difference.high,
            "pairs": difference and difference.pairs,
            "verdict": difference and difference.verdict,
            "notes": "; ".join(note for note in self.notes if note.startswith(own)),
        }

    def latex(self) -> str:
        """Return LaTeX for the package booktabs."""
        parts = [_latex(title, lines) for title, lines in self.blocks]
        notes = [rf"\par\smallskip\footnotesize {note.translate(LATEX)}" for note in self.notes]
        return "\n".join([*parts, *notes]) + "\n"

    def terminal(self) -> Group:
        """Return what rich prints."""
        parts = [_rich(title, lines) for title, lines in self.blocks]
        return Group(*parts, *(Text(note, style="dim") for note in self.notes))


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
    letters: dict[str, str] = {}
    rows = []
    for recipe in recipes or ordered_recipes(chosen):
        own = [run for run in chosen if run.recipe == recipe]
        also_averaged = any(run.averaged_error is not None for run in own)
        for averaged in (False, True) if also_averaged else (False,):
            cells = (_cell(recipe, averaged, size, chosen, letters) for size in columns)
            rows.append(Row(recipe, averaged, own[0].parameters if own else None, tuple(cells)))
    return Table(chosen[0].data, columns, tuple(rows), _notes(rows, chosen, letters))


def tables_by_data(runs: Sequence[RunRecord]) -> list[Table]:
    """Return one table for each data set."""
    return [make_table(runs, data=name) for name in sorted({run.data for run in runs})]


def ordered_recipes(runs: Sequence[RunRecord]) -> list[str]:
    """Return the recipes that ran: plain networks, pooling, then the paper's order and the rest."""
    known = [recipe for table in list(TABLES.values())[1:] for recipe in table.recipes]
    known += [recipe for recipe in TABLES["table1"].recipes if recipe not in known]
    order = [recipe.partition("/")[2] for recipe in known]

    def place(recipe: str) -> tuple[int, int, str]:
        variant = recipe.partition("/")[2].removeprefix(SETTLED)
        plain = any(run.recipe == recipe and run.choices["model"]["head"] is None for run in runs)
        late = order.index(variant) if variant in order else len(order)
        return (0 if plain and variant != BASELINE else 1), late, recipe

    return sorted({run.recipe for run in runs}, key=place)


def _cell(
    recipe: str, averaged: bool, size: int, runs: Sequence[RunRecord], letters: dict[str, str]
) -> Cell:
    """Return a cell; a note that holds for its runs alone gets a letter, unless it has one."""
    own = [run for run in runs if (run.recipe, run.size) == (recipe, size)]
    errors = errors_by_pair(own, averaged)
    data = recipe.partition("/")[0]
    baseline = baseline_of(recipe)
    scales = {run.scale for run in own}  # a run cut short is not compared with a whole one
    others = [run for run in runs if (run.recipe, run.size) == (baseline, size)]
    pooled = errors_by_pair([run for run in others if run.scale in scales])
    marks = ""
    for scale in sorted(scale for scale in scales if scale < 1):
        text = f"scaled down: {scale:.3g} of the recipe's iterations"
        marks += letters.setdefault(text, chr(ord("a") + len(letters)))
    # "rotmnist-regenerated" stands beside the paper's Rotated-MNIST, and a note says what it is
    known = not averaged and data == runs[0].data.partition("-")[0]
    return Cell(
        spread(list(errors.values())) if errors else None,
        paper_values(recipe).get(size) if known else None,
        printed(recipe, size) if known else None,
        paired_difference(errors, pooled) if recipe != baseline else None,
        marks,
    )


def _notes(
    rows: Sequence[Row], runs: Sequence[RunRecord], letters: Mapping[str, str]
) -> tuple[str, ...]:
    """Return all notes of a table."""
    cells = [cell for row in rows for cell in row.cells]
    seeds = " or ".join(map(str, sorted({cell.ours.count for cell in cells if cell.ours})))
    texts = [f"mean ± sample deviation (number of seeds: {seeds})"]
    texts += [f"data: {note}" for note in sorted({run.note for run in runs if run.note})]
    texts += [f"{letter}: {text}" for text, letter in letters.items()]
    texts += sorted({catalog_text(run) for run in runs} - {""})
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


def catalog_text(run: RunRecord) -> str:
    """Say how many combinations of distances a catalog had, which the map decides; else nothing."""
    drawn = next((line["start"]["distances"] for line in run.selections if "start" in line), None)
    if drawn is None or run.choices["selection"].get("initial") != "catalog":
        return ""
    combinations = {tuple(sorted(row)) for row in drawn}
    reach = max(max(row) for row in drawn)
    return (
        f"catalog: all {len(combinations)} combinations of distances up to {reach:g}, the rest of "
        f"{len(drawn)} monomials at random; a larger head.max_distance has more"
    )


def baseline_of(recipe: str) -> str:
    """Return the recipe that one is compared with: pooling, trained likewise."""
    data, _, variant = recipe.partition("/")
    return f"{data}/{SETTLED if variant.startswith(SETTLED) else ''}{BASELINE}"


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
        digits, deviation = decimals(cell.ours.mean), cell.ours.deviation
        text = f"{cell.ours.mean:.{digits}f}"
        text += "" if deviation is None else f" ± {deviation:.{digits}f}"
        text += f" ({cell.ours.count})"
    text += cell.marks and f" {cell.marks}"
    return text if cell.printed is None else f"{text} | paper {cell.printed}"


def difference_text(cell: Cell) -> str:
    """Return the difference with its interval, and in a word what it shows."""
    return "" if cell.difference is None else interval_text(cell.difference)


def interval_text(difference: Difference) -> str:
    """Return a difference with its interval, and in a word what it shows."""
    text = signed(difference.mean)
    if difference.low is not None and difference.high is not None:
        text += f" [{signed(difference.low)}, {signed(difference.high)}]"
    return f"{text} {difference.verdict}"


def signed(number: float, kind: str = ".2f") -> str:
    """Return a number with its sign, the minus as long as the plus."""
    text = f"{number:+{kind}}"
    return text.replace("-", "−") if float(text) else text[1:]


def decimals(mean: float) -> int:
    """Return how many digits of an error in percent are worth printing."""
    return 2 if mean >= 1 else 3


def _markdown(lines: Lines) -> str:
    """Return a table in Markdown."""
    rows = [[cell.replace("|", "·") for cell in line] for line in lines]
    rule = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [rows[0], rule, *rows[1:]])


def _latex(title: str, lines: Lines) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    rows = [" & ".join(cell.replace("|", "·").translate(LATEX) for cell in line) for line in lines]
    body = [rows[0] + r" \\", r"\midrule", *(row + r" \\" for row in rows[1:])]
    columns = "l" + "r" * (len(lines[0]) - 1)
    head = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    about = rf"\multicolumn{{{len(lines[0])}}}{{l}}{{{title.translate(LATEX)}}} \\"
    return "\n".join([*head, about, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"])


def _rich(title: str, lines: Lines) -> RichTable:
    """Return a table that rich prints."""
    table = RichTable(title=title, title_justify="left", box=None, header_style="bold")
    for index, name in enumerate(lines[0]):
        table.add_column(Text(name), justify="right" if index else "left")
    for line in lines[1:]:
        table.add_row(*(Text(cell.replace(" | ", "\n").replace("] ", "]\n")) for cell in line))
    return table
