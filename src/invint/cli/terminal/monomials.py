"""`invint monomials`: tables of what runs chose, and of how much they agree."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from invint.figures.selections import selection_figure
from invint.figures.style import check_suffix, save_figure
from invint.selection.history import (
    History,
    chance_overlap,
    overlap,
    pairs,
    rank_correlation,
)
from invint.train.store import RunStore


def show_monomials(runs: list[Path], out: Path | None) -> None:
    """Print what each run chose, and draw it if there is a file to draw into."""
    if out is not None:
        check_suffix(out)
    histories = [RunStore(run).history() for run in runs]
    console = Console()
    for number, history in enumerate(histories, start=1):
        name = f"{number}: {history.run}" if len(histories) > 1 else str(history.run)
        console.print(name, soft_wrap=True, highlight=False)
        console.print(_chosen(history))
    if len(histories) > 1:
        console.print(_stability(histories))
    if out is not None:
        save_figure(selection_figure(histories), out)
        console.print(f"drawn into {out}", soft_wrap=True, highlight=False, markup=False)


def _chosen(history: History) -> Table:
    """List the survivors first, then what was dropped last, each by rank."""
    table = Table(box=None, header_style="bold")
    table.add_column("\n\nnumber", justify="right", no_wrap=True)
    for title in ("\n\ndistances", "\nexponents\nat start", "\n\ntrained"):
        table.add_column(title, no_wrap=True)
    for step in history.steps:
        title = f"{step.method}\nepoch {step.epoch:g}\n{len(step.numbers)} → {len(step.kept)}"
        table.add_column(title, justify="right", no_wrap=True)
    now = dict(zip(history.survivors, history.final.exponents, strict=True))
    ranks = [step.ranks for step in history.steps]
    scores = [dict(zip(step.numbers, step.scores, strict=True)) for step in history.steps]
    for number in _order(history):
        cells = [
            f"{scores_then[number]:.3g} ({ranks_then[number]})" if number in ranks_then else ""
            for scores_then, ranks_then in zip(scores, ranks, strict=True)
        ]
        style = "" if number in now else "dim"
        table.add_row(str(number), *_row(history, number, now), *cells, style=style)
    return table


def _row(history: History, number: int, now: dict[int, tuple[float, ...]]) -> tuple[str, str, str]:
    distances = " ".join(f"{distance:g}" for distance in history.first.distances[number])
    start = " ".join(f"{exponent:.2f}" for exponent in history.first.exponents[number])
    known = number in now and history.trained is not None
    trained = " ".join(f"{exponent:.2f}" for exponent in now[number]) if known else ""
    return distances, start, trained


def _order(history: History) -> list[int]:
    """Return all monomials, those that stayed longest first, and these by their last rank."""
    last: dict[int, tuple[int, int]] = {}
    for place, step in enumerate(history.steps):
        for number, rank in step.ranks.items():
            last[number] = (-place, rank)
    kept = set(history.survivors)
    numbers = range(len(history.start))
    return sorted(numbers, key=lambda each: (each not in kept, last.get(each, (0, each))))


def _stability(histories: list[History]) -> Table:
    table = Table(box=None, header_style="bold", title="agreement", title_justify="left")
    table.add_column("runs")
    for title in ("common distances", "by chance", "rank correlation of first scores"):
        table.add_column(title, justify="right")
    numbers = {id(history): number for number, history in enumerate(histories, start=1)}
    for first, second in pairs(histories):
        correlation = rank_correlation(first, second)
        table.add_row(
            f"{numbers[id(first)]} and {numbers[id(second)]}",
            f"{overlap(first.final, second.final):.2f}",
            f"{chance_overlap(first, second):.2f}",
            "too few in common" if correlation is None else f"{correlation:+.2f}",
        )
    return table
