"""SVHN, CIFAR-10 and STL-10: the columns of the appendix for wide residual networks."""

from dataclasses import replace
from typing import NamedTuple

from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice
from invint.recipes.rotmnist import PRUNED, TEXT, sources, steerable_sources

PLAIN = "specification of plain wide residual networks, after Zagoruyko and Komodakis 2016"
ROTATED = "ours: the paper has no column for it"
SELECTION = SelectionChoice(method="magnitude", start=50, steps=((10, 25), (15, 10)))


class Column(NamedTuple):
    """A column of one of the appendix's tables, from top to bottom."""

    title: str
    batch_size: int
    n_fc: int | None
    dropout: float
    lr: float
    decay: float
    every: float
    reg: float


def svhn_wrn() -> Recipe:
    """Plain WRN16-4."""
    base = _plain("svhn/wrn", "wrn16-4", epochs=160, lr=0.01, factor=0.1, milestones=(80, 120))
    return replace(base, model=replace(base.model, dropout=0.4))


def svhn_wrn_rotate() -> Recipe:
    """Plain WRN16-4 with rotated copies in training and at test time: no column in the paper."""
    return _rotated(svhn_wrn())


def svhn_pooling() -> Recipe:
    """Steerable WRN16-4 with the spatial maximum: the equivariant baseline."""
    column = Column("SF-CNN", 128, 32, 0.55, 1e-3, 0.4, 20, 2e-3)
    return _steerable("svhn/pooling", "sf-wrn16-4", "max", column)


def svhn_global_ws() -> Recipe:
    """Steerable WRN16-4 with a weighted sum over the whole map."""
    column = Column("Global-WS", 128, 64, 0.7, 5e-4, 0.1, 30, 0.25)
    return _steerable("svhn/global-ws", "sf-wrn16-4", "global-ws", column)


def svhn_local_ws() -> Recipe:
    """Steerable WRN16-4 with weighted sums over neighbourhoods."""
    column = Column("Local-WS", 128, 36, 0.5, 5e-4, 0.25, 25, 0.2)
    return _steerable("svhn/local-ws", "sf-wrn16-4", "local-ws", column)


def svhn_monomials() -> Recipe:
    """Steerable WRN16-4 with monomials, pruned by magnitude from 50 random ones to 10."""
    column = Column("Monomials", 64, 85, 0.7, 5e-4, 0.25, 20, 0.05)
    return _steerable("svhn/monomials", "sf-wrn16-4", "monomials", column)


def cifar10_wrn() -> Recipe:
    """Plain WRN28-10."""
    marks = (60, 120, 160)
    base = _plain("cifar10/wrn", "wrn28-10", epochs=200, lr=0.1, factor=0.2, milestones=marks)
    data = replace(base.data, augment=("crop", "flip"))
    return replace(base, data=data, model=replace(base.model, dropout=0.3))


def cifar10_wrn_rotate() -> Recipe:
    """Plain WRN28-10 with rotated copies in training and at test time: no column in the paper."""
    return _rotated(cifar10_wrn())


def cifar10_pooling() -> Recipe:
    """Steerable WRN28-10 with the spatial maximum: the equivariant baseline."""
    column = Column("SF-CNN", 64, None, 0.3, 1e-3, 0.5, 50, 0.1)
    return _steerable("cifar10/pooling", "sf-wrn28-10", "max", column)


def cifar10_local_ws() -> Recipe:
    """Steerable WRN28-10 with weighted sums over neighbourhoods."""
    column = Column("Local-WS", 64, 90, 0.1, 5e-4, 0.2, 50, 5e-6)
    return _steerable("cifar10/local-ws", "sf-wrn28-10", "local-ws", column)


def cifar10_monomials() -> Recipe:
    """Steerable WRN28-10 with monomials, pruned by magnitude from 50 random ones to 10."""
    column = Column("Monomials", 64, 30, 0.4, 5e-4, 0.025, 50, 0.008)
    return _steerable("cifar10/monomials", "sf-wrn28-10", "monomials", column)


