"""What a recipe means: its images, its network, seeds derived from its own."""

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
from invint.models import create_model
from invint.models.registry import takes_pixels
from invint.nn import Monomials
from invint.nn.heads import head_options
from invint.nn.monomials import DRAWN
from invint.recipes.recipe import OWN_CHOICES, DataChoice, ModelChoice, Recipe

NETWORK_OPTIONS = (  # beside those that are left out where they are as in 0.1
    *("n_fc", "dropout", "widths", "group_pool"),
    *("kernel_size", "kernel_sizes", "pool_after"),
)
ATTENTION = {"heads": "attention_heads", "dropout": "attention_dropout"}  # options of the head


@dataclass(frozen=True)
class RunData:
    """What a run learns from and is evaluated on.

    Attributes:
        dataset: The whole set.
        train_indices: Indices of the training images trained on.
        validation_indices: Indices of those held out for validation, unless the set has its own.
        validation: The images to validate on, with their indices; `None` unless asked for.
        mean: Of the images trained on, channel by channel; 0 if the network takes them as they are.
        std: Likewise; 1 if it does.
    """

    dataset: Dataset
    train_indices: Tensor
    validation_indices: Tensor
    validation: tuple[Split, Tensor] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(
        cls, recipe: Recipe, seed: int, data_dir: Path | None, *, progress: Progress | None = None
    ) -> "RunData":
        """Load the set, choose the subset, hold out validation images where asked."""
        dataset = load_data(recipe.data, data_dir, progress=progress)
        train, name, classes = dataset.train, dataset.name, dataset.class_names
        chosen, held_out = torch.arange(len(train)), torch.arange(0)
        if recipe.data.size is not None:
            size, groups = recipe.data.size, train.groups
            chosen = subset(train.labels, size, seed, name=name, groups=groups, class_names=classes)
        validation = None
        if recipe.data.validation > 0 and dataset.validation is not None:
            validation = dataset.validation, torch.arange(len(dataset.validation))
        elif recipe.data.validation > 0:
            groups = None if train.groups is None else train.groups[chosen]
            fraction = recipe.data.validation
            labels = train.labels[chosen]
            kept, left = holdout(
                labels, fraction, seed, name=name, groups=groups, class_names=classes
            )
            chosen, held_out = chosen[kept], chosen[left]
            validation = train, held_out
        normal = normalisation_for(recipe.model.name, train, chosen=chosen)
        return cls(dataset, chosen, held_out, validation, *normal)

    @property
    def class_weights(self) -> Tensor:
        """The weight of each class in the loss, where they are to count alike."""
        labels = self.dataset.train.labels[self.train_indices]
        return class_weights(labels, len(self.dataset.class_names))

    def describe(self, seed: int) -> dict[str, Any]:
        """Say which images these are, for `subset.json`."""
        return {
            "data": self.dataset.name,
            "note": self.dataset.note,
            "fingerprint": self.dataset.fingerprint,
            "size": len(self.train_indices),
            "seed": seed,
            "hash": index_hash(self.train_indices),
            "indices": self.train_indices.tolist(),
            "validation": self.validation_indices.tolist(),
        }


def normalisation_for(
    network: str, split: Split, *, chosen: Tensor | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of images; 0 and 1 for a network that normalises by itself.

    Args:
        network: Its name.
        split: The images.
        chosen: Indices of the images to use, all by default.
    """
    if takes_pixels(network):
        channels = split.images.shape[1]
        return (0.0,) * channels, (1.0,) * channels
    return normalisation(split, chosen=chosen)


def load_data(
    choice: DataChoice, data_dir: Path | None, *, progress: Progress | None = None
) -> Dataset:
    """Read the data set of a recipe; the arguments are those of `load_dataset`."""
    return load_dataset(
        choice.name,
        data_dir,
        **{name: getattr(choice, name) for name in OWN_CHOICES},
        progress=progress,
    )


def make_card(
    recipe: Recipe,
    data: RunData,
    *,
    monomials: Monomials | int | None = None,
    head: str | None = None,
) -> ModelCard:
    """Return the card from which the network of a recipe is built.

    Args:
        recipe: Says which network.
        data: Says classes, channels, size and normalisation.
        monomials: The monomials as they are now, or how many.
        head: Another head than the recipe's.
    """
    model, head = recipe.model, head or recipe.model.head
    channels, height, width = data.dataset.image_shape
    options = network_options(model)
    if head is not None and (wanted := _head_options(recipe, head, monomials)):
        options["head_options"] = wanted
    return ModelCard(
        class_names=data.dataset.class_names,
        image_size=(height, width),
        in_channels=channels,
        group=model.group,
        mean=data.mean,
        std=data.std,
        name=model.name,
        head=head,
        options=options,
    )


def network_options(model: ModelChoice) -> dict[str, Any]:
    """Return what a recipe asks for beside the name of a network, its head and its group."""
    given = {name: value for name, value in model if name in NETWORK_OPTIONS}
    given |= {"norm_features": model.norm_features or None}
    given |= {"depths": model.depths if model.depths > 1 else None}
    return {name: value for name, value in given.items() if value is not None}


def _head_options(recipe: Recipe, head: str, monomials: Monomials | int | None) -> dict[str, Any]:
    """Return those options of a recipe that a head has."""
    model, known = recipe.model, head_options(head)
    wanted: dict[str, Any] = {
        "monomials": monomials or recipe.selection.start,
        **{name: getattr(model, field) for name, field in ATTENTION.items()},
        **recipe.head.given,
    }
    if isinstance(monomials, Monomials):  # drawn already, and training may have led them anywhere
        wanted |= dict.fromkeys(DRAWN) | {"check_exponents": False}
    return {name: value for name, value in wanted.items() if name in known and value is not None}


def map_size(recipe: Recipe, dataset: Dataset) -> tuple[int, int]:
    """Return height and width of the last map of a recipe's network."""
    channels, *size = dataset.image_shape
    with torch.device("meta"):  # shapes alone
        network = create_model(
            recipe.model.name,
            in_channels=channels,
            image_size=(size[0], size[1]),
            group=recipe.model.group,
            **network_options(recipe.model) | {"depths": 1},
        )
        maps = network.to("meta").eval().features(torch.empty(1, channels, *size))
    return maps.shape[-2], maps.shape[-1]


def derive_seed(*parts: object) -> int:
    """Return a seed that depends on all of these."""
    text = " ".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return weights inversely proportional to how often each class occurs, 1 on average."""
    counts = torch.bincount(labels, minlength=classes).clamp_min(1)
    return len(labels) / (classes * counts.float())
