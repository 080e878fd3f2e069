"""The options of commands that read the user's own pictures."""

from typing import Annotated, Any

import typer

SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out unreadable pictures of folder:PATH.")
]
Side = Annotated[
    int | None, typer.Option(help="Side in pixels of those of folder:PATH; chosen by default.")
]
TestShare = Annotated[
    float | None, typer.Option(help="Share of your own images to test on, if they do not say.")
]


def own_choices(
    data: str | None, *, skip_bad: bool, side: int | None, test_share: float | None
) -> dict[str, Any]:
    """Return the choices of data that were made with options."""
    given = {"name": data, "skip_bad": skip_bad or None, "side": side, "test_share": test_share}
    return {name: value for name, value in given.items() if value is not None}
