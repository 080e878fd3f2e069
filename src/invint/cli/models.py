"""`invint models`: the networks beside the paper's numbers."""

from typing import Annotated

import typer


def models(
    names: Annotated[list[str] | None, typer.Argument(help="Networks; all by default.")] = None,
    head: Annotated[str | None, typer.Option(help="Only this head; all by default.")] = None,
) -> None:
    """List networks: group, widths, basis, parameters beside the paper's, operations."""
    from invint.cli.terminal.models import show_models

    show_models(names or [], head)
