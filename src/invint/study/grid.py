"""Studies: the paper's tables as grids of recipes, sizes and seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from invint.errors import ConfigError, did_you_mean
from invint.recipes import Recipe, find_recipe
from invint.recipes.recipe import DataChoice, with_choices
from invint.recipes.settled import NETWORKS, settled_with_head

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
PLAIN = ("wrn", "wrn-rotate")
SETTLED = tuple(f"settled-{each}" for each in NETWORKS)


@dataclass(frozen=True)
class Study:
    """A grid of runs.

    Attributes:
        about: One line.
        recipes: Names of the recipes.
        sizes: Numbers of training images; `None` means all.
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
    "settled-digits": Study(
        "all heads on turned digits, trained until they settle, with one recipe",
        _of("digits", "settled-cnn-small", *SETTLED),
        (100, None),
        10,
    ),
    "settled-rotmnist": Study(
        "all heads on Rotated-MNIST, trained until they settle, with one recipe",
        _of("rotmnist", "settled-cnn7", *SETTLED),
        (500, 1000, 2000, 4000, 6000, None),
        5,
    ),
    "settled-svhn": Study(
        "all heads on SVHN, trained until they settle, with one recipe",
        _of("svhn", "settled-wrn", "settled-wrn-rotate", *SETTLED),
        (1000, 5000),
        3,
    ),
    "settled-cifar10": Study(
        "all heads on CIFAR-10, trained until they settle, with one recipe",
        _of("cifar10", "settled-wrn", "settled-wrn-rotate", *SETTLED),
        (1000, 5000),
        3,
    ),
    "table3": Study(
        "wide residual networks on SVHN",
        _of("svhn", *PLAIN, "pooling", "monomials", "global-ws", "local-ws"),
        (1000, 5000, 10000, 50000, None),
        3,
    ),
    "table4": Study(
        "wide residual networks on CIFAR-10",
        _of("cifar10", *PLAIN, "pooling", "monomials", "local-ws"),
        (100, 1000, 10000, None),
        3,
    ),
    "table5": Study(
        "wide residual networks on STL-10",
        _of("stl10", *PLAIN, "pooling", "monomials", "local-ws"),
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
        images: Number of images of the full training set, which decides how long the run is.
    """

    recipe: Recipe
    seed: int
    images: int

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.recipe.schedule(self.images).steps

    @property
    def size(self) -> int:
        """Number of training images asked for."""
        return self.images if self.recipe.data.size is None else self.recipe.data.size

    @property
    def label(self) -> str:
        """The run in words."""
        return f"{self.recipe.name}, {self.size:,} images, seed {self.seed}"


def find_study(name: str) -> Study:
    """Return a study by its name."""
    if name not in STUDIES:
        hint = did_you_mean(name, STUDIES)
        raise ConfigError(f"no study {name!r}; {hint}there are {', '.join(STUDIES)}")
    return STUDIES[name]


def plan(
    study: Study,
    count: Callable[[DataChoice], int],
    *,
    seeds: Sequence[int] | None = None,
    sizes: Sequence[int | None] | None = None,
    only: Sequence[str] = (),
    data: Mapping[str, Any] | None = None,
    scale: float | None = None,
) -> list[Cell]:
    """Return the runs of a study, or of a part of it, seed by seed.

    All recipes of a seed come before the next seed, so that a study cut short still compares. A
    size that is the whole set is the same run as one without a size.

    Args:
        study: The whole grid.
        count: Returns the number of training images of a data set.
        seeds: Which seeds; 0 to one less than the study's number by default.
        sizes: Which numbers of training images; the study's by default.
        only: Which recipes, by their full names or what stands after the slash.
        data: Other choices of data, `name` above all, instead of the recipes' own.
        scale: Fraction of the iterations to run.

    Raises:
        ConfigError: Something asked for is not in the study or not in the data.
    """
    if seeds is not None and (not seeds or min(seeds) < 0):
        raise ConfigError(f"--seed: expected seeds of 0 or more, got {list(seeds) or 'none'}")
    if scale is not None and not 0 < scale <= 1:
        raise ConfigError(f"--scale {scale:g}: expected a fraction of the iterations in (0, 1]")
    recipes = [find_recipe(name) for name in chosen_recipes(study, only)]
    if data:
        recipes = [with_choices(recipe, {"data": data}, "--data") for recipe in recipes]
    if scale is not None:
        recipes = [
            with_choices(recipe, {"train": {"scale": scale}}, "--scale") for recipe in recipes
        ]
    counts = {recipe.data: count(recipe.data) for recipe in recipes}
    if sizes is None:  # without those that another, smaller data set does not have
        sizes = [size for size in study.sizes if size is None or size <= min(counts.values())]
    cells = [
        Cell(_sized(recipe, size, counts[recipe.data]), seed, counts[recipe.data])
        for seed in (range(study.seeds) if seeds is None else seeds)
        for size in sizes
        for recipe in recipes
    ]
    # What is asked for twice is one run.
    return list({(cell.recipe.name, cell.recipe.hash, cell.seed): cell for cell in cells}.values())


def chosen_recipes(study: Study, only: Sequence[str] = ()) -> list[str]:
    """Return the names of the recipes of a study, or of those asked for, in its order.

    A study of settled training also has, after these, every other head that is asked for.
    """
    known = {name.partition("/")[2]: name for name in study.recipes}
    known = {name.removeprefix("settled-"): full for name, full in known.items()} | known
    known |= {name: name for name in study.recipes}
    for name in only:
        if name not in known and (head := _other_head(study, name)):
            known[name] = head
        if name not in known:
            variants = ", ".join(each.partition("/")[2] for each in study.recipes)
            hint = did_you_mean(name, known)
            raise ConfigError(f"--only {name}: no such recipe; {hint}the study has {variants}")
    asked = {known[each] for each in only}
    everything = dict.fromkeys((*study.recipes, *known.values()))
    return [name for name in everything if name in asked] if only else list(study.recipes)


def _other_head(study: Study, name: str) -> str | None:
    """Return the settled recipe of a head that is not among those of a study of such recipes."""
    data, _, first = study.recipes[0].partition("/")
    full = f"{data}/settled-{name.rpartition('settled-')[2]}"
    return full if first.startswith("settled-") and settled_with_head(full) else None


def _sized(recipe: Recipe, size: int | None, images: int) -> Recipe:
    if size is not None and not 1 <= size <= images:
        raise ConfigError(
            f"--sizes {size}: {recipe.data.name} has {images:,} training images; ask for 1 to "
            f"{images:,}, or all"
        )
    return recipe.replace(data={"size": None if size == images else size})
