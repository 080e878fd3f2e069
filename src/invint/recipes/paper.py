"""The hyper-parameter tables of the paper's appendix as data, and the recipes they stand for.

Where the appendix has no column, a recipe says in its `source` what its numbers are instead.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice
from invint.recipes.schedule import Decay

TEXT = "appendix, implementation details"
PRUNED = f"{TEXT}: M = 50, 25 after 10 epochs, n_m after 5 more"
BEST_ROW = "table 1, best row, used in all further experiments"
ZAGORUYKO = "specification of plain wide residual networks, after Zagoruyko and Komodakis 2016"
NO_COLUMN = "ours: the paper has no column for it"


class Table(NamedTuple):
    """What the appendix says of all columns of one of its tables."""

    title: str
    architecture: str
    network: str
    decay: Decay
    augment: tuple[str, ...] = ()
    epochs: int = 100
    norm_penalty: float = 0.1
    kept: int = 10  # monomials at the end, n_m


class Column(NamedTuple):
    """A column of one of these tables, from top to bottom."""

    title: str
    batch_size: int
    n_fc: int | None
    lr: float
    lr_decay: float
    lr_decay_epoch: float
    reg: float
    dropout: float
    attention_heads: int | None = None
    attention_dropout: float | None = None


class Plain(NamedTuple):
    """The numbers of a plain wide residual network."""

    title: str
    network: str
    epochs: int
    lr: float
    lr_decay: float
    milestones: tuple[float, ...]
    dropout: float | None


TABLES = {
    "rotmnist": Table(
        "Rotated-MNIST", "network", "sfcnn", "exponential", ("rotate",), norm_penalty=0.0, kept=5
    ),
    "svhn": Table("SVHN", "WRN16-4", "sf-wrn16-4", "exponential"),
    "cifar10": Table("CIFAR-10", "WRN28-10", "sf-wrn28-10", "step", ("crop", "flip")),
    "stl10": Table(
        "STL-10", "WRN16-8", "sf-wrn16-8", "step", ("crop", "flip", "cutout"), epochs=1000
    ),
}
# fmt: off
COLUMNS = {
    #                            title       batch n_fc   lr    decay  epoch reg   dropout
    "rotmnist/pooling":   Column("SF-CNN",    64,  96,   1e-3, 0.9,   20,  1.0,   0.7),
    "rotmnist/monomials": Column("Monomials", 32,  90,   1e-4, 0.75,  15,  0.15,  0.45),
    "rotmnist/global-ws": Column("Global-WS", 32,  85,   1e-4, 0.1,   40,  0.1,   0.45),
    "rotmnist/local-ws":  Column("Local-WS",  32,  30,   1e-3, 0.5,   25,  1e-3,  0.4),
    "rotmnist/mlp":       Column("MLP",       32,  85,   1e-4, 0.1,   30,  1e-3,  0.5),
    "rotmnist/attention": Column("MH-SA",     32,  95,   5e-3, 0.5,   20,  1e-3,  0.05, 1, 0.0),
    "rotmnist/sf-ii":     Column("SF-Conv",   32,  85,   5e-4, 0.2,   25,  0.01,  0.4),
    "svhn/pooling":       Column("SF-CNN",    128, 32,   1e-3, 0.4,   20,  2e-3,  0.55),
    "svhn/monomials":     Column("Monomials", 64,  85,   5e-4, 0.25,  20,  0.05,  0.7),
    "svhn/global-ws":     Column("Global-WS", 128, 64,   5e-4, 0.1,   30,  0.25,  0.7),
    "svhn/local-ws":      Column("Local-WS",  128, 36,   5e-4, 0.25,  25,  0.2,   0.5),
    "cifar10/pooling":    Column("SF-CNN",    64,  None, 1e-3, 0.5,   50,  0.1,   0.3),
    "cifar10/monomials":  Column("Monomials", 64,  30,   5e-4, 0.025, 50,  0.008, 0.4),
    "cifar10/local-ws":   Column("Local-WS",  64,  90,   5e-4, 0.2,   50,  5e-6,  0.1),
    "stl10/pooling":      Column("SF-CNN",    96,  None, 5e-4, 0.1,   300, 1e-8,  0.1),
    "stl10/monomials":    Column("Monomials", 32,  10,   5e-4, 0.1,   300, 5e-9,  0.05),
    "stl10/local-ws":     Column("Local-WS",  64,  16,   0.01, 0.3,   300, 1e-9,  0.15),
}
# fmt: on
PLAIN = {  # epochs, learning rate, its decay, the milestones, dropout
    "svhn": Plain("WRN16-4", "wrn16-4", 160, 0.01, 0.1, (80, 120), 0.4),
    "cifar10": Plain("WRN28-10", "wrn28-10", 200, 0.1, 0.2, (60, 120, 160), 0.3),
    "stl10": Plain("WRN16-8", "wrn16-8", 1000, 0.1, 0.2, (300, 400, 600, 800), None),
}

HEADS = {  # the variant of a recipe, which names its head: what the network does
    "pooling": "the spatial maximum: the equivariant baseline",
    "global-ws": "a weighted sum over the whole map",
    "local-ws": "weighted sums over neighbourhoods",
    "mlp": "a multi-layer perceptron on neighbourhoods",
    "attention": "self-attention",
    "sf-ii": "one more steerable convolution and averages: the control",
    "monomials": "monomials, pruned by magnitude from {start} random ones to {kept}",
}


def head_of(variant: str) -> str:
    """Return the head of a steerable network by the variant of its recipe."""
    return "max" if variant == "pooling" else variant


def paper_recipes() -> Iterator[Recipe]:
    """Yield the recipes of Rotated-MNIST, SVHN, CIFAR-10 and STL-10, in that order."""
    for data in TABLES:
        if data == "rotmnist":
            yield seven_layers()
        else:
            yield from plain(data, PLAIN[data])
        yield from (steerable(name) for name in COLUMNS if name.startswith(f"{data}/"))
        if data == "rotmnist":
            yield from selections(steerable("rotmnist/monomials"), source="table 1, row {variant}")


def steerable(name: str) -> Recipe:
    """Return the recipe of a column."""
    data, _, variant = name.partition("/")
    table, column = TABLES[data], COLUMNS[name]
    what = HEADS[variant].format(start=50, kept=table.kept)
    what += ", one head" if column.attention_heads else ""
    origin = f"appendix, hyper-parameters on {table.title}, column {column.title}"
    source = sources(origin) | dict.fromkeys(("data.augment", "train.decay", "train.elastic"), TEXT)
    source |= {"train.norm_penalty": TEXT} if table.norm_penalty else {}
    recipe = Recipe(
        name=name,
        about=f"Steerable {table.architecture} with {what}.",
        data=DataChoice(name=data, augment=table.augment),
        model=ModelChoice(
            name=table.network,
            head=head_of(variant),
            n_fc=column.n_fc,
            dropout=column.dropout,
            attention_heads=column.attention_heads,
            attention_dropout=column.attention_dropout,
        ),
        train=TrainChoice(
            epochs=table.epochs,
            batch_size=column.batch_size,
            lr=column.lr,
            decay=table.decay,
            lr_decay=column.lr_decay,
            lr_decay_epochs=(column.lr_decay_epoch,),
            reg=column.reg,
            norm_penalty=table.norm_penalty,
        ),
        source=source,
    )
    return pruned(recipe, table.kept) if variant == "monomials" else recipe


def pruned(recipe: Recipe, kept: int) -> Recipe:
    """Return a recipe whose monomials are selected as in all of the paper's experiments."""
    selection = SelectionChoice(method="magnitude", start=50, steps=((10, 25), (15, kept)))
    source = {"selection.start": PRUNED, "selection.steps": PRUNED}
    source |= {"selection.method": BEST_ROW, "selection.initial": BEST_ROW}
    return recipe.replace(selection=selection, source=recipe.source | source)


