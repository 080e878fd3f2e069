"""What a data set is: stored images and labels in splits, with names; and subsets of it.

Axes:  n image   c channel   h w pixel
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from invint.errors import ConfigError, DataError

ROWS = 1024  # images hashed at once
NEVER = np.iinfo(np.int64).max  # when a class without units left is due

Indices = NDArray[np.int64]
Progress = Callable[[int, int], None]  # hears how many of how many are done


@dataclass(frozen=True, eq=False)
class Split:
    """Images of one split, as they are stored.

    Attributes:
        images: `(n, c, h, w)` of uint8 or uint16; may be a memory map.
        labels: `(n,)`, class indices from 0.
        groups: `(n,)`, index of the patient, slide or part an image is of; None if not known.
    """

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype not in (torch.uint8, torch.uint16):
            shape = tuple(self.images.shape)
            raise DataError(f"Split: expected (n, c, h, w) of uint8 or uint16, got {shape}")
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != torch.int64:
            raise DataError(
                f"Split: expected an int64 label for each of {len(self.images)} images, "
                f"got {tuple(self.labels.shape)} of {self.labels.dtype}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, indices: Tensor) -> "Split":
        """Return these images alone."""
        groups = None if self.groups is None else self.groups[indices]
        return Split(self.images[indices], self.labels[indices], groups)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory or mapped from disk.

    Attributes:
        name: As in the registry.
        train: Images to learn from.
        test: Images to report on; never used to choose anything.
        class_names: Names of the classes, in the order of the labels.
        validation: Images to choose by, where the set has its own.
        note: What a table must say beside figures from this set ("regenerated from MNIST").
    """

    name: str
    train: Split
    test: Split
    class_names: tuple[str, ...]
    validation: Split | None = None
    note: str = ""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all images and labels: two sets with one fingerprint are the same set."""
        digest = hashlib.sha256()
        for part in (self.train, self.validation, self.test):
            if part is not None:
                digest.update(str(tuple(part.images.shape)).encode())
                for some in torch.split(part.images, ROWS):  # a memory map may not fit in memory
                    digest.update(some.contiguous().numpy().tobytes())
                digest.update(part.labels.numpy().tobytes())
        return digest.hexdigest()[:16]


def check_class_sizes(
    labels: Int64[Tensor, " n"],
    groups: Int64[Tensor, " n"] | None,
    class_names: Sequence[str],
    least: int,
    purpose: str,
) -> list[int]:
    """Count the images of each class, or groups of them, and return the counts.

    Args:
        labels: Of the images.
        groups: Of the images, where these stand or fall together.
        class_names: Names of the classes.
        least: The smallest number allowed: that of folds, or 2 for a split.
        purpose: What it is needed for, as `5 folds`.

    Raises:
        DataError: Some classes have too few; their names.
    """
    units = torch.arange(len(labels)) if groups is None else groups
    counts = [len(np.unique(units[labels == n].numpy())) for n in range(len(class_names))]
    pairs = zip(class_names, counts, strict=True)
    few = [f"{name!r} ({count:,})" for name, count in pairs if count < least]
    if few:
        what = "pictures" if groups is None else "groups"
        raise DataError(
            f"{purpose}: expected at least {least:,} {what} of each class, too few are there of "
            f"{', '.join(few)}; add some, or leave such classes out with --skip-class NAME or "
            f"--min-per-class {least}"
        )
    return counts


def random_words(count: int, *key: str | int) -> NDArray[np.uint64]:
    """Return random 64-bit words that depend on the key alone; more words begin with the same."""
    digest = hashlib.sha256(json.dumps(key).encode()).digest()
    return np.random.PCG64(int.from_bytes(digest[:16], "little")).random_raw(count)


def index_hash(indices: Int64[Tensor, " n"]) -> str:
    """Return sixteen characters that differ whenever the indices or their order do."""
    return hashlib.sha256(indices.numpy().astype("<i8").tobytes()).hexdigest()[:16]


def subset(
    labels: Int64[Tensor, " n"],
    size: int,
    seed: int,
    *,
    name: str,
    groups: Int64[Tensor, " n"] | None = None,
    class_names: Sequence[str] = (),
) -> Int64[Tensor, " m"]:
    """Choose images with the class ratios of the whole, and at least one of each class.

    The size of each class is rounded down or up; where it is less than one image, the class gets
    one at the expense of others. Subsets of one seed are nested: the larger contains the smaller.
    Groups are taken whole: size and class ratios are then met as nearly as the groups allow.

    Args:
        labels: Class of each image.
        size: Number of images.
        seed: Another seed, another subset.
        name: Of the data set: two sets with the same labels get different subsets.
        groups: Patient, slide or part each image is of.
        class_names: Names of the classes, for messages.

    Returns:
        Indices of the chosen images, ascending.
    """
    if not 1 <= size <= len(labels):
        raise ConfigError(
            f"subset: expected a size from 1 to {len(labels)}, the images of {name!r}, got {size}"
        )
    if size == len(labels):
        return torch.arange(size)
    return _chosen(labels, size, ("subset", name, seed), groups, class_names)


def holdout(
    labels: Int64[Tensor, " n"],
    fraction: float,
    seed: int,
    *,
    name: str,
    groups: Int64[Tensor, " n"] | None = None,
    class_names: Sequence[str] = (),
) -> tuple[Int64[Tensor, " kept"], Int64[Tensor, " held"]]:
    """Hold a fraction of the images out, by the rules of `subset`; every class is on both sides.

    Args:
        labels: Class of each image.
        fraction: Of images held out, between 0 and 1.
        seed: Another seed, another split.
        name: Of the data set.
        groups: Patient, slide or part each image is of.
        class_names: Names of the classes, for messages.

    Returns:
        Indices of the images kept and of those held out, ascending.
    """
    if not 0 < fraction < 1:
        raise ConfigError(
            f"split: expected a fraction between 0 and 1 for {name!r}, got {fraction}"
        )
    size = min(max(round(fraction * len(labels)), 1), len(labels) - 1)
    kinds, rest = len(np.unique(labels.numpy())), len(labels) - size
    if rest < kinds <= size:
        raise ConfigError(
            f"split of {name!r}: a fraction of {fraction:g} leaves {rest:,} of {len(labels):,} "
            f"images, which cannot show {kinds:,} classes; ask for less"
        )
    held = _chosen(labels, size, ("split", name, seed), groups, class_names)
    left = torch.ones(len(labels), dtype=torch.bool)
    left[held] = False
    kept = left.nonzero()[:, 0]
    _check_classes(labels, kept, f"split of {name!r}: the images kept", class_names)
    return kept, held


def _chosen(
    labels: Tensor,
    size: int,
    key: tuple[str, str, int],
    groups: Tensor | None,
    class_names: Sequence[str],
) -> Tensor:
    where = f"{key[0]} of {key[1]!r}"
    kinds = len(np.unique(labels.numpy()))
    if size < kinds:
        raise ConfigError(
            f"{where}: {size} images cannot show {kinds} classes; ask for at least {kinds}"
        )
    units = _units(len(labels), groups)
    taken: list[Indices] = []
    total = 0
    for unit in _in_order(labels.numpy(), units, key):
        if total + len(unit) - size > size - total and total:
            break
        taken.append(unit)
        total += len(unit)
        if total >= size:
            break
    chosen = torch.from_numpy(np.sort(np.concatenate(taken)))
    _check_classes(labels, chosen, f"{where}: the images chosen", class_names)
    return chosen


def _units(count: int, groups: Tensor | None) -> list[Indices]:
    """Return what is taken whole: single images, or the images of each group."""
    if groups is None:
        return list(np.arange(count)[:, None])
    order = np.argsort(groups.numpy(), kind="stable")
    starts = np.flatnonzero(np.diff(groups.numpy()[order])) + 1
    return np.split(order, starts)


def _in_order(
    labels: Indices, units: Sequence[Indices], key: tuple[str, str, int]
) -> Iterator[Indices]:
    """Go through all units so that every beginning has the class ratios of the whole.

    First comes a unit of each class. Then the j-th image of a class with n_c of n images may come
    once its share s·n_c/n of s images exceeds j - 1 and is due when it reaches j; of the classes
    that may come, the one due first does. Single images are then never late where every share is
    at least one (the windows and the rule are those of fair scheduling: Baruah et al. 1996).
    """
    kinds, labels = np.unique(labels, return_inverse=True)
    counts, total = np.bincount(labels).tolist(), len(labels)
    queues = _queues(labels, units, key)
    favoured = np.argsort(random_words(len(kinds), *key, "classes"), kind="stable")
    ties = np.argsort(favoured).tolist()
    taken = [0] * len(kinds)
    starts, due = np.zeros(len(kinds), np.int64), np.full(len(kinds), NEVER)  # of the next image

    def take(kind: int) -> Indices:
        unit = queues[kind].popleft()
        for each in labels[unit].tolist():
            taken[each] += 1
            starts[each] = taken[each] * total // counts[each]
            last = -(-(taken[each] + 1) * total // counts[each])
            due[each] = last * len(kinds) + ties[each] if queues[each] else NEVER
        return unit

    for kind in favoured.tolist():
        if not taken[kind] and queues[kind]:
            yield take(kind)
    while (done := sum(taken)) < total:
        candidates = np.where(starts <= done, due, NEVER)
        if candidates.min() == NEVER:
            candidates = due
        yield take(int(candidates.argmin()))


def _queues(
    labels: Indices, units: Sequence[Indices], key: tuple[str, str, int]
) -> list[deque[Indices]]:
    """Return the units of each class in random order; a unit is of its most frequent class."""
    if len(units) == len(labels):
        owners = labels[np.concatenate(units)].tolist()
    else:
        owners = [int(np.bincount(labels[unit]).argmax()) for unit in units]
    queues: list[deque[Indices]] = [deque() for _ in range(labels.max() + 1)]
    order = np.argsort(random_words(len(units), *key, "images"), kind="stable")
    for index in order.tolist():
        queues[owners[index]].append(units[index])
    return queues


def _check_classes(labels: Tensor, indices: Tensor, where: str, class_names: Sequence[str]) -> None:
    missing = sorted(set(labels.tolist()) - set(labels[indices].tolist()))
    if missing:
        name = repr(class_names[missing[0]]) if class_names else missing[0]
        raise DataError(
            f"{where} leave out class {name} ({int((labels == missing[0]).sum())} images); "
            "ask for other sizes, add images or groups of it, or leave the class out (of folders: "
            "--skip-class NAME, --min-per-class N)"
        )
