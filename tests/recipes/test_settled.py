import pytest

from invint.errors import ConfigError
from invint.models.registry import create_model
from invint.nn import HEADS
from invint.recipes import RECIPES, Recipe, changed, find_recipe
from invint.recipes.settled import SETTLED

FAMILIES = [
    [recipe for name, recipe in RECIPES.items() if name.startswith(f"{data}/settled-")]
    for data in SETTLED
]


@pytest.mark.parametrize("family", FAMILIES, ids=list(SETTLED))
def test_nothing_differs_between_the_networks_of_a_data_set_but_the_network(
    family: list[Recipe],
) -> None:
    assert len({recipe.train for recipe in family}) == 1
    # Averaging over rotated copies is no training, but a plain network may also learn from some.
    learnt = {recipe.data.replace(test_turns=1) for recipe in family}
    assert len({data for data in learnt if "rotate" in data.augment}) == 1
    assert len(learnt) <= 2
    steerable = [recipe.model for recipe in family if recipe.model.head is not None]
    assert len({model.replace(head=None) for model in steerable}) == 1
    assert len({recipe.schedule(12_000).steps for recipe in family}) == 1


@pytest.mark.parametrize("family", FAMILIES, ids=list(SETTLED))
def test_the_learning_rate_ends_at_zero(family: list[Recipe]) -> None:
    for recipe in family:
        train = recipe.train
        assert train.rate(train.epochs) == pytest.approx(0, abs=1e-12)
        assert train.rate(train.epochs / 2) == pytest.approx(train.lr / 2)


@pytest.mark.parametrize("data", SETTLED)
def test_every_head_of_the_paper_and_both_poolings_have_a_settled_recipe(data: str) -> None:
    names = {name.removeprefix(f"{data}/settled-") for name in RECIPES if "/settled-" in name}
    paper = {"monomials", "global-ws", "local-ws", "mlp", "attention", "sf-ii"}
    assert names >= {"pooling", "average", *paper}
    heads = {RECIPES[f"{data}/settled-{name}"].model.head for name in ("pooling", "average")}
    assert heads == {"max", "avg"}
    assert paper <= set(HEADS)


def test_any_head_there_is_has_a_settled_recipe_though_it_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(HEADS, "median", HEADS["avg"])
    recipe, listed = find_recipe("digits/settled-median"), find_recipe("digits/settled-local-ws")
    assert recipe.model == listed.model.replace(head="median")
    assert (recipe.train, recipe.data) == (listed.train, listed.data)
    assert recipe.about.endswith("with the head median.")
    assert "digits/settled-median" not in RECIPES
    # The maximum is listed as pooling, and nothing has two names.
    for unknown in ("digits/settled-max", "digits/settled-mean", "stl10/settled-median"):
        with pytest.raises(ConfigError, match=f"no recipe '{unknown}'"):
            find_recipe(unknown)


@pytest.mark.parametrize("name", ["rotmnist/settled-monomials", "svhn/settled-local-ws"])
def test_features_are_normalised_before_the_first_dense_layer(name: str) -> None:
    model = find_recipe(name).model
    network = create_model(
        model.name, head=model.head, n_fc=model.n_fc, norm_features=model.norm_features
    )
    first, second = list(network.classifier.children())[:2]
    assert type(first).__name__ == "BatchNorm1d"
    assert first.num_features == second.in_features


def test_an_average_without_statistics_of_its_own_is_refused() -> None:
    settled = find_recipe("rotmnist/settled-pooling")
    assert changed(settled, ["train.ema=0.99"]).train.ema == 0.99
    message = r"train.ema evaluates weights .* set train.statistics to the batches .* as 100"
    with pytest.raises(ConfigError, match=message):
        changed(settled, ["train.ema=0.99", "train.statistics=0"])


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    message = "train.warmup must be shorter than the run of 11 epochs, got 11"
    with pytest.raises(ConfigError, match=message):
        changed(find_recipe("rotmnist/settled-pooling"), ["train.warmup=11"])
