"""The recipes by name."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from invint.errors import ConfigError, did_you_mean
from invint.recipes import digits, rotmnist, wide
from invint.recipes.recipe import Recipe

RECIPES: dict[str, Callable[[], Recipe]] = {
    "digits/cnn": digits.cnn,
    "digits/pooling": digits.pooling,
    "digits/monomials": digits.monomials,
    "digits/global-ws": digits.global_ws,
    "digits/local-ws": digits.local_ws,
    "digits/mlp": digits.mlp,
    "digits/attention": digits.attention,
    "digits/sf-ii": digits.sf_ii,
    "digits/monomials-none": digits.monomials_none,
    "digits/monomials-lse": digits.monomials_lse,
    "digits/monomials-connectivity-init": digits.monomials_connectivity_init,
    "digits/monomials-connectivity-catalog": digits.monomials_connectivity_catalog,
    "digits/monomials-connectivity": digits.monomials_connectivity,
    "digits/monomials-magnitude-catalog": digits.monomials_magnitude_catalog,
    "rotmnist/cnn7": rotmnist.cnn7,
    "rotmnist/pooling": rotmnist.pooling,
    "rotmnist/monomials": rotmnist.monomials,
    "rotmnist/global-ws": rotmnist.global_ws,
    "rotmnist/local-ws": rotmnist.local_ws,
    "rotmnist/mlp": rotmnist.mlp,
    "rotmnist/attention": rotmnist.attention,
    "rotmnist/sf-ii": rotmnist.sf_ii,
    "rotmnist/monomials-none": rotmnist.monomials_none,
    "rotmnist/monomials-lse": rotmnist.monomials_lse,
    "rotmnist/monomials-connectivity-init": rotmnist.monomials_connectivity_init,
    "rotmnist/monomials-connectivity-catalog": rotmnist.monomials_connectivity_catalog,
    "rotmnist/monomials-connectivity": rotmnist.monomials_connectivity,
    "rotmnist/monomials-magnitude-catalog": rotmnist.monomials_magnitude_catalog,
    "svhn/wrn": wide.svhn_wrn,
    "svhn/wrn-rotate": wide.svhn_wrn_rotate,
    "svhn/pooling": wide.svhn_pooling,
    "svhn/monomials": wide.svhn_monomials,
    "svhn/global-ws": wide.svhn_global_ws,
    "svhn/local-ws": wide.svhn_local_ws,
    "cifar10/wrn": wide.cifar10_wrn,
    "cifar10/wrn-rotate": wide.cifar10_wrn_rotate,
    "cifar10/pooling": wide.cifar10_pooling,
    "cifar10/monomials": wide.cifar10_monomials,
    "cifar10/local-ws": wide.cifar10_local_ws,
    "stl10/wrn": wide.stl10_wrn,
    "stl10/wrn-rotate": wide.stl10_wrn_rotate,
    "stl10/pooling": wide.stl10_pooling,
    "stl10/monomials": wide.stl10_monomials,
    "stl10/local-ws": wide.stl10_local_ws,
}


def find_recipe(name: str) -> Recipe:
    """Return a recipe by its name, or from a TOML or JSON file."""
    if name in RECIPES:
        make = RECIPES[name]
        return replace(make(), about=(inspect.getdoc(make) or "").partition("\n")[0])
    if name.endswith((".toml", ".json")):
        from invint.recipes.files import read_recipe  # reads bases from this registry

        return read_recipe(Path(name))
    hint = did_you_mean(name, RECIPES)
    raise ConfigError(f"no recipe {name!r}; {hint}`invint recipes` lists all")
