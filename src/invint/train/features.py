"""Features of images by a network that is not trained: computed once, kept in files.

A head or a classifier of a frozen backbone needs no more than these, and trains in seconds. A file
belongs to the images, the weights, the group and what is kept: other images, other file. It grows
batch by batch; whoever is killed goes on where the last whole batch ended.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from invint.data.batches import scaled
from invint.data.dataset import ROWS, Progress, Split
from invint.errors import ConfigError, DataError
from invint.files import locked, write_atomically
from invint.groups import Group
from invint.models.fold import fold
from invint.models.networks import Network
from invint.nn import OrbitFeatures

FORMAT = 1
PIXELS = 2**17  # of copies at a time on a CPU: larger maps take longer to allocate than to compute
Kept = Literal["mean", "turns", "maps"]
KEPT: tuple[Kept, ...] = ("mean", "turns", "maps")


@runtime_checkable
class Images(Protocol):
    """Stored images that can be sliced: a tensor, or whatever decodes pictures as it is asked."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, rows: slice, /) -> Tensor:
        """Return some, `(b, c, h, w)`, of uint8, uint16 or float in [0, 1]."""


@dataclass(frozen=True)
class About:
    """What a file of features is of; another of these, another file.

    Attributes:
        images: Fingerprint of the images.
        count: Their number.
        weights: Fingerprint of the backbone.
        shape: Channels, height and width of the images.
        group: The symmetries.
        keep: What is kept of each image.
        format: Version of all this.
    """

    images: str
    count: int
    weights: str
    shape: tuple[int, ...]
    group: str
    keep: Kept
    format: int = FORMAT

    @property
    def name(self) -> str:
        """Name of the file, without its suffix."""
        return "features-" + _digest(json.dumps(asdict(self)).encode())


def orbit_features(  # noqa: PLR0913
    backbone: nn.Module,
    images: Split | Images,
    group: Group | None = None,
    *,
    keep: Kept = "mean",
    folder: Path | None = None,
    fingerprint: str | None = None,
    batch_size: int = 32,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> Tensor:
    """Return the features of images by a frozen backbone, over all elements of a group.

    Args:
        backbone: Takes images in [0, 1] to maps or features: a `Network`, whose features are
            meant, an `OrbitFeatures`, or any module that such a one takes. It is used in
            evaluation mode and folded; itself it is left alone.
        images: As they are stored.
        group: The symmetries; only for a backbone that is not an orbit already.
        keep: `mean` over positions and elements, `(n, k)`: what `Orbit` returns by default;
            `turns`, the mean over positions for each element, `(n, k, g)`; or `maps`, all of
            `(n, k, g, h, w)`, for heads that integrate them.
        folder: Where files are kept; without one nothing is.
        fingerprint: Of the images, where it is known; otherwise all their bytes are hashed.
        batch_size: Images between one writing and the next; on a GPU, at a time.
        device: Where the backbone runs.
        progress: Called after each batch with the number of images done and of all.

    Returns:
        Float32 on the CPU; from a folder mapped, not read.
    """
    stored: Images = images.images if isinstance(images, Split) else images
    orbit = _orbit(backbone, group)
    if keep not in KEPT or batch_size < 1 or not len(stored):
        raise ConfigError(
            f"orbit_features: expected keep of {', '.join(KEPT)}, a batch_size of at least 1 and "
            f"an image, got {keep!r}, {batch_size} and {len(stored)} images"
        )
    work = _Work(orbit, stored, keep, batch_size, torch.device(device), progress)
    if folder is None:
        return torch.cat(list(work.batches(0)))
    about = About(
        images=fingerprint or images_fingerprint(stored),
        count=len(stored),
        weights=weights_fingerprint(orbit.backbone),
        shape=tuple(stored[0:1].shape[1:]),
        group=str(orbit.group),
        keep=keep,
    )
    try:
        return _kept(work, about, folder)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot keep features ({(error.strerror or str(error)).lower()}); "
            "make room there or choose another folder"
        ) from error


