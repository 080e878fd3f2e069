"""`invint monomials`: what a run chose, and how much several runs agree."""

from pathlib import Path
from typing import Annotated

import typer


def monomials(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.", metavar="RUN...")],
    out: Annotated[
        Path | None, typer.Option(help="Draw them into this .png, .svg or .pdf file.")
    ] = None,
) -> None:
    """Show which monomials a run chose: distances, exponents, scores and ranks at each step."""
    from invint.cli.terminal.monomials import show_monomials

    show_monomials(runs, out)
