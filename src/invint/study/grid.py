"""Studies: the paper's tables as grids of recipes, sizes and seeds."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from invint.errors import ConfigError
from invint.recipes import Recipe, find_recipe
from invint.recipes.changes import with_choices

SELECTIONS = (
    "monomials-none",
    "monomials-lse",
    "monomials-connectivity-init",
    "monomials-connectivity-catalog",
    "monomials-connectivity",
    "monomials-magnitude-catalog",
    "monomials",
)
HEADS = ("pooling", "monomials", "global-ws", "local-ws", "mlp", "attention", "sf-ii")


@dataclass(frozen=True)
class Study:
    """A grid of runs.

    Attributes:
        about: One line.
        recipes: Names of the recipes.
        sizes: Numbers of training images; none means all.
        seeds: How many seeds the paper has.
    """

    about: str
    recipes: tuple[str, ...]
    sizes: tuple[int | None, ...]
    seeds: int


def _of(data: str, *variants: str) -> tuple[str, ...]:
    return tuple(f"{data}/{variant}" for variant in variants)


STUDIES: dict[str, Study] = {
    "digits": Study(
        "all heads on turned digits, for two CPU cores",
        _of("digits", "cnn", *HEADS),
        (50, 100, 200, 500, None),
        3,
    ),
    "digits-selection": Study(
        "the ways to select monomials, on turned digits",
        _of("digits", "pooling", *SELECTIONS),
        (100, None),
        5,
    ),
    "table1": Study(
        "the ways to select monomials, on Rotated-MNIST",
        _of("rotmnist", "pooling", *SELECTIONS),
        (None,),
        5,
    ),
    "table2": Study(
        "all heads on Rotated-MNIST",
        _of("rotmnist", "cnn7", *HEADS),
        (500, 1000, 2000, 4000, 6000, None),
        5,
    ),
    "table3": Study(
        "wide residual networks on SVHN",
        _of("svhn", "wrn", "pooling", "monomials", "global-ws", "local-ws"),
        (1000, 5000, 10000, 50000, None),
        3,
    ),
    "table4": Study(
        "wide residual networks on CIFAR-10",
        _of("cifar10", "wrn", "pooling", "monomials", "local-ws"),
        (100, 1000, 10000, None),
        3,
    ),
    "table5": Study(
        "wide residual networks on STL-10",
        _of("stl10", "wrn", "pooling", "monomials", "local-ws"),
        (None,),
        3,
    ),
}


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        recipe: Every choice.
        seed: The seed.
    """

    recipe: Recipe
    seed: int


def find_study(name: str) -> Study:
    """Return a study by its name."""
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"no study {name!r}; {hint}there are {', '.join(STUDIES)}")
    return STUDIES[name]


def plan(
    study: Study,
    *,
    seeds: Sequence[int] | None = None,
    sizes: Sequence[int | None] | None = None,
    only: Sequence[str] = (),
    data: str | None = None,
    scale: float | None = None,
) -> list[Cell]:
    """Return the runs of a study, or of a part of it, seed by seed.

    All recipes of a seed come before the next seed, so that a study cut short still compares.

    Args:
        study: The whole grid.
        seeds: Which seeds; 0 to one less than the study's number by default.
        sizes: Which numbers of training images; the study's by default.
        only: Which recipes, by their full names or what stands after the slash.
        data: Another data set in the place of the recipes' own.
        scale: Share of the iterations to run.
    """
    recipes = [_adapted(find_recipe(name), data, scale) for name in _chosen(study, only)]
    return [
        Cell(replace(recipe, data=replace(recipe.data, size=size)), seed)
        for seed in (range(study.seeds) if seeds is None else seeds)
        for size in (study.sizes if sizes is None else sizes)
        for recipe in recipes
    ]


def _chosen(study: Study, only: Sequence[str]) -> list[str]:
    known = {name.partition("/")[2]: name for name in study.recipes}
    known |= {name: name for name in study.recipes}
    for name in only:
        if name not in known:
            variants = ", ".join(each.partition("/")[2] for each in study.recipes)
            raise ConfigError(f"--only {name}: the study has {variants}")
    return [name for name in study.recipes if not only or name in {known[each] for each in only}]


def _adapted(recipe: Recipe, data: str | None, scale: float | None) -> Recipe:
    if data is not None:
        recipe = with_choices(recipe, {"data": {"name": data}}, "--data")
    if scale is not None:
        recipe = with_choices(recipe, {"train": {"scale": scale}}, "--scale")
    return recipe
