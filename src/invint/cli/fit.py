"""`invint fit`: your own images: a folder in, a classifier and advice out."""

from pathlib import Path
from typing import Annotated

import typer


def fit(
    folder: Annotated[
        Path, typer.Argument(help="A folder of pictures, or a CSV file that lists them.")
    ],
    minutes: Annotated[float, typer.Option(help="About how long everything may take.")] = 10.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for what is written; by default NAME-fit, here."),
    ] = None,
    side: Annotated[
        int | None,
        typer.Option(help="Side of the square images, even; by default chosen for the time."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unreadable pictures.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another number splits and trains otherwise.")] = 0,
    test_share: Annotated[
        float,
        typer.Option(help="Share held out to test on; not used if the folder has a test split."),
    ] = 0.2,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the advice only.")] = False,
) -> None:
    """Train ordinary and invariant networks on your images; keep the best and say what helps."""
    from invint.cli.terminal.fit import show_fit
    from invint.fit import Wish

    wish = Wish(
        folder=folder,
        minutes=minutes,
        side=side,
        skip_bad=skip_bad,
        seed=seed,
        test_share=test_share,
    )
    show_fit(wish, out, quiet=quiet)
