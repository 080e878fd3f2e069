"""`invint recipes`: list them, show one with the source of each number."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from invint.recipes import RECIPES, Recipe, find_recipe
from invint.recipes.changes import changed

recipes_app = typer.Typer(
    help="List recipes, or show one with the source of each number.",
    invoke_without_command=True,
    epilog="Examples:  invint recipes   |   invint recipes show rotmnist/local-ws",
)


@recipes_app.callback()
def recipes(context: typer.Context) -> None:
    """List all recipes."""
    if context.invoked_subcommand is None:
        table = Table(box=None, header_style="bold")
        table.add_column("recipe", no_wrap=True)
        table.add_column("about")
        for name in RECIPES:
            table.add_row(name, find_recipe(name).about)
        Console().print(table)


@recipes_app.command(epilog="Example:  invint recipes show rotmnist/local-ws --set train.lr=1e-3")
def show(
    name: Annotated[str, typer.Argument(help="A recipe, or a TOML or JSON file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: train.lr=3e-4.")
    ] = None,
) -> None:
    """Show every value of a recipe, and where it comes from."""
    recipe = changed(find_recipe(name), assignments or [])
    console = Console()
    about = escape(recipe.about)
    console.print(f"[bold]{recipe.name}[/]  {about}  [dim](hash {recipe.hash})[/]", emoji=False)
    sources = list(dict.fromkeys(recipe.source.values()))
    console.print(_table(recipe, sources))
    for number, source in enumerate(sources, start=1):
        console.print(f" [{number}]  {source}", markup=False, highlight=False)


def _table(recipe: Recipe, sources: list[str]) -> Table:
    """List all values; a source that many share is a number here and written out below."""
    table = Table(box=None, header_style="bold")
    for title in ("choice", "value", "source"):
        table.add_column(title)
    parts: dict[str, Any] = recipe.choices
    for part, choices in parts.items():
        for key, value in choices.items():
            path = f"{part}.{key}"
            source = recipe.source.get(path)
            number = "" if source is None else escape(f"[{sources.index(source) + 1}]")
            table.add_row(path, escape(_shown(path, value)), number)
    return table


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "all" if path == "data.size" else "network's own"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
