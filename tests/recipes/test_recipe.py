"""What a recipe says about its own choices, and how it stays the recipe it was."""

import copy
import pickle
from typing import Annotated, Any

import pytest
from pydantic import Field

from invint.errors import ConfigError
from invint.recipes import RECIPES, Recipe, changed, find_recipe, recipe_fields
from invint.recipes import recipe as recipes
from invint.recipes.recipe import DataChoice, HeadChoice, ModelChoice, Since, TrainChoice

TRAIN = TrainChoice(epochs=1, batch_size=2, lr=0.1)


def test_every_choice_says_what_it_is_for() -> None:
    fields = recipe_fields()
    parts = ("data", "model", "head", "train", "selection")
    expected = [
        f"{part}.{name}" for part in parts for name, _ in getattr(RECIPES["digits/cnn"], part)
    ]
    assert [field.path for field in fields] == expected
    for field in fields:
        assert field.about.endswith("."), field.path
        assert "\n" not in field.about
        assert field.kind


def test_ranges_are_given_in_words_and_numbers() -> None:
    fields = {field.path: field for field in recipe_fields()}
    lr, epochs, optimizer = (fields[f"train.{name}"] for name in ("lr", "epochs", "optimizer"))
    assert (lr.kind, lr.range, lr.low, lr.high) == ("a number", "from 0 to 1e+30", 0, 1e30)
    assert (epochs.kind, epochs.default) == ("a whole number", None)
    assert (optimizer.kind, optimizer.default) == ("one of adam, sgd, adamw", "adam")
    assert optimizer.range == ""
    assert fields["data.test_share"].range == "above 0 and below 1"
    assert fields["selection.steps"].kind == "a list like [[10, 5]]"
    new = [path for path, field in fields.items() if field.since]
    assert {path for path in fields if path.startswith("head.")} <= set(new)
    assert [path for path in new if not path.startswith("head.")] == [
        "data.split_seed",
        "data.drop_leaks",
        "data.min_per_class",
        "data.skip_class",
        "model.norm_features",
        "model.depths",
        "model.group_pool",
        "model.kernel_size",
        "model.kernel_sizes",
        "model.pool_after",
        "model.pretrained",
        "train.warmup",
        "train.label_smoothing",
        "train.clip_norm",
        "train.ema",
        "train.statistics",
        "train.keep_statistics",
        "train.one_copy",
        "selection.signed",
        "selection.statistics",
    ]


def test_a_field_finds_its_value_in_a_recipe() -> None:
    recipe = changed(find_recipe("digits/cnn"), ["data.split_seed=3"])
    fields = {field.path: field for field in recipe_fields()}
    assert fields["data.split_seed"].of(recipe) == 3
    assert fields["model.name"].of(recipe) == "cnn-small"


def test_a_part_without_choices_counts_for_nothing() -> None:
    base = find_recipe("digits/local-ws")
    assert "head" not in base.choices
    other = changed(base, ["head.kernel_size=5"])
    assert other.choices == base.choices | {"head": {"kernel_size": 5}}
    assert other.hash != base.hash == changed(other, ["head.kernel_size=none"]).hash


def test_a_later_field_counts_only_where_it_is_not_as_it_was_before_it() -> None:
    base = find_recipe("digits/cnn")
    assert "split_seed" not in base.choices["data"]
    assert changed(base, ["data.split_seed=0"]).hash == base.hash
    other = changed(base, ["data.split_seed=1"])
    assert other.choices["data"] == base.choices["data"] | {"split_seed": 1}
    assert other.hash != base.hash
    assert DataChoice.of(other.choices).split_seed == 1
    assert DataChoice.of(base.choices).split_seed == 0


