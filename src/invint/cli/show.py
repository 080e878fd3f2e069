"""`invint models`, `monomials`, `report`: what there is, and what runs have found."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invint.cli.console import say, show, show_table, status
from invint.cli.options import DataDir
from invint.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from invint.models.registry import Summary
    from invint.selection.history import History

MODEL_COLUMNS = (
    "network",
    "head",
    "group",
    "widths",
    "n_F",
    "parameters",
    "paper",
    "difference",
    "MACs",
)


def models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NETWORK", help="By default all networks.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="NAME", help="This head only; by default all.")
    ] = None,
) -> None:
    """List networks: group, widths, parameters beside the paper's, multiplications.

    n_F is the number of basis functions of the largest filters; MACs are those of one image.
    """
    from invint.models.registry import MODELS, summaries, summarize
    from invint.nn import HEADS

    for name in names or []:
        if name not in MODELS:
            raise ConfigError(f"no network {name!r}; there are {', '.join(MODELS)}")
    if head is not None and head not in HEADS:
        hint = did_you_mean(head, HEADS)
        raise ConfigError(f"no head {head!r}; {hint}there are {', '.join(HEADS)}")
    rows = []
    with status("building the networks") as tell:
        for name, each in summaries():
            if (not names or name in names) and (head is None or each in (head, None)):
                tell(f"building {name}")
                rows.append(_model_row(summarize(name, each)))
    show_table(
        MODEL_COLUMNS,
        rows,
        right=MODEL_COLUMNS[4:],
        spare=("widths", "difference", "paper", "group", "n_F", "MACs"),
    )


def _model_row(summary: "Summary") -> tuple[str, ...]:
    return (
        summary.name,
        summary.head or "",
        summary.group or "",
        "-".join(map(str, summary.widths)),
        "" if summary.functions is None else str(summary.functions),
        f"{summary.parameters:,}",
        "" if summary.paper is None else f"{summary.paper:.2f} M",
        "" if summary.difference is None else f"{summary.difference:+.1%}",
        f"{summary.operations / 1e6:,.0f} M",
    )


def monomials(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them into this .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Show which monomials runs selected: distances, exponents, scores and ranks.

    Of several runs it also shows how far they agree, beside what chance alone would give.
    """
    from invint.figures.selections import selection_figure
    from invint.figures.style import check_suffix, save_figure
    from invint.train.store import RunStore

    if out is not None:
        check_suffix(out)
    histories = [RunStore(run).history() for run in runs]
    for number, history in enumerate(histories, start=1):
        say(f"{number}: {history.run}" if len(histories) > 1 else str(history.run))
        _show_selection(history)
    if len(histories) > 1:
        _show_agreement(histories)
    if out is not None:
        save_figure(selection_figure(histories), out)
        say(f"drawn into {out}")


def _show_selection(history: "History") -> None:
    """List the monomials that were kept, then those dropped last, each group by rank."""
    titles = ["\n\nnumber", "\n\ndistances", "\nexponents\nat start", "\n\ntrained"]
    steps = [
        f"{step.method}\nepoch {step.epoch:g}\n{len(step.indices)} → {len(step.kept)}"
        for step in history.steps
    ]
    cells = []
    for step in history.steps:
        scored, ranks = zip(step.indices, step.scores, strict=True), step.ranks
        cells.append({index: f"{score:.3g} ({ranks[index]})" for index, score in scored})
    order = _order(history)
    rows = [
        [*_factors(history, index), *(of_step.get(index, "") for of_step in cells)]
        for index in order
    ]
    styles = ["" if index in history.survivors else "dim" for index in order]
    right, spare = (titles[0], *steps), titles[2:3]
    show_table([*titles, *steps], rows, right=right, spare=spare, styles=styles)


def _factors(history: "History", index: int) -> tuple[str, ...]:
    """Return the index, distances and exponents of a monomial as text."""
    kept = dict(zip(history.survivors, history.final.exponents, strict=True))
    trained = kept.get(index, ()) if history.trained is not None else ()
    return (
        str(index),
        " ".join(f"{distance:g}" for distance in history.first.distances[index]),
        " ".join(f"{exponent:.2f}" for exponent in history.first.exponents[index]),
        " ".join(f"{exponent:.2f}" for exponent in trained),
    )


def _order(history: "History") -> list[int]:
    """Return the indices of all monomials: kept longest first, and those by their last rank."""
    last: dict[int, tuple[int, int]] = {}
    for place, step in enumerate(history.steps):
        for index, rank in step.ranks.items():
            last[index] = (-place, rank)
    kept = set(history.survivors)
    indices = range(len(history.start))
    return sorted(indices, key=lambda index: (index not in kept, last.get(index, (0, index))))


def _show_agreement(histories: Sequence["History"]) -> None:
    from invint.selection.history import chance_overlap, overlap, rank_correlation

    rows = []
    for (i, first), (j, second) in combinations(enumerate(histories, start=1), 2):
        correlation = rank_correlation(first, second)
        rows.append(
            (
                f"{i} and {j}",
                f"{overlap(first.final, second.final):.2f}",
                f"{chance_overlap(first, second):.2f}",
                "too few in common" if correlation is None else f"{correlation:+.2f}",
            )
        )
    titles = ("runs", "common distances", "by chance", "rank correlation of first scores")
    say("agreement")
    show_table(titles, rows, right=titles[1:])


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or .json records.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(metavar="TEXT", help="Title of the page.")] = "Report",
    data_dir: DataDir = None,
    records: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write small records of the runs, as .json."),
    ] = None,
) -> None:
    """Write one HTML page about finished runs: tables, figures, the hardest images."""
    from invint.report import write_report
    from invint.study.records import find_runs, write_records
    from invint.study.tables import tables_by_data

    notes: list[str] = []
    found = find_runs(runs, notes)
    for note in notes:
        say(note, error=True)
    with status(f"drawing {len(found)} runs"):
        path = write_report(found, out, title=title, data_dir=data_dir, notes=notes)
    if records is not None:
        write_records(find_runs(runs), records)  # read again: angles were measured meanwhile
    for table in tables_by_data(found):
        show(table.terminal())
    say(f"open {path.resolve().as_uri()}")
