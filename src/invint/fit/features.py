"""What a frozen network makes of pictures, turn by turn, so that no turn is computed twice."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.data.batches import scaled
from invint.data.dataset import Progress, Split, index_hash
from invint.groups import Cyclic, Dihedral
from invint.models import fold
from invint.ops.grids import move_back
from invint.train.features import orbit_features

EVERY = Dihedral(4)
TURNS, MIRRORED = range(4), range(8)  # its elements: quarter turns, and these with mirror images
PIXELS = 2**18  # that go through the network together: larger maps are allocated anew each time
PROBED = 2  # batches timed


@dataclass
class FrozenFeatures:
    """Features of pictures and their turned copies, kept in a folder.

    Args:
        backbone: Takes images in [0, 1] `(b, c, h, w)` to features `(b, f)`.
        folder: Where they are kept.
        fingerprint: Of the pictures, whatever their side.
        device: Where the network computes.
        check: Called between batches; may raise.
        progress: Called with the number of pictures done and that of all.
    """

    backbone: nn.Module
    folder: Path
    fingerprint: str
    device: str | torch.device = "cpu"
    check: Callable[[], None] = lambda: None
    progress: Progress = lambda _done, _all: None

    def of(
        self, name: str, split: Split, elements: Sequence[int], rows: Tensor | None = None
    ) -> Float[Tensor, "n f"]:
        """Return the features of pictures, averaged over some turns of each.

        Args:
            name: Of the part of the data set.
            split: Its pictures, all of one side.
            elements: Which turns, as elements of D4.
            rows: Indices of the pictures, all by default.
        """
        if rows is None or len(rows) == len(split):
            images, part = split.images, name
        else:
            images, part = split.images[rows], f"{name} {index_hash(rows)}"
        sums = torch.zeros(())
        for place, element in enumerate(elements):
            sums = sums + orbit_features(
                self.backbone,
                Moved(images, element),
                Cyclic(1),
                folder=self.folder,
                fingerprint=f"{self.fingerprint} {part} moved back by {element}",
                batch_size=batch_of(images.shape[-1]),
                device=self.device,
                progress=self._watch(place, len(elements), len(images)),
            )
        return sums / len(elements)

    def seconds(self, channels: int, side: int) -> float:
        """Return the time of one copy of a picture, measured on noise."""
        backbone = fold(self.backbone).to(self.device)
        images = torch.rand(batch_of(side), channels, side, side, device=self.device)
        with torch.no_grad():
            backbone(images)  # the first is slower
            began = time.perf_counter()
            for _ in range(PROBED):
                backbone(images).cpu()
        return (time.perf_counter() - began) / (PROBED * len(images))

    def _watch(self, place: int, passes: int, images: int) -> Progress:
        def watch(done: int, _: int) -> None:
            self.check()
            self.progress(place * images + done, passes * images)

        return watch


@dataclass(frozen=True)
class Moved:
    """Stored images, each moved by the inverse of an element of D4 when it is read."""

    images: Tensor
    element: int

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.images)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return some."""
        return move_back(scaled(self.images[rows]), EVERY, self.element)


def batch_of(side: int) -> int:
    """Return how many pictures of a side go through the network together."""
    return max(1, PIXELS // side**2)
