"""What a data set is: stored images and labels in parts, with names and an origin.

Axes:  n image   c channel   h w pixel
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from invint.errors import DataError

ROWS = 1024  # images hashed at once

Progress = Callable[[int, int], None]  # hears how many of how many are done


@dataclass(frozen=True, eq=False)
class Part:
    """Images of one split, as they are stored.

    Attributes:
        images: `(n, c, h, w)` of uint8 or uint16; may be a memory map.
        labels: `(n,)`, class numbers from 0.
        groups: `(n,)`, number of the patient, slide or part an image is of; none if not known.
    """

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype not in (torch.uint8, torch.uint16):
            shape = tuple(self.images.shape)
            raise DataError(f"Part: expected (n, c, h, w) of uint8 or uint16, got {shape}")
        if self.labels.shape != self.images.shape[:1] or self.labels.dtype != torch.int64:
            raise DataError(
                f"Part: expected an int64 label for each of {len(self.images)} images, "
                f"got {tuple(self.labels.shape)} of {self.labels.dtype}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, numbers: Tensor) -> "Part":
        """Return these images alone."""
        groups = None if self.groups is None else self.groups[numbers]
        return Part(self.images[numbers], self.labels[numbers], groups)


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
    train: Part
    test: Part
    class_names: tuple[str, ...]
    validation: Part | None = None
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
