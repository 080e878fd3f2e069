"""Settled training: one recipe for each data set, the same for every head, pooling and plain.

The paper's own recipes differ in much more than the head, and some end at a high learning rate.
Here nothing differs but the network, and the learning rate ends at zero. The numbers are ours:
chosen on validation images alone, with equal effort for every network compared
(`benchmarks/settle.py`, `results/settle-*.json`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from invint.recipes.paper import HEADS, TABLES
from invint.recipes.recipe import DataChoice, ModelChoice, Recipe, SelectionChoice, TrainChoice


@dataclass(frozen=True)
class Settled:
    """What is the same for all networks of a data set.

    Attributes:
        plain: The plain network; its variant is called by its name, up to the depth.
        steerable: The steerable one, but for its head.
        train: How all are trained.
        augment: How images are augmented for all.
        kept: Number of monomials that selection keeps.
    """

    plain: ModelChoice
    steerable: ModelChoice
    train: TrainChoice
    augment: tuple[str, ...]
    kept: int


def _wide(data: str, epochs: int) -> Settled:
    return Settled(
        ModelChoice(name="wrn16-4", dropout=0.3),
        ModelChoice(name="sf-wrn16-4", n_fc=64, dropout=0.3, norm_features=True),
        TrainChoice(epochs=epochs, batch_size=128, lr=1e-3, decay="cosine", statistics=100),
        TABLES[data].augment,
        TABLES[data].kept,
    )


SETTLED = {
    "digits": Settled(
        ModelChoice(name="cnn-small", dropout=0.0, norm_features=True),
        ModelChoice(name="sfcnn-small", dropout=0.0, norm_features=True),
        TrainChoice(epochs=40, batch_size=64, lr=3e-3, decay="cosine", statistics=20),
        ("rotate",),
        5,
    ),
    "rotmnist": Settled(
        ModelChoice(name="cnn7", dropout=0.3),
        ModelChoice(name="sfcnn", n_fc=96, dropout=0.6, norm_features=True),
        TrainChoice(epochs=11, batch_size=64, lr=1e-3, decay="cosine", statistics=100),
        TABLES["rotmnist"].augment,
        TABLES["rotmnist"].kept,
    ),
    "svhn": _wide("svhn", 4),
    "cifar10": _wide("cifar10", 10),
}
LISTED_AS = {"pooling": "max", "average": "avg"}  # where a variant is not called as its head
TURNS = 16  # copies that predictions of plain networks are averaged over
PRUNED_AFTER = (0.1, 0.15)  # of the run, where the paper prunes after 10 and 15 of 100 epochs
NETWORKS = {  # the variant of a settled recipe: what the network does; a line adds a head
    "pooling": HEADS["pooling"],
    "average": "the spatial mean: the baseline of weighted sums",
    "monomials": HEADS["monomials"],
    **HEADS,
}


def settled_recipes() -> Iterator[Recipe]:
    """Yield the settled recipes of each data set: plain, pooling, average, every other head."""
    for data, settled in SETTLED.items():
        yield from plain_networks(data, settled)
        yield from (steerable(data, settled, variant) for variant in NETWORKS)


def settled_with_head(name: str) -> Recipe | None:
    """Return the settled recipe of any head there is, in the list or not, by `data/settled-head`.

    So a new head is compared with all others in the training that all of them have.
    """
    data, _, variant = name.partition("/settled-")
    if data not in SETTLED or not variant:
        return None
    from invint.nn import HEADS as KNOWN  # recipes are listed without torch

    other = variant in KNOWN and variant not in LISTED_AS.values()
    return steerable(data, SETTLED[data], variant) if other else None


def plain_networks(data: str, settled: Settled) -> Iterator[Recipe]:
    """Yield the plain network, and one that sees rotated copies if the others learn from none.

    Predictions of a plain network that learns from rotated copies are also averaged over some: what
    anybody would do who has no steerable network.
    """
    recipe = common(data, settled)
    if "rotate" in recipe.data.augment:
        yield recipe.replace(data={"test_turns": TURNS})
        return
    yield recipe
    yield recipe.replace(
        name=f"{recipe.name}-rotate",
        about=f"{recipe.about.rstrip('.')}, with rotated copies.",
        data={"augment": ("rotate", *recipe.data.augment), "test_turns": TURNS},
    )


def common(data: str, settled: Settled) -> Recipe:
    """Return the plain network on a data set, from which all others differ in the network."""
    name = settled.plain.name
    return Recipe(
        name=f"{data}/settled-{name.partition('16')[0]}",
        about=f"Plain {name} in settled training.",
        data=DataChoice(name=data, augment=settled.augment),
        model=settled.plain,
        train=settled.train,
    )


def steerable(data: str, settled: Settled, variant: str) -> Recipe:
    """Return the recipe of one head."""
    what = NETWORKS.get(variant, f"the head {variant}").format(start=50, kept=settled.kept)
    recipe = common(data, settled).replace(
        name=f"{data}/settled-{variant}",
        about=f"Steerable {settled.steerable.name} in settled training, with {what}.",
        model=settled.steerable.replace(head=LISTED_AS.get(variant, variant)),
    )
    return pruned_early(recipe, settled.kept) if variant == "monomials" else recipe


def pruned_early(recipe: Recipe, kept: int) -> Recipe:
    """Return a recipe whose monomials are selected as the paper's, at the same part of the run."""
    half, end = (round(part * recipe.train.epochs, 6) for part in PRUNED_AFTER)
    selection = SelectionChoice(method="magnitude", start=50, steps=((half, 25), (end, kept)))
    return recipe.replace(selection=selection)
