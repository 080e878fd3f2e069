"""`invint recipes`: list them, show one with the source of each number."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from invint.recipes import Recipe

recipes_app = typer.Typer(
    help="List recipes, or show one with the source of each number.",
    invoke_without_command=True,
    epilog="Examples:  invint recipes   |   invint recipes show rotmnist/local-ws",
)


@recipes_app.callback()
def recipes(context: typer.Context) -> None:
    """List all recipes."""
    if context.invoked_subcommand is None:
        from invint.recipes import RECIPES

        table = Table(box=None, header_style="bold")
        table.add_column("recipe", no_wrap=True)
        table.add_column("about")
        for name, recipe in RECIPES.items():
            table.add_row(name, recipe.about)
        Console().print(table)


@recipes_app.command(epilog="Example:  invint recipes show rotmnist/local-ws --set train.lr=1e-3")
def show(
    name: Annotated[str, typer.Argument(help="A recipe, or a TOML or JSON file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: train.lr=3e-4.")
    ] = None,
) -> None:
    """Show every value of a recipe, and where it comes from."""
    from invint.recipes import changed, find_recipe

    recipe = changed(find_recipe(name), assignments or [])
    console = Console()
    about = escape(recipe.about)
    console.print(f"[bold]{recipe.name}[/]  {about}  [dim](hash {recipe.hash})[/]", emoji=False)
    sources = list(dict.fromkeys(recipe.source.values()))
    console.print(_table(recipe, sources))
    for number, source in enumerate(sources, start=1):
        console.print(f" [{number}]  {source}", markup=False, highlight=False)


def _table(recipe: "Recipe", sources: list[str]) -> Table:
    """List all values; a source that many share is a number here and written out below."""
    from invint.recipes import recipe_fields

    table = Table(box=None, header_style="bold")
    for title in ("choice", "value", "source"):
        table.add_column(title)
    for field in recipe_fields():
        source = recipe.source.get(field.path)
        number = "" if source is None else escape(f"[{sources.index(source) + 1}]")
        table.add_row(field.path, escape(_shown(field.path, field.of(recipe))), number)
    return table


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "all" if path == "data.size" else "network's own"
    if isinstance(value, tuple):
        shown = [f"({_shown(path, each)})" if isinstance(each, tuple) else each for each in value]
        return ", ".join(_shown(path, each) for each in shown) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
