"""Every number of the appendix's four tables, read from the tables as they are printed."""

from collections.abc import Iterator

import pytest

from invint.models.registry import MODELS
from invint.recipes import RECIPES, Recipe, find_recipe
from invint.recipes.schedule import Schedule, learning_rate

ROTATED_MNIST = """
    Hyper-parameter   | MH-SA | Global-WS | Local-WS | MLP   | SF-Conv | Monomials | SF-CNN
    Optimizer         | Adam  | Adam      | Adam     | Adam  | Adam    | Adam      | Adam
    Batch Size        | 32    | 32        | 32       | 32    | 32      | 32        | 64
    Epochs            | 100   | 100       | 100      | 100   | 100     | 100       | 100
    n_FC              | 95    | 85        | 30       | 85    | 85      | 90        | 96
    Learning Rate     | 5e-3  | 1e-4      | 1e-3     | 1e-4  | 5e-4    | 1e-4      | 1e-3
    LR Decay          | 0.5   | 0.1       | 0.5      | 0.1   | 0.2     | 0.75      | 0.9
    LR Decay Epoch    | 20    | 40        | 25       | 30    | 25      | 15        | 20
    Reg. Constant     | 1e-3  | 0.1       | 1e-3     | 1e-3  | 0.01    | 0.15      | 1.
    Dropout Rate      | 0.05  | 0.45      | 0.4      | 0.5   | 0.4     | 0.45      | 0.7
    Attention Heads   | 1     | -         | -        | -     | -       | -         | -
    Attention Dropout | 0.    | -         | -        | -     | -       | -         | -
"""
SVHN = """
    Hyper-parameter | SF-CNN | Global-WS | Local-WS | Monomials
    Optimizer       | Adam   | Adam      | Adam     | Adam
    Batch Size      | 128    | 128       | 128      | 64
    Epochs          | 100    | 100       | 100      | 100
    n_FC            | 32     | 64        | 36       | 85
    Learning Rate   | 1e-3   | 5e-4      | 5e-4     | 5e-4
    LR Decay        | 0.4    | 0.1       | 0.25     | 0.25
    LR Decay Epoch  | 20     | 30        | 25       | 20
    Reg. Constant   | 2e-3   | 0.25      | 0.2      | 0.05
    Dropout Rate    | 0.55   | 0.7       | 0.5      | 0.7
"""
CIFAR10 = """
    Hyper-parameter | SF-CNN | Local-WS | Monomials
    Optimizer       | Adam   | Adam     | Adam
    Batch Size      | 64     | 64       | 64
    Epochs          | 100    | 100      | 100
    n_FC            | -      | 90       | 30
    Learning Rate   | 1e-3   | 5e-4     | 5e-4
    LR Decay        | 0.5    | 0.2      | 0.025
    LR Decay Epoch  | 50     | 50       | 50
    Reg. Constant   | 0.1    | 5e-6     | 0.008
    Dropout Rate    | 0.3    | 0.1      | 0.4
"""
STL10 = """
    Hyper-parameter | SF-CNN | Local-WS | Monomials
    Optimizer       | Adam   | Adam     | Adam
    Batch Size      | 96     | 64       | 32
    Epochs          | 1000   | 1000     | 1000
    n_FC            | -      | 16       | 10
    Learning Rate   | 5e-4   | 0.01     | 5e-4
    LR Decay        | 0.1    | 0.3      | 0.1
    LR Decay Epoch  | 300    | 300      | 300
    Reg. Constant   | 1e-8   | 1e-9     | 5e-9
    Dropout Rate    | 0.1    | 0.15     | 0.05
"""
TABLES = {"rotmnist": ROTATED_MNIST, "svhn": SVHN, "cifar10": CIFAR10, "stl10": STL10}
COLUMNS = {
    "MH-SA": ("attention", "attention"),
    "Global-WS": ("global-ws", "global-ws"),
    "Local-WS": ("local-ws", "local-ws"),
    "MLP": ("mlp", "mlp"),
    "SF-Conv": ("sf-ii", "sf-ii"),
    "Monomials": ("monomials", "monomials"),
    "SF-CNN": ("pooling", "max"),
}
NETWORKS = {
    "rotmnist": "sfcnn",
    "svhn": "sf-wrn16-4",
    "cifar10": "sf-wrn28-10",
    "stl10": "sf-wrn16-8",
}
AUGMENT = {
    "rotmnist": ("rotate",),
    "svhn": (),
    "cifar10": ("crop", "flip"),
    "stl10": ("crop", "flip", "cutout"),
}


