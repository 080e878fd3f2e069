"""From a recipe to a card, a network and its data."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from invint.data.batches import normalisation
from invint.data.dataset import Dataset, Part
from invint.data.registry import load_dataset
from invint.data.subsets import index_hash, split, subset
from invint.export import ModelCard
from invint.nn import Monomials
from invint.recipes.recipe import Recipe


@dataclass(frozen=True)
class Images:
    """The images of a run.

    Attributes:
        dataset: The whole set.
        chosen: Numbers of the images trained on.
        held_out: Numbers of those chosen by, unless the set has its own.
        train: The images trained on.
        validation: The images chosen by, if any.
        mean: Of the images trained on, channel by channel.
        std: Likewise.
    """

    dataset: Dataset
    chosen: Tensor
    held_out: Tensor
    train: Part
    validation: Part | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, recipe: Recipe, seed: int, data_dir: Path | None) -> "Images":
        """Load the set, choose the subset, hold out validation images where asked."""
        dataset = load_dataset(recipe.data.name, data_dir)
        everything, name = dataset.train, dataset.name
        chosen, held_out = torch.arange(len(everything)), torch.arange(0)
        if recipe.data.size is not None:
            size, groups = recipe.data.size, everything.groups
            chosen = subset(everything.labels, size, seed, name=name, groups=groups)
        validation = dataset.validation
        if recipe.data.validation > 0 and validation is None:
            part = everything[chosen]
            kept, left = split(
                part.labels, recipe.data.validation, seed, name=name, groups=part.groups
            )
            chosen, held_out = chosen[kept], chosen[left]
            validation = everything[held_out]
        train = everything if len(chosen) == len(everything) else everything[chosen]
        if recipe.data.validation == 0:
            validation = None
        return cls(dataset, chosen, held_out, train, validation, *normalisation(train))

    def describe(self, seed: int) -> dict[str, Any]:
        """Say which images these are, for `subset.json`."""
        return {
            "data": self.dataset.name,
            "note": self.dataset.note,
            "fingerprint": self.dataset.fingerprint,
            "size": len(self.chosen),
            "seed": seed,
            "hash": index_hash(self.chosen),
            "indices": self.chosen.tolist(),
            "validation": self.held_out.tolist(),
        }


def make_card(
    recipe: Recipe,
    images: Images,
    *,
    monomials: Monomials | int | None = None,
    head: str | None = None,
) -> ModelCard:
    """Return the card from which the network of a recipe is built.

    Args:
        recipe: Says which network.
        images: Say classes, channels, size and normalisation.
        monomials: The monomials as they are now, or how many.
        head: Another head than the recipe's.
    """
    model = recipe.model
    channels, height, width = images.dataset.image_shape
    given = {"n_fc": model.n_fc, "dropout": model.dropout, "widths": model.widths}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    head = head or model.head
    if head == "monomials":
        options["head_options"] = {"monomials": monomials or recipe.selection.start}
    if head == "attention":
        wanted = {"heads": model.attention_heads, "dropout": model.attention_dropout}
        options["head_options"] = {k: v for k, v in wanted.items() if v is not None}
    return ModelCard(
        class_names=images.dataset.class_names,
        image_size=(height, width),
        in_channels=channels,
        group=model.group,
        mean=images.mean,
        std=images.std,
        name=model.name,
        head=head,
        options=options,
    )


def mixed(*numbers: object) -> int:
    """Return a seed that depends on all of these."""
    text = " ".join(map(str, numbers))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
