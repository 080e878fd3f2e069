"""Runs gathered into a table: ours beside the paper's, and what may be said about the heads."""

from collections.abc import Iterator, Sequence

from invint.errors import ConfigError
from invint.study.paper import TABLES, paper_values, printed
from invint.study.record import RunRecord, check_alike
from invint.study.statistics import paired_difference, spread
from invint.study.tables.notes import Notes
from invint.study.tables.table import Cell, Row, Table

BASELINE = "pooling"


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
