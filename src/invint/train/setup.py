"""From a recipe to a card, a network and its data."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from invint.data.batches import normalisation
from invint.data.dataset import Dataset, Progress, Split, holdout, index_hash, subset
from invint.data.registry import load_dataset
from invint.export import ModelCard
from invint.nn import Monomials
from invint.recipes.recipe import DataChoice, Recipe


@dataclass(frozen=True)
class Images:
    """The images of a run.

    Attributes:
        dataset: The whole set.
        chosen: Numbers of the training images trained on.
        held_out: Numbers of those chosen by, unless the set has its own.
        validation: The images to choose by, with their numbers; none unless asked for.
        mean: Of the images trained on, channel by channel.
        std: Likewise.
    """

    dataset: Dataset
    chosen: Tensor
    held_out: Tensor
    validation: tuple[Split, Tensor] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(
        cls, recipe: Recipe, seed: int, data_dir: Path | None, *, progress: Progress | None = None
    ) -> "Images":
        """Load the set, choose the subset, hold out validation images where asked."""
        dataset = load_chosen(recipe.data, data_dir, progress=progress)
        train, name = dataset.train, dataset.name
        chosen, held_out = torch.arange(len(train)), torch.arange(0)
        if recipe.data.size is not None:
            chosen = subset(train.labels, recipe.data.size, seed, name=name, groups=train.groups)
        validation = None
        if recipe.data.validation > 0 and dataset.validation is not None:
            validation = dataset.validation, torch.arange(len(dataset.validation))
        elif recipe.data.validation > 0:
            groups = None if train.groups is None else train.groups[chosen]
            share = recipe.data.validation
            kept, left = holdout(train.labels[chosen], share, seed, name=name, groups=groups)
            chosen, held_out = chosen[kept], chosen[left]
            validation = train, held_out
        normal = normalisation(train, chosen=chosen)
        return cls(dataset, chosen, held_out, validation, *normal)

    @property
    def labels(self) -> Tensor:
        """Labels of the images trained on."""
        return self.dataset.train.labels[self.chosen]

    @property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, where they are to count alike."""
        return class_weights(self.labels, len(self.dataset.class_names))

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


def load_chosen(
    choice: DataChoice, data_dir: Path | None, *, progress: Progress | None = None
) -> Dataset:
    """Read the data set of a recipe; the arguments are those of `load_dataset`."""
    return load_dataset(
        choice.name,
        data_dir,
        skip_bad=choice.skip_bad,
        side=choice.side,
        test_share=choice.test_share,
        progress=progress,
    )


def chosen_data(choices: dict[str, Any]) -> DataChoice:
    """Return which data set a run was on, from the choices of its recipe."""
    told = choices["data"]
    names = ("name", "skip_bad", "side", "test_share")
    return DataChoice(**{name: told[name] for name in names if name in told})


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
        if isinstance(monomials, Monomials):  # training may have led the exponents anywhere
            options["head_options"]["check_exponents"] = False
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


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return weights inversely proportional to how often each class occurs, 1 on average."""
    counts = torch.bincount(labels, minlength=classes).clamp_min(1)
    return len(labels) / (classes * counts.float())
