"""`invint recipes`: list them, show one with the source of each number."""

from typing import Annotated, Any

import typer

from invint.cli.console import say, show_table
from invint.recipes import RECIPES, Recipe, find_recipe
from invint.recipes.changes import changed

recipes_app = typer.Typer(
    help="List recipes, or show one with the source of each number.",
    invoke_without_command=True,
    epilog="Examples:\n  invint recipes\n  invint recipes show rotmnist/local-ws",
)


@recipes_app.callback()
def recipes(context: typer.Context) -> None:
    """List all recipes."""
    if context.invoked_subcommand is None:
        rows = [(name, find_recipe(name).about) for name in RECIPES]
        show_table(("recipe", "about"), rows, wrap=("about",))


@recipes_app.command(epilog="Example:\n  invint recipes show rotmnist/local-ws --set train.lr=1e-3")
def show(
    name: Annotated[str, typer.Argument(help="A recipe, or a TOML or JSON file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value: train.lr=3e-4.")
    ] = None,
) -> None:
    """Show every value of a recipe, and where it comes from."""
    recipe = changed(find_recipe(name), assignments or [])
    say(f"{recipe.name}  {recipe.about}  (hash {recipe.hash})", bold=recipe.name)
    sources = list(dict.fromkeys(recipe.source.values()))
    # Many choices share a source: it is a number in the table, and written out once below.
    show_table(("choice", "value", "source"), _rows(recipe, sources), wrap=("value",))
    for number, source in enumerate(sources, start=1):
        say(f" [{number}]  {source}")


def _rows(recipe: Recipe, sources: list[str]) -> list[tuple[str, str, str]]:
    parts: dict[str, Any] = recipe.choices
    rows = []
    for part, choices in parts.items():
        for key, value in choices.items():
            path = f"{part}.{key}"
            source = recipe.source.get(path)
            number = "" if source is None else f"[{sources.index(source) + 1}]"
            rows.append((path, _shown(path, value), number))
    return rows


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "all" if path == "data.size" else "network's own"
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
