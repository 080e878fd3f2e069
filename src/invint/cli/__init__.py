"""The command line: parse, call one function, turn our errors into one line.

What a command says about itself needs no torch; what it does is imported when it runs. That keeps
`--help` quick.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from invint.cli.console import say, tolerant_streams
from invint.cli.data import data_app
from invint.cli.fit import fit
from invint.cli.recipes import recipes_app
from invint.cli.serve import serve
from invint.cli.show import models, monomials, report
from invint.cli.study import study
from invint.cli.train import audit, evaluate, export, predict, train
from invint.cli.tune import tune
from invint.errors import Interrupted, InvintError
from invint.version import __version__

app = typer.Typer(
    help="Invariant integration for image classification.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> bool:
    if asked:
        say(f"invint {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def invint(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Invariant integration for image classification."""


EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    train: ("invint train", "invint train rotmnist/local-ws --size 500 --seed 1"),
    evaluate: ("invint evaluate RUN", "invint evaluate RUN --data mnist"),
    predict: (
        "invint predict RUN photo.png",
        "invint predict model.onnx photos/ --out answers.csv",
    ),
    audit: ("invint audit RUN", "invint audit model.onnx --data digits --out audit.svg"),
    export: ("invint export RUN", "invint export RUN --format torch --out digits.pt2"),
    fit: ("invint fit photos/", "invint fit photos/ --minutes 30 --out classifier"),
    study: ("invint study digits", "invint study table2 --sizes 500,1000 --scale 0.1"),
    tune: ("invint tune digits/local-ws --trials 20", "invint tune digits/cnn --compare random"),
    report: ("invint report runs/", "invint report results/digits.json --out digits.html"),
    monomials: ("invint monomials RUN", "invint monomials RUN RUN --out monomials.png"),
    serve: ("invint serve RUN", "invint serve RUN --compare RUN"),
    models: ("invint models", "invint models sf-wrn16-4 sfcnn --head local-ws"),
}
for command, examples in EXAMPLES.items():
    app.command(epilog="\n  ".join(("Examples:", *examples)))(command)
app.add_typer(recipes_app, name="recipes")
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command line; exit with 2 on wrong use or input, with 130 when interrupted."""
    tolerant_streams()
    try:
        app()
    except (Interrupted, KeyboardInterrupt) as stop:
        _fail(str(stop) or "interrupted", status=130)
    except InvintError as error:
        _fail(str(error), status=2)
    except OSError as error:  # a file that cannot be written, and such
        where, what = error.filename, error.strerror
        _fail(f"{where}: {what}" if where and what else str(error), status=2)


def _fail(message: str, *, status: int) -> None:
    say(f"invint: {message}", error=True)
    sys.exit(status)
