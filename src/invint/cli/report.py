"""`invint report`: one page about finished runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from invint.report import write_report
from invint.study.records import find_runs, write_records
from invint.study.tables import tables_by_data


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or .json records.")],
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Its title.")] = "Report",
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; by default INVINT_DATA or a cache.")
    ] = None,
    records: Annotated[
        Path | None, typer.Option(help="Also write small records of the runs to this .json file.")
    ] = None,
) -> None:
    """Write one HTML page about finished runs: tables, figures, hardest images."""
    errors = Console(stderr=True)
    notes: list[str] = []
    found = find_runs(runs, notes)
    for note in notes:
        errors.print(note, highlight=False, markup=False)
    with errors.status(f"drawing {len(found)} runs"):
        path = write_report(found, out, title=title, data_dir=data_dir, notes=notes)
    if records is not None:
        write_records(find_runs(runs), records)  # read again: angles were measured meanwhile
    console = Console()
    for table in tables_by_data(found):
        console.print(table.terminal())
    console.print(f"open {path.resolve().as_uri()}", highlight=False, soft_wrap=True)
