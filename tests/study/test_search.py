import numpy as np
import pytest

from invint import Cyclic
from invint.errors import ConfigError
from invint.nn import HEADS, make_head
from invint.nn.heads import head_options
from invint.recipes import RECIPES, find_recipe
from invint.recipes.recipe import HeadChoice, Recipe
from invint.recipes.schedule import TO_ZERO
from invint.study import search as spaces
from invint.study.search import (
    Choice,
    Range,
    configured,
    own_value,
    parameter_space,
    rounded,
    search_space,
)

DATA = ("digits", "rotmnist", "svhn", "cifar10", "stl10")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_space_whose_samples_are_recipes(name: str) -> None:
    recipe = find_recipe(name)
    space = search_space(recipe)
    drawn = parameter_space(space)
    drawn.seed(0)
    hashes = set()
    for _ in range(5):
        configuration = rounded(space, drawn.sample())
        found = configured(recipe, configuration)
        for path, value in configuration.items():
            assert own_value(found, path) == value
            assert type(value) in (int, float)
        hashes.add(found.hash)
    assert len(hashes) == 5


def holds(parameter: Range | Choice, value: float) -> bool:
    if isinstance(parameter, Choice):
        return value in parameter.values
    return parameter.low <= value <= parameter.high


def tuned_by_adam(data: str) -> list[Recipe]:
    found = [find_recipe(name) for name in RECIPES if name.startswith(f"{data}/")]
    paper = [recipe for recipe in found if recipe.train.decay not in TO_ZERO]
    return [recipe for recipe in paper if recipe.train.optimizer == "adam"]


@pytest.mark.parametrize("data", DATA)
def test_each_space_holds_all_values_of_the_data_set(
    data: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All columns of a table are in the space of each, before a recipe's own values widen it."""
    monkeypatch.setattr(spaces, "_with_own", lambda parameter, _recipe: parameter)
    checked = 0
    for recipe in tuned_by_adam(data):
        for parameter in search_space(recipe):
            for other in tuned_by_adam(data):
                value = own_value(other, parameter.path)
                steerable = other.model.head is not None or parameter.path != "train.reg"
                if value is not None and steerable:
                    assert holds(parameter, value), (recipe.name, other.name, parameter, value)
                    checked += 1
    assert checked > 50


@pytest.mark.parametrize("name", ["svhn/wrn", "cifar10/wrn", "stl10/wrn"])
def test_plain_networks_by_gradient_descent_have_rate_decay_and_dropout(name: str) -> None:
    space = {each.path: each for each in search_space(find_recipe(name))}
    assert list(space) == ["train.lr", "train.weight_decay", "model.dropout"]
    for recipe in map(find_recipe, ("svhn/wrn", "cifar10/wrn", "stl10/wrn")):
        for path, parameter in space.items():
            value = own_value(recipe, path)
            assert value is None or holds(parameter, value)


def test_the_appendix_rows_are_tuned() -> None:
    paths = {each.path for each in search_space(find_recipe("rotmnist/attention"))}
    train = {"lr", "lr_decay", "lr_decay_epochs", "batch_size", "reg"}
    model = {"dropout", "n_fc", "attention_heads", "attention_dropout"}
    assert paths == {f"train.{key}" for key in train} | {f"model.{key}" for key in model}


def test_a_plain_network_has_no_penalty_on_steerable_filters() -> None:
    paths = {each.path for each in search_space(find_recipe("rotmnist/cnn7"))}
    assert not paths & {"train.reg", "model.n_fc"}


def test_a_network_without_hidden_layer_keeps_to_that() -> None:
    paths = {each.path for each in search_space(find_recipe("cifar10/pooling"))}
    assert "model.n_fc" not in paths
    assert "train.reg" in paths


def test_a_recipes_own_values_widen_its_space() -> None:
    recipe = find_recipe("digits/local-ws")
    odd = recipe.replace(train={"lr": 0.2, "batch_size": 48})
    space = {each.path: each for each in search_space(odd)}
    assert space["train.lr"] == Range("train.lr", 3e-5, 0.2, log=True)
    assert space["train.batch_size"] == Choice("train.batch_size", (32, 48, 64, 128))


def test_no_penalty_at_all_leaves_a_logarithmic_range_alone() -> None:
    assert Range("train.reg", 1e-5, 1.0, log=True).including(0.0).low == 1e-5


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Range("train.lr", 1e-5, 1, log=True), np.float64(0.00123456), 0.0012),
        (Range("model.dropout", 0, 0.8), np.float64(0.123456), 0.12),
        (Range("model.n_fc", 8, 128, log=True, whole=True), np.int64(77), 77),
        (Choice("train.batch_size", (32, 64)), np.int64(64), 64),
    ],
)
def test_values_are_rounded_to_what_one_would_write(
    parameter: Range | Choice, value: float, expected: float
) -> None:
    found = parameter.rounded(value)
    assert found == expected
    assert type(found) is type(expected)


