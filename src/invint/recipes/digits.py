"""Digits: small networks that two CPU cores train in seconds. The numbers are ours.

One set of hyper-parameters for all networks: a comparison in which only one side was tuned is worth
nothing. Learning rates from 3e-3 to 3e-2 and dropout 0 and 0.1 were compared on 200 validation
images with the plain network, pooling and Local-WS, one seed; all three did best, or as well as
with anything else, at 1e-2 without dropout. The learning rate ends low, so that the running
statistics of batch normalisation catch up with the weights: with a smooth decay to 1e-3, which
validation cannot tell from this one, errors of Local-WS doubled by rounding alone
(`results/digits-schedule.json`, `results/digits-statistics-lag.json`).
"""

from dataclasses import replace

from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice


def pooling() -> Recipe:
    """Small steerable network with the spatial maximum: the equivariant baseline."""
    return Recipe(
        name="digits/pooling",
        data=DataChoice(name="digits", augment=("rotate",)),
        model=ModelChoice(name="sfcnn-small", head="max", dropout=0.0),
        train=TrainChoice(
            epochs=20,
            batch_size=64,
            lr=1e-2,
            decay="step",
            lr_decay=0.1,
            lr_decay_epochs=(9,),
            reg=1e-3,
        ),
    )


def cnn() -> Recipe:
    """Small plain network of equal parameters, with rotated copies."""
    base = pooling()
    data = replace(base.data, test_turns=16)
    model = ModelChoice(name="cnn-small", dropout=0.0)
    return replace(base, name="digits/cnn", data=data, model=model)


def integrated(head: str) -> Recipe:
    """Small steerable network with another head."""
    base = pooling()
    return replace(base, name=f"digits/{head}", model=replace(base.model, head=head))


def monomials() -> Recipe:
    """Small steerable network with monomials, pruned by magnitude from 20 random ones to 5."""
    selection = SelectionChoice(method="magnitude", start=20, steps=((2, 10), (4, 5)))
    return replace(integrated("monomials"), selection=selection)


def global_ws() -> Recipe:
    """Small steerable network with a weighted sum over the whole map."""
    return integrated("global-ws")


def local_ws() -> Recipe:
    """Small steerable network with weighted sums over neighbourhoods."""
    return integrated("local-ws")


def mlp() -> Recipe:
    """Small steerable network with a multi-layer perceptron on neighbourhoods."""
    return integrated("mlp")


def attention() -> Recipe:
    """Small steerable network with self-attention."""
    return integrated("attention")


def sf_ii() -> Recipe:
    """Small steerable network with one more steerable convolution and averages: the control."""
    return integrated("sf-ii")


def selected(variant: str, **choices: object) -> Recipe:
    """Return the monomial recipe with another way to select."""
    base = monomials()
    selection = replace(base.selection, **choices)  # type: ignore[arg-type]
    return replace(base, name=f"digits/monomials-{variant}", selection=selection)


def monomials_none() -> Recipe:
    """Random monomials, kept."""
    return selected("none", method="none", start=5, steps=())


def monomials_lse() -> Recipe:
    """Monomials exchanged by least squares after pre-training without them."""
    choices = {"method": "lse", "start": 5, "steps": (), "pretrain": 20.0}
    return selected("lse", **choices)


def monomials_connectivity_init() -> Recipe:
    """Monomials pruned by connectivity at initialisation."""
    return selected("connectivity-init", method="connectivity", steps=((0, 5),))


def monomials_connectivity_catalog() -> Recipe:
    """Monomials pruned by connectivity, from a catalog of all distances."""
    return selected("connectivity-catalog", method="connectivity", initial="catalog")


def monomials_connectivity() -> Recipe:
    """Monomials pruned by connectivity, from random ones."""
    return selected("connectivity", method="connectivity")


def monomials_magnitude_catalog() -> Recipe:
    """Monomials pruned by magnitude, from a catalog of all distances."""
    return selected("magnitude-catalog", initial="catalog")
