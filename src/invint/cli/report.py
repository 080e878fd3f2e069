"""`invint report`: one page about finished runs."""

from pathlib import Path
from typing import Annotated

import typer


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
    from invint.cli.terminal.report import show_report

    show_report(runs, out, title=title, data_dir=data_dir, records=records)
