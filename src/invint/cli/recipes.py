"""`invint recipes`: list them, show one with the source of each number."""

from typing import Annotated, Any

import typer

from invint.cli.console import say, show_table
from invint.cli.options import Assignments, chosen_recipe

recipes_app = typer.Typer(
    help="List recipes, or show one with the source of each number.",
    invoke_without_command=True,
    epilog="Examples:\n  invint recipes\n  invint recipes show rotmnist/local-ws",
)


@recipes_app.callback()
def recipes(context: typer.Context) -> None:
    """List all recipes."""
    if context.invoked_subcommand is None:
        from invint.recipes import RECIPES

        rows = [(name, recipe.about) for name, recipe in RECIPES.items()]
        show_table(("recipe", "about"), rows, wrap=("about",))


@recipes_app.command(epilog="Example:\n  invint recipes show rotmnist/local-ws --set train.lr=1e-3")
def show(
    name: Annotated[str, typer.Argument(help="A recipe, or a TOML or JSON file.")],
    assignments: Assignments = None,
) -> None:
    """Show every value of a recipe, and where it comes from."""
    from invint.recipes import recipe_fields

    recipe = chosen_recipe(name, assignments=assignments)
    say(f"{recipe.name}  {recipe.about}  (hash {recipe.hash})", bold=recipe.name)
    sources = list(dict.fromkeys(recipe.source.values()))
    # Many choices share a source: it is a number in the table, and written out once below.
    numbers = {source: f"[{number}]" for number, source in enumerate(sources, start=1)}
    rows = [
        (
            field.path,
            _shown(field.path, field.of(recipe)),
            numbers.get(recipe.source.get(field.path, ""), ""),
        )
        for field in recipe_fields()
    ]
    show_table(("choice", "value", "source"), rows, wrap=("value",))
    for source, number in numbers.items():
        say(f" {number}  {source}")


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "all" if path == "data.size" else "network's own"
    if isinstance(value, tuple):
        shown = [f"({_shown(path, each)})" if isinstance(each, tuple) else each for each in value]
        return ", ".join(_shown(path, each) for each in shown) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
