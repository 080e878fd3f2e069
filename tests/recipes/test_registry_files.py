import json
import os
from pathlib import Path

import pytest

from invint.errors import ConfigError
from invint.recipes import changed, find_recipe
from invint.recipes.registry import write_recipe

TOML = """
base = "digits/local-ws"
[train]
lr = 3e-4
lr_decay_epochs = [5, 7.5]
[data]
size = 100
augment = []
"""
VALUES = {
    "base": "digits/local-ws",
    "train": {"lr": 3e-4, "lr_decay_epochs": [5, 7.5]},
    "data": {"size": 100, "augment": []},
}


@pytest.mark.parametrize("name", ["mine.toml", "mine.json"])
def test_a_file_changes_its_base(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TOML if path.suffix == ".toml" else json.dumps(VALUES))
    recipe = find_recipe(str(path))
    base = find_recipe("digits/local-ws")
    assignments = ["train.lr=3e-4", "train.lr_decay_epochs=5,7.5", "data.size=100", "data.augment="]
    assert recipe.choices == changed(base, assignments).choices
    assert recipe.name == "own/mine"
    assert recipe.about == f"digits/local-ws, changed by {name}"


def test_a_file_may_name_its_recipe_and_build_on_another_file(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text(TOML)
    second.write_text(f'base = "{first}"\nname = "mine/second"\nabout = "Mine."\n')
    recipe = find_recipe(str(second))
    assert (recipe.name, recipe.about) == ("mine/second", "Mine.")
    assert recipe.train.lr == 3e-4


@pytest.mark.parametrize("name", ["digits/monomials-lse", "stl10/monomials", "rotmnist/cnn7"])
def test_a_written_recipe_is_read_back(tmp_path: Path, name: str) -> None:
    recipe = find_recipe(name)
    write_recipe(recipe, tmp_path / "copy.json", base="digits/cnn")
    copy = find_recipe(str(tmp_path / "copy.json"))
    assert (copy.name, copy.about, copy.choices) == (recipe.name, recipe.about, recipe.choices)
    assert copy.hash == recipe.hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nlr = 1\n", 'a recipe names its base, as in base = "digits/local-ws"'),
        ('base = "digits/cn"\n', "no recipe 'digits/cn'; did you mean 'digits/cnn'?"),
        (
            'base = "digits/cnn"\nseed = 1\n',
            "no value 'seed'; a recipe has base, name, about, data",
        ),
        ('base = "digits/cnn"\ntrain = 3\n', "expected a table 'train' of choices, got 3"),
        (
            'base = "digits/cnn"\n[train]\nlr = "fast"\n',
            "mine.toml: train.lr must be a number, got 'fast'",
        ),
        ('base = "digits/cnn"\n[model]\nsize = 3\n', "no value 'model.size'; model has name, head"),
        ('base = "digits/cnn"\nname = "../up"\n', "a name is like 'mine/first': letters, digits"),
        ('base = "digits/cnn"\nname = "/root"\n', "a name is like 'mine/first': letters, digits"),
        ('base = "digits/cnn"\nname = 3\n', "a name is like 'mine/first': letters, digits"),
        ("base = \n", "cannot be read"),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        find_recipe(str(path))
    assert message in str(caught.value)


def test_files_that_are_bases_of_each_other_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text('base = "two.json"')
    Path("two.json").write_text('{"base": "./one.toml"}')
    with pytest.raises(ConfigError, match=r"^one.toml: it is a base of itself; name one that"):
        find_recipe("one.toml")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match=r"pipe.toml: cannot be read \(it is no file\)"):
        find_recipe(str(tmp_path / "pipe.toml"))


def test_a_missing_file_and_a_folder_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.toml: there is no such file"):
        find_recipe(str(tmp_path / "gone.toml"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ConfigError, match=r"folder.json: cannot be read"):
        find_recipe(str(tmp_path / "folder.json"))


def test_a_wrong_name_gets_the_nearest_one() -> None:
    message = "no recipe 'rotmnist/monomial'; did you mean 'rotmnist/monomials'? `invint recipes` "
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        find_recipe("rotmnist/monomial")
    with pytest.raises(ConfigError, match="no recipe 'qqq'; `invint recipes` lists all"):
        find_recipe("qqq")
