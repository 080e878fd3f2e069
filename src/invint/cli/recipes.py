"""`invint recipes`: list them, show one with the source of each number."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from invint.cli.console import say, show_table
from invint.cli.options import Assignments, chosen_recipe

if TYPE_CHECKING:
    from invint.recipes import Recipe

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
            _own(field.path, recipe) or _shown(field.path, field.of(recipe)),
            numbers.get(recipe.source.get(field.path, ""), ""),
        )
        for field in recipe_fields()
        if _applies(field.path, recipe)
    ]
    show_table(("choice", "value", "source"), rows, wrap=("value",))
    for source, number in numbers.items():
        say(f" {number}  {source}")


def _applies(path: str, recipe: "Recipe") -> bool:
    """Say whether the network and the head of a recipe have a choice, or it was made."""
    from invint.models.registry import options_of
    from invint.nn.heads import head_options
    from invint.train.setup import ATTENTION, NETWORK_OPTIONS

    part, _, name = path.partition(".")
    head = head_options(recipe.model.head or "max")
    if part == "head":
        return name in head
    if part != "model" or getattr(recipe.model, name) is not None:
        return True
    asked = {field: option in head for option, field in ATTENTION.items()}
    if name in NETWORK_OPTIONS:
        return name in options_of(recipe.model.name)
    return asked.get(name, True)


def _own(path: str, recipe: "Recipe") -> str:
    """Say what an option is that is left to the head; empty if it is not, or not one number."""
    from invint.nn.heads import head_options

    part, _, name = path.partition(".")
    if part != "head" or name in recipe.head.given:
        return ""
    default = head_options(recipe.model.head or "max")[name]
    return "head's own" if default is None else f"{_shown(path, default)} (head's own)"


def _shown(path: str, value: Any) -> str:
    if value is None:
        return "all" if path == "data.size" else "network's own"
    if isinstance(value, tuple):
        shown = [f"({_shown(path, each)})" if isinstance(each, tuple) else each for each in value]
        return ", ".join(_shown(path, each) for each in shown) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