def test_a_field_added_later_leaves_every_hash_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a field of a version to come, and the same field as if it had always been there."""

    class Later(ModelChoice):
        depth: Annotated[int, Since("9.0")] = Field(default=1, description="Depth.")

    class Always(ModelChoice):
        depth: int = Field(default=1, description="Depth.")

    for kind, same in ((Later, True), (Always, False)):
        monkeypatch.setitem(recipes.PARTS, "model", kind)
        for recipe in RECIPES.values():
            with_depth = recipe.replace(model=kind(**dict(recipe.model)))
            assert (with_depth.hash == recipe_hash(recipe)) == same


def recipe_hash(recipe: Recipe) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(recipes.PARTS, "model", ModelChoice)
        return recipe.hash


def test_a_copy_with_other_values_is_checked() -> None:
    base = find_recipe("digits/monomials")
    other = base.replace(train={"lr": 1}, data={"size": 100}, name="own/other")
    assert (other.train.lr, other.data.size, other.name) == (1.0, 100, "own/other")
    assert other.train.epochs == base.train.epochs
    assert base.train.lr == 0.01
    assert base.data.replace(size=3) == DataChoice(name="digits", augment=("rotate",), size=3)
    with pytest.raises(ConfigError, match="a step at epoch 4 does not fit a run of 3 epochs"):
        base.replace(train={"epochs": 3})


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (TrainChoice, {"epochs": 1, "lr": 1.0}, "train.batch_size is missing; expected a whole"),
        (Recipe, {"name": "x"}, "train is missing; expected a TrainChoice"),
        (Recipe, {"name": 3, "train": TRAIN}, "name must be text, got 3"),
        (Recipe, {"name": "x", "train": 3}, "train must be a TrainChoice, got 3"),
        (Recipe, {"name": "x", "train": {"lr": 1}}, "train.epochs is missing; expected a whole"),
        (Recipe, {"name": "x", "train": TRAIN, "dat": 1}, "no value 'dat'; did you mean 'data'? a"),
        (DataChoice, {"name": None}, "data.name must be text, got None"),
        (DataChoice, {"size": True}, "data.size must be a whole number, got True"),
        (ModelChoice, {"dropout": float("inf")}, "model.dropout must be from 0 to 1, got inf"),
        (HeadChoice, {"power": 1.0}, "head.power must be above 1 and at most 10,000, got 1.0"),
        (HeadChoice, {"heads": 2}, "no value 'head.heads'; head has factors, max_distance, own_"),
        (HeadChoice, {"exponents": (2, 1)}, "head.exponents must be a range of numbers that are"),
        (HeadChoice, {"exponents": -1.0}, "head.exponents must be a range of numbers that are"),
        (HeadChoice, {"exponents": "wide"}, "head.exponents must be a list like [10, 10], got"),
    ],
)
def test_wrong_values_are_explained_in_one_line(
    kind: type[Any], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**values)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_recipes_cannot_be_changed_and_survive_a_trip() -> None:
    recipe = find_recipe("rotmnist/monomials-lse")
    with pytest.raises(ValueError, match="frozen"):
        recipe.train.lr = 3.0
    for other in (pickle.loads(pickle.dumps(recipe)), copy.deepcopy(recipe)):
        assert other == recipe
        assert other.hash == recipe.hash
    assert len({recipe, other}) == len({recipe.data, other.data}) == 1


def test_recipes_are_equal_whatever_is_said_of_their_numbers() -> None:
    recipe = find_recipe("rotmnist/monomials")
    assert recipe.replace(source={}) == recipe
    assert hash(recipe.replace(source={})) == hash(recipe)
    assert recipe.replace(train={"lr": 1}) != recipe
    assert recipe.replace(name="own/other") != recipe


@pytest.mark.parametrize("choice", ["model.name=cnn-small", "model.group_pool=pose"])
def test_one_copy_is_for_networks_that_average_over_copies(choice: str) -> None:
    orbit = ["model.name=orbit-efficientnet-lite0", "train.one_copy=true"]
    assert changed(find_recipe("digits/cnn"), orbit).train.one_copy
    with pytest.raises(ConfigError, match="one_copy needs a network over turned copies"):
        changed(find_recipe("digits/cnn"), [*orbit, choice])