def test_milestones_by_adam_are_refused_with_what_to_do() -> None:
    recipe = find_recipe("digits/local-ws")
    odd = recipe.replace(train={"decay": "milestones"})
    with pytest.raises(ConfigError, match=r"milestones; choose --set train.decay=exponential"):
        search_space(odd)


def test_gradient_descent_of_a_steerable_network_tunes_its_head_too() -> None:
    recipe = find_recipe("digits/local-ws").replace(train={"optimizer": "sgd"})
    paths = [each.path for each in search_space(recipe)]
    assert paths == ["train.lr", "train.weight_decay", "model.dropout", "head.kernel_size"]
    unknown = recipe.replace(model={"name": "sfcn"})  # refused where it is built
    assert [each.path for each in search_space(unknown)] == paths[:3]


def test_an_unknown_network_is_named() -> None:
    recipe = find_recipe("digits/local-ws")
    odd = recipe.replace(model={"name": "sfcn"})
    with pytest.raises(ConfigError, match="no network 'sfcn'"):
        search_space(odd)


def test_a_rate_that_ends_at_zero_has_no_decay_to_tune() -> None:
    recipe = find_recipe("rotmnist/settled-pooling")
    paths = [each.path for each in search_space(recipe)]
    settled = {"train.warmup", "train.label_smoothing", "train.clip_norm", "train.ema"}
    assert {"train.lr", *settled} <= set(paths)
    assert not {"train.lr_decay", "train.lr_decay_epochs"} & set(paths)
    running = recipe.replace(train={"statistics": 0})  # which an average of weights does not have
    assert settled - {each.path for each in search_space(running)} == {"train.ema"}


@pytest.mark.parametrize("side", [3, 4, 5, 7, 24])
@pytest.mark.parametrize("head", HEADS)
def test_options_of_heads_are_tuned_as_far_as_they_fit_the_map(head: str, side: int) -> None:
    base = find_recipe("digits/pooling")
    space = search_space(base.replace(model={"head": head}), side)
    paths = {each.path.partition(".")[2]: each for each in space if each.path.startswith("head.")}
    assert paths.keys() <= set(head_options(head))
    for name, parameter in paths.items():
        for value in parameter.values if isinstance(parameter, Choice) else ():
            options = {name: value}
            made = make_head(head, channels=3, size=side, group=Cyclic(4), **options)
            assert made.out_features
    assert head not in ("mlp", "monomials") or paths


def test_distances_are_tuned_up_to_the_border_of_the_map() -> None:
    recipe = find_recipe("digits/monomials")
    for side, largest in ((5, 4), (7, 6), (24, 12)):
        space = {each.path: each for each in search_space(recipe, side)}
        assert space["head.max_distance"].values[-1] == largest  # type: ignore[union-attr]
    catalog = recipe.replace(selection={"initial": "catalog"})
    space = {each.path: each for each in search_space(catalog, 24)}
    values = space["head.max_distance"].values  # type: ignore[union-attr]
    assert values == (1, 2, 3, 4)  # of 20 monomials, which hold no 21 combinations


def test_of_a_range_the_highest_number_is_tuned() -> None:
    choice = HeadChoice().replace(exponents=2.0)
    assert choice.exponents == (0.0, 2.0)
    recipe = find_recipe("digits/monomials")
    assert own_value(recipe.replace(head=choice), "head.exponents") == 2.0