def seven_layers() -> Recipe:
    """Return the recipe of the plain network on Rotated-MNIST, which has no column."""
    nearest = "no column; that of SF-CNN, without penalties on steerable filters"
    return steerable("rotmnist/pooling").replace(
        name="rotmnist/cnn7",
        about="Plain seven-layer network with rotated copies, the baseline of Cohen and Welling.",
        data={"test_turns": 16},
        model=ModelChoice(name="cnn7", dropout=0.3),
        train={"reg": 0.0},
        source=sources(nearest) | {"model.dropout": "Cohen and Welling 2016"},
    )


def plain(data: str, network: Plain) -> Iterator[Recipe]:
    """Yield the recipe of a plain wide residual network, and of one that sees rotated copies."""
    recipe = Recipe(
        name=f"{data}/wrn",
        about=f"Plain {network.title}.",
        data=DataChoice(name=data, augment=TABLES[data].augment),
        model=ModelChoice(name=network.network, dropout=network.dropout),
        train=TrainChoice(
            epochs=network.epochs,
            batch_size=128,
            optimizer="sgd",
            lr=network.lr,
            decay="milestones",
            lr_decay=network.lr_decay,
            lr_decay_epochs=network.milestones,
            weight_decay=5e-4,
        ),
        source=sources(ZAGORUYKO) | {"train.momentum": ZAGORUYKO, "train.weight_decay": ZAGORUYKO},
    )
    yield recipe
    yield recipe.replace(
        name=f"{data}/wrn-rotate",
        about=f"Plain {network.title} with rotated copies in training and at test time: "
        "no column in the paper.",
        data={"augment": ("rotate", *recipe.data.augment), "test_turns": 16},
        source=recipe.source | {"data.augment": NO_COLUMN, "data.test_turns": NO_COLUMN},
    )


