"""The command line: parse, call one function, turn our errors into one line."""

import sys

import typer

from invint.cli.models import models
from invint.errors import InvintError

app = typer.Typer(
    help="Invariant integration for image classification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def invint() -> None:
    """Invariant integration for image classification."""


app.command(epilog="Examples:  invint models   |   invint models sf-wrn16-4 sfcnn --head local-ws")(
    models
)


def main() -> None:
    """Run the command line; exit with 2 on wrong use or input, with 130 when interrupted."""
    try:
        app()
    except InvintError as error:
        print(f"invint: {error}", file=sys.stderr)
        sys.exit(2)
