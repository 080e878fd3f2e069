"""Rotated-MNIST: the columns of the appendix, and the ways to select monomials."""

from dataclasses import replace

from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice

APPENDIX = "appendix, hyper-parameters on Rotated-MNIST, column "
TRAIN = ("batch_size", "epochs", "optimizer", "lr", "lr_decay", "lr_decay_epochs", "reg")
TEXT = "appendix, implementation details"
PRUNING = f"{TEXT}: M = 50, 25 after 10 epochs, n_m after 5 more"
CHOICE = "table 1, best row, used in all further experiments"
PRUNED = {"selection.start": PRUNING, "selection.steps": PRUNING} | {
    "selection.method": CHOICE,
    "selection.initial": CHOICE,
}


def pooling() -> Recipe:
    """Steerable network with the spatial maximum: the equivariant baseline."""
    return Recipe(
        name="rotmnist/pooling",
        data=DataChoice(name="rotmnist", augment=("rotate",)),
        model=ModelChoice(name="sfcnn", head="max", n_fc=96, dropout=0.7),
        train=TrainChoice(
            epochs=100, batch_size=64, lr=1e-3, lr_decay=0.9, lr_decay_epochs=(20,), reg=1.0
        ),
        source=steerable_sources(APPENDIX + "SF-CNN"),
    )


def attention() -> Recipe:
    """Steerable network with self-attention, one head."""
    base = _integrated("attention", "MH-SA", n_fc=95, dropout=0.05)
    model = replace(base.model, attention_heads=1, attention_dropout=0.0)
    train = replace(base.train, lr=5e-3, lr_decay=0.5, lr_decay_epochs=(20,), reg=1e-3)
    return replace(base, model=model, train=train)


def global_ws() -> Recipe:
    """Steerable network with a weighted sum over the whole map."""
    base = _integrated("global-ws", "Global-WS", n_fc=85, dropout=0.45)
    train = replace(base.train, lr=1e-4, lr_decay=0.1, lr_decay_epochs=(40,), reg=0.1)
    return replace(base, train=train)


def local_ws() -> Recipe:
    """Steerable network with weighted sums over neighbourhoods."""
    base = _integrated("local-ws", "Local-WS", n_fc=30, dropout=0.4)
    train = replace(base.train, lr=1e-3, lr_decay=0.5, lr_decay_epochs=(25,), reg=1e-3)
    return replace(base, train=train)


def mlp() -> Recipe:
    """Steerable network with a multi-layer perceptron on neighbourhoods."""
    base = _integrated("mlp", "MLP", n_fc=85, dropout=0.5)
    train = replace(base.train, lr=1e-4, lr_decay=0.1, lr_decay_epochs=(30,), reg=1e-3)
    return replace(base, train=train)


def sf_ii() -> Recipe:
    """Steerable network with one more steerable convolution and averages: the control."""
    base = _integrated("sf-ii", "SF-Conv", n_fc=85, dropout=0.4)
    train = replace(base.train, lr=5e-4, lr_decay=0.2, lr_decay_epochs=(25,), reg=0.01)
    return replace(base, train=train)


def monomials() -> Recipe:
    """Steerable network with monomials, pruned by magnitude from 50 random ones to 5."""
    base = _integrated("monomials", "Monomials", n_fc=90, dropout=0.45)
    train = replace(base.train, lr=1e-4, lr_decay=0.75, lr_decay_epochs=(15,), reg=0.15)
    selection = SelectionChoice(method="magnitude", start=50, steps=((10, 25), (15, 5)))
    source = base.source | PRUNED
    return replace(base, train=train, selection=selection, source=source)


def cnn7() -> Recipe:
    """Plain seven-layer network with rotated copies, the baseline of Cohen and Welling."""
    base = pooling()
    nearest = "no column; that of SF-CNN, without penalties on steerable filters"
    return replace(
        base,
        name="rotmnist/cnn7",
        data=replace(base.data, test_turns=16),
        model=ModelChoice(name="cnn7", dropout=0.3),
        train=replace(base.train, reg=0.0),
        source=sources(nearest) | {"model.dropout": "Cohen and Welling 2016"},
    )


def selected(base: Recipe, variant: str, **choices: object) -> Recipe:
    """Return a monomial recipe that selects in another way."""
    selection = replace(base.selection, **choices)  # type: ignore[arg-type]
    name = f"{base.name}-{variant}"
    row = f"table 1, row {variant}"
    source = base.source | {f"selection.{key}": row for key in ("method", *choices)}
    return replace(base, name=name, about="", selection=selection, source=source)


def monomials_none() -> Recipe:
    """Random monomials, kept."""
    kept = monomials().selection.steps[-1][1]
    return selected(monomials(), "none", method="none", start=kept, steps=())


def monomials_lse() -> Recipe:
    """Monomials exchanged by least squares after pre-training without them."""
    kept = monomials().selection.steps[-1][1]
    pretrain = float(monomials().train.epochs)
    return selected(monomials(), "lse", method="lse", start=kept, steps=(), pretrain=pretrain)


def monomials_connectivity_init() -> Recipe:
    """Monomials pruned by connectivity at initialisation."""
    return selected(monomials(), "connectivity-init", method="connectivity", steps=((0, 5),))


def monomials_connectivity_catalog() -> Recipe:
    """Monomials pruned by connectivity, from a catalog of all distances."""
    choices = {"method": "connectivity", "initial": "catalog"}
    return selected(monomials(), "connectivity-catalog", **choices)


def monomials_connectivity() -> Recipe:
    """Monomials pruned by connectivity, from random ones."""
    return selected(monomials(), "connectivity", method="connectivity")


def monomials_magnitude_catalog() -> Recipe:
    """Monomials pruned by magnitude, from a catalog of all distances."""
    return selected(monomials(), "magnitude-catalog", initial="catalog")


def sources(origin: str) -> dict[str, str]:
    """Name one origin for all numbers of a column."""
    return {f"train.{key}": origin for key in TRAIN} | {
        "model.n_fc": origin,
        "model.dropout": origin,
    }


def steerable_sources(column: str) -> dict[str, str]:
    """Name the origin of the numbers of a column, and of those the text gives for all columns."""
    text = dict.fromkeys(("data.augment", "train.decay", "train.elastic"), TEXT)
    return sources(column) | text


def _integrated(head: str, column: str, *, n_fc: int, dropout: float) -> Recipe:
    base = pooling()
    return replace(
        base,
        name=f"rotmnist/{head}",
        model=replace(base.model, head=head, n_fc=n_fc, dropout=dropout),
        train=replace(base.train, batch_size=32),
        source=steerable_sources(APPENDIX + column),
    )
