"""Digits: small networks that two CPU cores train in seconds. The numbers are ours.

One set of hyper-parameters for all networks: a comparison in which only one side was tuned is worth
nothing. Learning rates from 3e-3 to 3e-2 and dropout 0 and 0.1 were compared on 200 validation
images with the plain network, pooling and Local-WS, one seed; all three did best, or as well as
with anything else, at 1e-2 without dropout. The learning rate ends low, so that the running
statistics of batch normalisation catch up with the weights: with a smooth decay to 1e-3, which
validation cannot tell from this one, errors of Local-WS doubled by rounding alone
(`results/digits-schedule.json`, `results/digits-statistics-lag.json`).
"""

from collections.abc import Iterator

from invint.recipes.paper import HEADS, head_of, selections
from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice

POOLING = Recipe(
    name="digits/pooling",
    about=f"Small steerable network with {HEADS['pooling']}.",
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
CNN = POOLING.replace(
    name="digits/cnn",
    about="Small plain network of equal parameters, with rotated copies.",
    data={"test_turns": 16},
    model=ModelChoice(name="cnn-small", dropout=0.0),
)
MONOMIALS = POOLING.replace(
    name="digits/monomials",
    about=f"Small steerable network with {HEADS['monomials'].format(start=20, kept=5)}.",
    model={"head": "monomials"},
    selection=SelectionChoice(method="magnitude", start=20, steps=((2, 10), (4, 5))),
)


def digits_recipes() -> Iterator[Recipe]:
    """Yield the recipes of the digits, in the order of their list."""
    yield from (CNN, POOLING, MONOMIALS)
    for variant in ("global-ws", "local-ws", "mlp", "attention", "sf-ii"):
        yield POOLING.replace(
            name=f"digits/{variant}",
            about=f"Small steerable network with {HEADS[variant]}.",
            model={"head": head_of(variant)},
        )
    yield from selections(MONOMIALS)