def selections(base: Recipe, source: str | None = None) -> Iterator[Recipe]:
    """Yield the rows of table 1: other ways to select the monomials of a recipe.

    Args:
        base: It prunes by magnitude from random monomials.
        source: Where they come from; `{variant}` is filled in.
    """
    kept = base.selection.steps[-1][1]
    alone: dict[str, Any] = {"start": kept, "steps": ()}
    pretrain = float(base.train.epochs)
    for variant, about, choices in (
        ("none", "Random monomials, kept.", {"method": "none", **alone}),
        (
            "lse",
            "Monomials exchanged by least squares after pre-training without them.",
            {"method": "lse", "pretrain": pretrain, **alone},
        ),
        (
            "connectivity-init",
            "Monomials pruned by connectivity at initialisation.",
            {"method": "connectivity", "steps": ((0, 5),)},
        ),
        (
            "connectivity-catalog",
            "Monomials pruned by connectivity, from a catalog of all distances.",
            {"method": "connectivity", "initial": "catalog"},
        ),
        (
            "connectivity",
            "Monomials pruned by connectivity, from random ones.",
            {"method": "connectivity"},
        ),
        (
            "magnitude-catalog",
            "Monomials pruned by magnitude, from a catalog of all distances.",
            {"method": "magnitude", "initial": "catalog"},
        ),
    ):
        origin = source.format(variant=variant) if source else None
        new = {f"selection.{name}": origin for name in choices} if origin else {}
        yield base.replace(
            name=f"{base.name}-{variant}",
            about=about,
            selection=choices,
            source=base.source | new,
        )


def sources(origin: str) -> dict[str, str]:
    """Name one origin for the numbers of a column."""
    train = ("batch_size", "epochs", "optimizer", "lr", "lr_decay", "lr_decay_epochs", "reg")
    paths = (*(f"train.{name}" for name in train), "model.n_fc", "model.dropout")
    return dict.fromkeys(paths, origin)