def images_fingerprint(images: Images) -> str:
    """Return a hash of stored images, their shape and their type."""
    digest = hashlib.sha256(str((len(images), images[0:1].shape, images[0:1].dtype)).encode())
    for start in range(0, len(images), ROWS):
        digest.update(images[start : start + ROWS].contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def weights_fingerprint(backbone: nn.Module) -> str:
    """Return a hash of what a network is, printed, and of all it has learnt."""
    digest = hashlib.sha256(repr(backbone).encode())
    for name, value in backbone.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _orbit(backbone: nn.Module, group: Group | None) -> OrbitFeatures:
    """Return the orbit that is meant."""
    inner = backbone.features if isinstance(backbone, Network) else backbone
    if isinstance(inner, OrbitFeatures):
        if group is None or group == inner.group:
            return inner
        inner = inner.backbone
    if group is None:
        raise ConfigError("orbit_features: the backbone is no orbit; give a group, as Cyclic(4)")
    return OrbitFeatures(inner, group)


@dataclass(frozen=True)
class _Work:
    """What is to be computed."""

    orbit: OrbitFeatures
    images: Images
    keep: Kept
    batch_size: int
    device: torch.device
    progress: Progress | None

    def batches(self, done: int) -> Iterator[Tensor]:
        """Yield the features of one batch after another, from an image on."""
        orbit, count = fold(self.orbit).to(self.device), len(self.images)
        for start in range(done, count, self.batch_size):
            yield self._features(orbit, self.images[start : start + self.batch_size])
            if self.progress is not None:
                self.progress(min(start + self.batch_size, count), count)

    @torch.no_grad()
    def _features(self, orbit: nn.Module, stored: Tensor) -> Tensor:
        values = stored.float() if stored.is_floating_point() else scaled(stored)
        pixels = values[0, 0].numel() * self.orbit.group.order
        together = max(PIXELS // pixels, 1) if self.device.type == "cpu" else len(values)
        parts = (orbit(part.to(self.device)).float() for part in torch.split(values, together))
        axes = {"mean": (2, 3, 4), "turns": (3, 4)}
        if self.keep not in axes:
            return torch.cat([maps.cpu() for maps in parts])
        return torch.cat([maps.mean(dim=axes[self.keep]).cpu() for maps in parts])


def _kept(work: _Work, about: About, folder: Path) -> Tensor:
    """Return the features from the file, after adding to it those that are missing."""
    path = folder / f"{about.name}.npy"
    done = _rows_done(path, about)
    if done < about.count:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(path.with_suffix(".lock")):
            _extend(work, about, path)
    elif work.progress is not None:
        work.progress(done, about.count)
    return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def _extend(work: _Work, about: About, path: Path) -> None:
    """Compute what is missing: rows first, and when they are on the disk their number."""
    done, rows = _rows_done(path, about), None  # another process may have been quicker
    for some in work.batches(done) if done < about.count else ():
        if rows is None:
            rows = _opened(path, (about.count, *some.shape[1:]), begun=done > 0)
        rows[done : done + len(some)] = some.numpy()
        rows.flush()
        done += len(some)
        write_atomically(_note(path), json.dumps({"rows": done, **asdict(about)}))


def _opened(path: Path, shape: tuple[int, ...], *, begun: bool) -> "np.memmap[Any, Any]":
    if begun:
        return np.lib.format.open_memmap(path, mode="r+")
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


def _rows_done(path: Path, about: About) -> int:
    """Return how many rows of a file are there; none if it is not there, damaged or of others."""
    try:
        note = json.loads(_note(path).read_bytes())
        shape = np.load(path, mmap_mode="r", allow_pickle=False).shape
        expected = json.loads(json.dumps(asdict(about)))
        whole = {key: note.get(key) for key in expected} == expected and shape[0] == about.count
        return int(note["rows"]) if whole else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