def cells() -> Iterator[tuple[str, str, str, str]]:
    """Yield the data set, the column, the row and the printed text of each cell."""
    for data, table in TABLES.items():
        header, *rows = [
            [cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()
        ]
        for title, *values in rows:
            for column, value in zip(header[1:], values, strict=True):
                yield data, column, title, value


def value_in(recipe: Recipe, row: str) -> object:
    model, train = recipe.model, recipe.train
    values: dict[str, object] = {
        "Optimizer": train.optimizer,
        "Batch Size": train.batch_size,
        "Epochs": train.epochs,
        "n_FC": model.n_fc,
        "Learning Rate": train.lr,
        "LR Decay": train.lr_decay,
        "LR Decay Epoch": train.lr_decay_epochs,
        "Reg. Constant": train.reg,
        "Dropout Rate": model.dropout,
        "Attention Heads": model.attention_heads,
        "Attention Dropout": model.attention_dropout,
    }
    return values[row]


def printed(row: str, text: str) -> object:
    if text == "-":
        return None
    if row == "Optimizer":
        return text.lower()
    return (float(text),) if row == "LR Decay Epoch" else float(text)


def test_there_are_as_many_cells_as_in_the_paper() -> None:
    assert len(list(cells())) == 11 * 7 + 9 * (4 + 3 + 3)


@pytest.mark.parametrize(("data", "column", "row", "text"), list(cells()))
def test_every_cell_is_in_its_recipe(data: str, column: str, row: str, text: str) -> None:
    variant, head = COLUMNS[column]
    recipe = find_recipe(f"{data}/{variant}")
    assert value_in(recipe, row) == printed(row, text)
    assert recipe.model.head == head


@pytest.mark.parametrize("data", TABLES)
def test_what_the_appendix_says_of_all_columns(data: str) -> None:
    recipes = [
        find_recipe(f"{data}/{variant}")
        for variant, _ in COLUMNS.values()
        if f"{data}/{variant}" in RECIPES
    ]
    for recipe in recipes:
        assert recipe.data.name == data
        assert recipe.data.augment == AUGMENT[data]
        assert recipe.data.validation == 0
        assert recipe.model.name == NETWORKS[data]
        assert recipe.train.decay == ("exponential" if data in ("rotmnist", "svhn") else "step")
        assert recipe.train.elastic == 1e-7
        assert recipe.train.norm_penalty == (0 if data == "rotmnist" else 0.1)
        assert recipe.train.weight_decay == 0
        assert recipe.train.scale == 1


@pytest.mark.parametrize("data", TABLES)
def test_monomials_are_pruned_as_the_appendix_says(data: str) -> None:
    """M = 50, 25 after 10 epochs, n_m after 5 more."""
    selection = find_recipe(f"{data}/monomials").selection
    assert selection.method == "magnitude"
    assert (selection.initial, selection.start) == ("random", 50)
    assert selection.steps == ((10, 25), (15, 5 if data == "rotmnist" else 10))


PLAIN = {  # epochs, lr, factor, at, dropout
    "cifar10/wrn": (200, 0.1, 0.2, (60, 120, 160), 0.3),
    "svhn/wrn": (160, 0.01, 0.1, (80, 120), 0.4),
    "stl10/wrn": (1000, 0.1, 0.2, (300, 400, 600, 800), None),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_wide_networks_use_the_numbers_of_their_paper(name: str) -> None:
    recipe = find_recipe(name)
    train = recipe.train
    epochs, lr, factor, milestones, dropout = PLAIN[name]
    assert (train.optimizer, train.momentum, train.weight_decay) == ("sgd", 0.9, 5e-4)
    assert (train.batch_size, train.epochs, train.lr) == (128, epochs, lr)
    assert (train.decay, train.lr_decay, train.lr_decay_epochs) == (
        "milestones",
        factor,
        milestones,
    )
    assert recipe.model.dropout == dropout
    assert recipe.data.augment == AUGMENT[name.partition("/")[0]]
    assert train.reg == 0


def test_the_learning_rate_of_a_plain_network_falls_at_its_milestones() -> None:
    train = find_recipe("cifar10/wrn").train
    rates = [
        learning_rate(
            epoch,
            lr=train.lr,
            decay=train.decay,
            factor=train.lr_decay,
            epochs=train.lr_decay_epochs,
        )
        for epoch in (0, 59.9, 60, 119.9, 120, 160, 199)
    ]
    assert rates == pytest.approx([0.1, 0.1, 0.02, 0.02, 0.004, 0.0008, 0.0008])


def test_rotated_mnist_takes_37500_steps() -> None:
    train = find_recipe("rotmnist/local-ws").train
    schedule = Schedule(images=12_000, batch_size=train.batch_size, epochs=train.epochs)
    assert schedule.steps == 37_500


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_named_as_it_is_found(name: str) -> None:
    recipe = find_recipe(name)
    assert recipe.name == name
    assert recipe.about.endswith(".")
    assert recipe.model.name in MODELS


PAPER = [name for name in RECIPES if not name.startswith("digits/") and "/settled-" not in name]


@pytest.mark.parametrize("name", PAPER)
def test_every_number_says_where_it_comes_from(name: str) -> None:
    recipe = find_recipe(name)
    for path in ("train.lr", "train.batch_size", "train.epochs", "train.reg", "model.dropout"):
        assert recipe.source[path]
    if recipe.model.head is not None:
        assert {"data.augment", "train.decay", "train.elastic"} <= recipe.source.keys()
    if recipe.model.head == "monomials":
        assert {f"selection.{key}" for key in ("method", "start", "steps")} <= recipe.source.keys()
    assert all(
        hasattr(getattr(recipe, path.split(".")[0]), path.split(".")[1]) for path in recipe.source
    )


def test_the_nearest_column_is_named_where_the_appendix_has_none() -> None:
    assert "no column; that of SF-CNN" in find_recipe("rotmnist/cnn7").source["train.lr"]


def test_what_a_variant_changes_is_not_said_to_be_the_papers_pruning() -> None:
    source = find_recipe("rotmnist/monomials-lse").source
    for key in ("method", "start", "steps", "pretrain"):
        assert source[f"selection.{key}"] == "table 1, row lse"


def test_no_two_recipes_share_a_folder() -> None:
    recipes = [find_recipe(name) for name in RECIPES]
    assert len({(recipe.name, recipe.hash) for recipe in recipes}) == len(RECIPES)
