"""`invint models`: counting, and the table."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import track
from rich.table import Table

from invint.errors import ConfigError, did_you_mean
from invint.models import MODELS
from invint.models.registry import Summary, summaries, summarize
from invint.nn import HEADS


def show_models(names: Sequence[str], head: str | None) -> None:
    """Print the networks asked for, or all, with one head or all."""
    for name in names:
        if name not in MODELS:
            raise ConfigError(f"no network {name!r}; there are {', '.join(MODELS)}")
    if head is not None and head not in HEADS:
        hint = did_you_mean(head, HEADS)
        raise ConfigError(f"no head {head!r}; {hint}there are {', '.join(HEADS)}")
    chosen = [
        (name, each)
        for name, each in summaries()
        if (not names or name in names) and (head is None or each in (head, None))
    ]
    console = Console()
    busy = track(chosen, "counting", console=Console(stderr=True), transient=True)
    console.print(_table([summarize(name, each) for name, each in busy]))


def _table(rows: list[Summary]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("network", "head", "group", "widths"):
        table.add_column(title)
    for title in ("n_F", "parameters", "paper", "difference", "multiplications"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            row.head or "",
            row.group or "",
            "-".join(map(str, row.widths)),
            "" if row.functions is None else str(row.functions),
            f"{row.parameters:,}",
            "" if row.paper is None else f"{row.paper:.2f} M",
            "" if row.difference is None else f"{row.difference:+.1%}",
            f"{row.operations / 1e6:,.0f} M",
        )
    return table
