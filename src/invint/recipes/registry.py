"""The recipes by name, and a user's own in TOML and JSON files."""

import json
import tomllib
from pathlib import Path
from typing import Any

from invint.errors import ConfigError, did_you_mean
from invint.files import write_atomically
from invint.recipes.digits import digits_recipes
from invint.recipes.paper import paper_recipes
from invint.recipes.recipe import PARTS, Recipe, with_choices
from invint.recipes.settled import settled_recipes, settled_with_head

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (*digits_recipes(), *paper_recipes(), *settled_recipes())
}
TOP = ("base", "name", "about", *PARTS)


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name, or from a TOML or JSON file."""
    if name in RECIPES:
        return RECIPES[name]
    if name.endswith((".toml", ".json")):
        return read_recipe(Path(name))
    if (settled := settled_with_head(name)) is not None:
        return settled
    hint = did_you_mean(name, RECIPES)
    raise ConfigError(f"no recipe {name!r}; {hint}`invint recipes` lists all")


def read_recipe(path: Path) -> Recipe:
    """Read a recipe: a `base`, and tables `data`, `model`, `head`, … of what differs."""
    values = _read_values(path)
    if not isinstance(values, dict) or not isinstance(values.get("base"), str):
        raise ConfigError(f'{path}: a recipe names its base, as in base = "digits/local-ws"')
    for key in values:
        if key not in TOP:
            raise ConfigError(f"{path}: no value {key!r}; a recipe has {', '.join(TOP)}")
    parts = {part: values[part] for part in PARTS if part in values}
    recipe = with_choices(find_recipe(values["base"]), parts, str(path))
    name = values.get("name", f"own/{path.stem}")
    about = values.get("about", f"{values['base']}, changed by {path.name}")
    return recipe.replace(name=_checked(name, path), about=str(about))


def write_recipe(recipe: Recipe, path: Path, *, base: str) -> None:
    """Write a recipe as the JSON file that `read_recipe` reads."""
    values = {"base": base, "name": recipe.name, "about": recipe.about, **recipe.choices}
    write_atomically(path, json.dumps(values, indent=2) + "\n")


def _read_values(path: Path) -> Any:
    try:
        text = path.read_text()
        return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error


def _checked(name: Any, path: Path) -> str:
    """Return a name that stays inside the folder of runs."""
    allowed = isinstance(name, str) and all(part.strip(".") for part in name.split("/"))
    if not allowed or not all(c.isalnum() or c in "-_./" for c in name):
        raise ConfigError(
            f"{path}: a name is like 'mine/first': letters, digits, - and _, got {name!r}"
        )
    return str(name)
