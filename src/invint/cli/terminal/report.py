"""`invint report`: the page, and its tables in the terminal."""

from pathlib import Path

from rich.console import Console

from invint.report import write_report
from invint.study.records import find_runs, write_records
from invint.study.tables import tables_by_data


def show_report(
    runs: list[Path], out: Path, *, title: str, data_dir: Path | None, records: Path | None
) -> None:
    """Write the page, and records if there is a file for them, and print the tables."""
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
    console.print(f"open {path.resolve().as_uri()}", highlight=False, markup=False, soft_wrap=True)
