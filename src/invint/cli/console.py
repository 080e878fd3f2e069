"""The one place that prints: text goes out as it is, whatever brackets a path may have in it."""

from rich.console import Console, RenderableType


def say(text: str = "", *, error: bool = False) -> None:
    """Print a line on stdout, or on stderr what a script does not want to read."""
    Console(stderr=error).print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)


def show(renderable: RenderableType, *, error: bool = False) -> None:
    """Print a table or the like on stdout, or on stderr."""
    Console(stderr=error).print(renderable)