def stl10_wrn() -> Recipe:
    """Plain WRN16-8."""
    marks = (300, 400, 600, 800)
    base = _plain("stl10/wrn", "wrn16-8", epochs=1000, lr=0.1, factor=0.2, milestones=marks)
    return replace(base, data=replace(base.data, augment=("crop", "flip", "cutout")))


def stl10_wrn_rotate() -> Recipe:
    """Plain WRN16-8 with rotated copies in training and at test time: no column in the paper."""
    return _rotated(stl10_wrn())


def stl10_pooling() -> Recipe:
    """Steerable WRN16-8 with the spatial maximum: the equivariant baseline."""
    column = Column("SF-CNN", 96, None, 0.1, 5e-4, 0.1, 300, 1e-8)
    return _steerable("stl10/pooling", "sf-wrn16-8", "max", column)


def stl10_local_ws() -> Recipe:
    """Steerable WRN16-8 with weighted sums over neighbourhoods."""
    column = Column("Local-WS", 64, 16, 0.15, 0.01, 0.3, 300, 1e-9)
    return _steerable("stl10/local-ws", "sf-wrn16-8", "local-ws", column)


def stl10_monomials() -> Recipe:
    """Steerable WRN16-8 with monomials, pruned by magnitude from 50 random ones to 10."""
    column = Column("Monomials", 32, 10, 0.05, 5e-4, 0.1, 300, 5e-9)
    return _steerable("stl10/monomials", "sf-wrn16-8", "monomials", column)


AUGMENT: dict[str, tuple[str, ...]] = {
    "svhn": (),
    "cifar10": ("crop", "flip"),
    "stl10": ("crop", "flip", "cutout"),
}
TITLES = {"svhn": "SVHN", "cifar10": "CIFAR-10", "stl10": "STL-10"}


def _steerable(name: str, network: str, head: str, column: Column) -> Recipe:
    data = name.partition("/")[0]
    origin = f"appendix, hyper-parameters on {TITLES[data]}, column {column.title}"
    source = steerable_sources(origin) | {"train.norm_penalty": TEXT}
    if head == "monomials":
        source |= PRUNED
    return Recipe(
        name=name,
        data=DataChoice(name=data, augment=AUGMENT[data]),
        model=ModelChoice(name=network, head=head, n_fc=column.n_fc, dropout=column.dropout),
        train=TrainChoice(
            epochs=1000 if data == "stl10" else 100,
            batch_size=column.batch_size,
            lr=column.lr,
            decay="exponential" if data == "svhn" else "step",
            lr_decay=column.decay,
            lr_decay_epochs=(column.every,),
            reg=column.reg,
            norm_penalty=0.1,
        ),
        selection=SELECTION if head == "monomials" else SelectionChoice(),
        source=source,
    )


def _plain(
    name: str, network: str, *, epochs: int, lr: float, factor: float, milestones: tuple[int, ...]
) -> Recipe:
    return Recipe(
        name=name,
        data=DataChoice(name=name.partition("/")[0]),
        model=ModelChoice(name=network),
        train=TrainChoice(
            epochs=epochs,
            batch_size=128,
            optimizer="sgd",
            lr=lr,
            decay="milestones",
            lr_decay=factor,
            lr_decay_epochs=tuple(map(float, milestones)),
            weight_decay=5e-4,
        ),
        source=sources(PLAIN) | {"train.momentum": PLAIN, "train.weight_decay": PLAIN},
    )


def _rotated(base: Recipe) -> Recipe:
    """Return a baseline that knows of rotations only from its images."""
    data = replace(base.data, augment=("rotate", *base.data.augment), test_turns=16)
    source = base.source | {"data.augment": ROTATED, "data.test_turns": ROTATED}
    return replace(base, name=f"{base.name}-rotate", data=data, source=source)
