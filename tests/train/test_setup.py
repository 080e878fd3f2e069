"""Which images a recipe stands for."""

from pathlib import Path

import pytest
from support.pictures import write_noise

from invint.errors import ConfigError
from invint.recipes import changed, find_recipe
from invint.recipes.recipe import DataChoice
from invint.train.setup import RunData


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


def test_runs_from_before_an_option_was_known_have_its_default() -> None:
    assert DataChoice.of({"data": {"name": "mnist", "size": 5}}) == DataChoice(name="mnist")


def test_the_options_of_a_folder_are_refused_for_other_sets() -> None:
    recipe = changed(find_recipe("digits/cnn"), ["data.side=16"])
    with pytest.raises(ConfigError, match="digits: side is for folder:PATH"):
        RunData.of(recipe, 0, None)
