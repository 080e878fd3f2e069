"""Every argument of a head, a network and a selection is a choice of a recipe."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from invint import ConfigError
from invint.models import MODELS
from invint.models.registry import options_of
from invint.nn import HEADS
from invint.nn.heads import COMMON, check_options, head_options
from invint.recipes import Recipe, changed, find_recipe, recipe_fields
from invint.selection import connectivity, exchange, initial_monomials

PATHS = {field.path for field in recipe_fields()}
# Arguments under another name, and those that are no choice.
HEAD_EXCEPTIONS = {
    "monomials": "selection.start, and what is selected from them",
    "heads": "model.attention_heads",
    "dropout": "model.attention_dropout",
    "check_exponents": "a check, for monomials that were trained",
    "rings": "a basis of filters of one's own, for Python",
}
NETWORK_EXCEPTIONS = {
    "num_classes": "of the data",
    "in_channels": "of the data",
    "image_size": "of the data",
    "head_options": "the part head",
    "rings": "a basis of filters of one's own, for Python",
    "depth": "in the name",
    "width": "in the name",
    "stem": "in the name",
    "channels": "in the name",
}
SELECTION_EXCEPTIONS = {
    "kind": "selection.initial",
    "count": "selection.start",
    "max_distance": "head.max_distance",
    "factors": "head.factors",
    "options": "of Monomials.random: the part head, the group, the seed",
    "network": "trained so far",
    "batches": "of the data",
    "loss": "of the run",
    "features_of": "of the network",
    "labels": "of the data",
    "draw": "of the seed",
}


def missing(function: Any, part: str, exceptions: dict[str, str]) -> set[str]:
    """Return the arguments that are neither choices nor exceptions."""
    names = set(inspect.signature(function).parameters) - exceptions.keys()
    return {name for name in names if f"{part}.{name}" not in PATHS}


@pytest.mark.parametrize("name", HEADS)
def test_every_option_of_every_head_is_a_choice(name: str) -> None:
    assert not missing(HEADS[name], "head", HEAD_EXCEPTIONS | dict.fromkeys(COMMON, ""))


@pytest.mark.parametrize("name", MODELS)
def test_every_option_of_every_network_is_a_choice(name: str) -> None:
    assert not missing(MODELS[name].build, "model", NETWORK_EXCEPTIONS)
    assert set(options_of(name)) == set(inspect.signature(MODELS[name].build).parameters)


@pytest.mark.parametrize("function", [initial_monomials, connectivity, exchange])
def test_every_argument_of_a_selection_is_a_choice(function: Any) -> None:
    exceptions = SELECTION_EXCEPTIONS
    assert not missing(function, "selection", exceptions)


@pytest.mark.parametrize("name", HEADS)
def test_a_recipe_takes_the_options_its_head_has_and_no_others(name: str) -> None:
    known = head_options(name)
    for field in recipe_fields():
        part, _, option = field.path.partition(".")
        if part == "head" and option not in known:
            value = [0, 1] if option == "exponents" else 2 if "number" in field.kind else True
            with pytest.raises(ConfigError) as caught:
                with_head(name).replace(head={option: value})
            listed = ", ".join(known) or "none"
            assert str(caught.value) == f"head {name!r} has no option {option!r}; it has {listed}"


def with_head(name: str) -> Recipe:
    return find_recipe("digits/pooling").replace(model={"head": name})


def test_options_that_fit_are_taken_and_other_heads_then_refused() -> None:
    recipe = changed(with_head("mlp"), ["head.kernel_size=5", "head.layers=3"])
    assert recipe.head.given == {"kernel_size": 5, "layers": 3}
    with pytest.raises(ConfigError, match="head 'local-ws' has no option 'layers'; it has kernel"):
        changed(recipe, ["model.head=local-ws"])
    assert changed(recipe, ["model.head=local-ws", "head.layers=none"]).head.given == {
        "kernel_size": 5
    }
    with pytest.raises(ConfigError, match="head 'max' has no option 'layers'; it has none"):
        changed(find_recipe("digits/cnn"), ["head.layers=3"])
    with pytest.raises(ConfigError, match="no head 'mlq'; did you mean 'mlp'"):
        check_options("mlq", [])


def test_a_file_has_a_table_for_the_head(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "digits/mlp"\n[head]\nkernel_size = 5\nlayers = 3\n')
    assert find_recipe(str(path)).head.given == {"kernel_size": 5, "layers": 3}
    path.write_text('base = "digits/mlp"\n[head]\nfloor = 0.2\n')
    with pytest.raises(ConfigError, match=r"mine.toml: head 'mlp' has no option 'floor'; it has k"):
        find_recipe(str(path))
