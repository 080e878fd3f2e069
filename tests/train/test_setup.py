"""Which images and which network a recipe stands for."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from support.pictures import write_noise
from support.written_runs import tiny_dataset

from invint.errors import ConfigError, DataError
from invint.export import ModelCard
from invint.nn import GroupBispectrum, MonomialIntegration, Monomials
from invint.recipes import changed, find_recipe
from invint.recipes.recipe import DataChoice
from invint.train.setup import RunData, make_card, map_size


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_noise(tmp_path / "set")


def test_the_options_of_a_folder_are_choices_of_a_recipe(pictures: Path) -> None:
    told = [f"data.name=folder:{pictures}", "data.skip_bad=true", "data.side=16"]
    recipe = changed(find_recipe("digits/cnn"), [*told, "data.test_share=0.5"])
    images = RunData.of(recipe, 0, None)
    assert images.dataset.image_shape == (1, 16, 16)
    assert (len(images.dataset.train), len(images.dataset.test)) == (10, 10)
    choice = DataChoice.of({"data": {**vars(recipe.data), "augment": ["rotate"]}})
    expected = DataChoice(name=f"folder:{pictures}", skip_bad=True, side=16, test_share=0.5)
    assert choice == expected


def test_leaks_and_classes_are_left_out_of_a_run(pictures: Path) -> None:
    test = write_noise(pictures.parent / "split" / "test")  # the same pictures
    train = test.parent / "train"
    pictures.rename(train)
    (train / "a" / "0.png").write_bytes((train / "b" / "3.png").read_bytes())  # and this in two
    for split in (train, test):
        (split / "rare").mkdir()
    for number, path in enumerate((train / "rare/0.png", train / "a/x.png", train / "b/x.png")):
        Image.new("L", (24, 24), number).save(path)
    Image.new("L", (24, 24), 9).save(test / "rare" / "1.png")
    told = [f"data.name=folder:{test.parent}", "data.skip_bad=true", "data.validation=0.2"]
    base = changed(find_recipe("digits/cnn"), told)
    line = r"the images kept leave out class 'rare' \(1 images\); .* --skip-class NAME, --min-per"
    with pytest.raises(DataError, match=line):
        RunData.of(base, 0, None)
    for option in ("data.min_per_class=3", 'data.skip_class=["rare"]'):
        images = RunData.of(changed(base, [option, "data.validation=0"]), 0, None).dataset
        assert images.class_names == ("a", "b")
        assert "leakage: train/a/" in images.note
    dropped = RunData.of(
        changed(base, ["data.skip_class=rare", "data.drop_leaks=true", "data.validation=0"]),
        0,
        None,
    )
    assert dropped.dataset.train.images.amax((1, 2, 3)).tolist() == [1, 2]


def test_runs_from_before_an_option_was_known_have_its_default() -> None:
    assert DataChoice.of({"data": {"name": "mnist", "size": 5}}) == DataChoice(name="mnist")


def test_the_options_of_a_folder_are_refused_for_other_sets() -> None:
    recipe = changed(find_recipe("digits/cnn"), ["data.side=16"])
    with pytest.raises(ConfigError, match="digits: side is for folder:PATH"):
        RunData.of(recipe, 0, None)


def card_of(name: str, *assignments: str, **changes: Any) -> ModelCard:
    """Return the card of a recipe on tiny images of digits."""
    nothing = torch.arange(0)
    data = RunData(tiny_dataset(), nothing, nothing, None, (0.5,), (0.2,))
    return make_card(changed(find_recipe(name), assignments), data, **changes)


@pytest.mark.parametrize(
    ("name", "assignments", "options"),
    [
        ("digits/pooling", [], {}),
        ("digits/mlp", ["head.layers=3", "head.kernel_size=5"], {"layers": 3, "kernel_size": 5}),
        ("digits/local-ws", ["head.kernel_size=1"], {"kernel_size": 1}),
        ("digits/attention", ["head.scaled=false"], {"scaled": False}),
        (
            "digits/attention",
            ["model.attention_heads=2", "model.attention_dropout=0.1", "head.head_channels=3"],
            {"heads": 2, "dropout": 0.1, "head_channels": 3},
        ),
        (
            "digits/monomials",
            ["head.max_distance=4", "head.factors=2", "head.own_angles=true", "head.floor=0.2"],
            {"monomials": 20, "max_distance": 4, "factors": 2, "own_angles": True, "floor": 0.2},
        ),
        (
            "digits/monomials",
            ["head.exponents=0.5,2", "head.scale_free=true"],
            {"monomials": 20, "exponents": [0.5, 2.0], "scale_free": True},
        ),
        ("digits/pooling", ["model.head=power-mean", "head.power=20"], {"power": 20.0}),
        (
            "digits/pooling",
            ["model.head=exp-mean", "head.sharpness=9", "head.kernel_size=1"],
            {"sharpness": 9.0, "kernel_size": 1},
        ),
    ],
)
def test_cards_carry_the_options_of_the_head(
    name: str, assignments: list[str], options: dict[str, Any]
) -> None:
    card = card_of(name, *assignments)
    assert card.options.get("head_options", {}) == options
    again = ModelCard.from_json(card.to_json())
    assert again == card
    assert list(again.build().state_dict()) == list(card.build().state_dict())


def test_monomials_that_are_drawn_have_nothing_to_be_drawn_by() -> None:
    drawn = Monomials.random(2, max_distance=4, factors=2)
    choices = ("head.max_distance=4", "head.factors=2", "head.floor=0.2")
    card = card_of("digits/monomials", *choices, monomials=drawn)
    expected = {"monomials": drawn, "floor": 0.2, "check_exponents": False}
    assert card.options["head_options"] == expected
    heads = [each for each in card.build().modules() if isinstance(each, MonomialIntegration)]
    assert [(each.monomials.distances, each.floor) for each in heads] == [(drawn.distances, 0.2)]


def test_pre_training_with_another_head_has_none_of_these_options() -> None:
    card = card_of("digits/monomials-lse", "head.max_distance=4", head="max")
    assert "head_options" not in card.options


def test_cards_carry_the_options_of_the_network() -> None:
    choices = ("model.depths=2", "model.kernel_sizes=3,3,3", "model.pool_after=1")
    card = card_of("digits/local-ws", *choices)
    assert card.options["depths"] == 2
    last, before = card.build().eval().forward_features(torch.zeros(1, 1, *card.image_size))
    assert (last.shape[-1] * 2, before.shape[-1]) == (card.image_size[0], card.image_size[0])
    assert "depths" not in card_of("digits/local-ws").options
    card = card_of("digits/local-ws", "model.group_pool=bispectrum")
    assert card.options["group_pool"] == "bispectrum"
    built = card.build().modules()
    assert [type(each) for each in built if isinstance(each, GroupBispectrum)] == [GroupBispectrum]
    with pytest.raises(ConfigError, match="cnn-small has no option 'depths'; it has num_classes"):
        card_of("digits/cnn", "model.depths=2").build()
    with pytest.raises(ConfigError, match="cnn-small has no option 'group_pool'; it has num_cla"):
        card_of("digits/cnn", "model.group_pool=mean").build()


@pytest.mark.parametrize(
    ("choices", "side"), [([], 5), (["model.pool_after=1"], 10), (["model.depths=2"], 5)]
)
def test_the_last_map_is_as_large_as_poolings_leave_it(choices: list[str], side: int) -> None:
    recipe = changed(find_recipe("digits/monomials-none"), choices)
    assert map_size(recipe, tiny_dataset()) == (side, side)
