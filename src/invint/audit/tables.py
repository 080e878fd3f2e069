"""The table of an audit: one line for each turn, as aligned text or as Markdown."""

from collections.abc import Sequence

from invint.audit.turn import Turn

HEAD = ("angle", "mirrored", "grid", "mean drift", "max drift", "changed", "accuracy")


def table_lines(turns: Sequence[Turn], *, markdown: bool = False) -> list[str]:
    """Return the lines of a table, without the accuracy where it is not known."""
    columns = len(HEAD) - (turns[0].accuracy is None)
    rows = [row[:columns] for row in [list(HEAD), *map(_cells, turns)]]
    return _markdown(rows) if markdown else _aligned(rows)


def _cells(turn: Turn) -> list[str]:
    accuracy = "" if turn.accuracy is None else f"{turn.accuracy:.1%}"
    return [
        f"{turn.angle:g}°",
        "yes" if turn.mirrored else "no",
        "exact" if turn.exact else "-",
        f"{turn.mean_drift:.1e}",
        f"{turn.max_drift:.1e}",
        f"{turn.changed:.1%}",
        accuracy,
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]


def _markdown(rows: list[list[str]]) -> list[str]:
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return [head, f"|{' ---: |' * len(rows[0])}", *body]
