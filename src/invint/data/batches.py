"""Batches and their augmentation, as a function of a seed and a step, made on the device.

Images stay as they are stored until a batch is made of them. What is random is drawn on the CPU
for a block of steps at once and sent over once, so that a device never waits for a step.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from invint.data.dataset import Split, random_words
from invint.errors import ConfigError
from invint.ops.grids import rotate

Batch = tuple[Tensor, Tensor]

BLOCK = 64  # steps drawn at once
AHEAD = 4  # batches a streaming thread reads before they are asked for
TOGETHER = 2**26  # bytes of batches made at once on a GPU
CHUNK = 2**22  # pixels worked on at once by `normalisation`


def crop(
    images: Float[Tensor, "b c h w"],
    offsets: Int64[Tensor, "b 2"],
    padding: int | None = None,
) -> Float[Tensor, "b c h w"]:
    """Cut a window of the same size out of each image after padding it with zeros.

    Args:
        images: The batch.
        offsets: First row and column of the window in the padded image, 0 to twice the padding.
        padding: Pixels added on each side; an eighth of the image by default (4 of 32, 12 of 96).
    """
    count, channels, height, width = images.shape
    padding = padding_of(height, width) if padding is None else padding
    padded = pad(images, (padding,) * 4)
    rows = offsets[:, :1] + torch.arange(height, device=images.device)
    columns = offsets[:, 1:] + torch.arange(width, device=images.device)
    return padded[
        torch.arange(count, device=images.device)[:, None, None, None],
        torch.arange(channels, device=images.device)[:, None, None],
        rearrange(rows, "b h -> b 1 h 1"),
        rearrange(columns, "b w -> b 1 1 w"),
    ]


def flip(images: Float[Tensor, "b c h w"], mask: Bool[Tensor, " b"]) -> Float[Tensor, "b c h w"]:
    """Mirror the images where the mask is true, left to right."""
    return torch.where(rearrange(mask, "b -> b 1 1 1"), images.flip(-1), images)


def cutout(
    images: Float[Tensor, "b c h w"], centres: Int64[Tensor, "b 2"], side: int | None = None
) -> Float[Tensor, "b c h w"]:
    """Put a square of zeros into each image; the part of it that lies outside is lost.

    Args:
        images: The batch.
        centres: Row and column of the centre; for an even side, the pixel below and right of it.
        side: Of the square, in pixels; a third of the image by default (32 of 96).
    """
    height, width = images.shape[-2:]
    side = hole_of(height, width) if side is None else side
    rows = torch.arange(height, device=images.device) - (centres[:, :1] - side // 2)
    columns = torch.arange(width, device=images.device) - (centres[:, 1:] - side // 2)
    inside_rows = rearrange((rows >= 0) & (rows < side), "b h -> b 1 h 1")
    inside_columns = rearrange((columns >= 0) & (columns < side), "b w -> b 1 1 w")
    return images.masked_fill(inside_rows & inside_columns, 0)


def padding_of(height: int, width: int) -> int:
    """Return the default padding of `crop`: an eighth of the shorter side, rounded."""
    return (min(height, width) + 4) // 8


def hole_of(height: int, width: int) -> int:
    """Return the default side of `cutout`: a third of the shorter side, rounded, at least 1."""
    return max(round(min(height, width) / 3), 1)


@dataclass(frozen=True)
class Augmentation:
    """A way to augment, as batches need it.

    Attributes:
        numbers: How many random numbers an image takes.
        parameters: Makes parameters of uniform numbers `(..., numbers)` in [0, 1), for images of
            a height and width.
        apply: Takes images and parameters.
    """

    numbers: int
    parameters: Callable[[Tensor, int, int], Tensor]
    apply: Callable[[Tensor, Tensor], Tensor]


AUGMENTATIONS = {
    "rotate": Augmentation(1, lambda u, _h, _w: (2 * math.pi * u[..., 0]).float(), rotate),
    "crop": Augmentation(2, lambda u, h, w: (u * (2 * padding_of(h, w) + 1)).long(), crop),
    "flip": Augmentation(1, lambda u, _h, _w: u[..., 0] < 0.5, flip),
    "cutout": Augmentation(2, lambda u, h, w: (u * torch.tensor([h, w])).long(), cutout),
}


@dataclass(frozen=True)
class Draws:
    """What is random in a block of steps.

    Attributes:
        indices: `(step, b)`, which images, on the CPU.
        positions: The same on the device.
        parameters: For each augmentation `(step, b, ...)`, on the device.
    """

    indices: Tensor
    positions: Tensor
    parameters: tuple[Tensor, ...]


class Batches:
    """An endless stream of shuffled passes over images, cut into full batches.

    `batches(range(a, b))` iterates over the batches of steps a to b - 1: normalised float32 images
    `(b, c, h, w)` and labels, on the device. The batch at a step depends on the seed and the step
    alone, wherever iteration starts. A batch may reach into the next pass, and over several when
    it is larger than the set.

    Images lie on the device as they are stored if they fit, and are read batch by batch ahead of
    time otherwise; the batches are the same, bit for bit.

    Args:
        split: Images and labels.
        batch_size: Images per step, over all processes.
        seed: Another seed, another stream.
        augment: Names in `AUGMENTATIONS`, in the order of application.
        mean: Of each channel, for images in [0, 1].
        std: Standard deviation of each channel.
        device: Where batches are made.
        rank: Index of this process; it gets its share of each batch.
        world: Number of processes.
        memory: Bytes on the device that images may take; by default half of what is free on
            CUDA, and no limit elsewhere.
        chosen: Indices of the images to use, all by default; no image is copied for it on a CPU.
    """

    def __init__(  # noqa: PLR0913
        self,
        split: Split,
        *,
        batch_size: int,
        seed: int,
        augment: Sequence[str] = (),
        mean: Sequence[float],
        std: Sequence[float],
        device: str | torch.device = "cpu",
        rank: int = 0,
        world: int = 1,
        memory: int | None = None,
        chosen: Int64[Tensor, " m"] | None = None,
    ) -> None:
        self.count = len(split) if chosen is None else len(chosen)
        _check(batch_size, augment, rank, world, self.count)
        self.batch_size, self.seed, self.augment = batch_size, seed, tuple(augment)
        self.rank, self.world = rank, world
        self.device = torch.device(device)
        self.mean, self.std = _channels(split, mean, std, self.device)
        self.labels = (split.labels if chosen is None else split.labels[chosen]).to(self.device)
        self.image_size = split.images.shape[-2], split.images.shape[-1]
        self.chosen, self.stored = chosen, _signed(split.images)
        if memory is None and self.device.type == "cuda":
            memory = torch.cuda.mem_get_info(self.device)[0] // 2
        self.streamed = memory is not None and self.count * split.images[:1].nbytes > memory
        if not self.streamed and self.device.type != "cpu":
            kept = self.stored if chosen is None else self.stored[chosen]
            self.stored = kept.to(self.device)
        self.together = _together(split, batch_size // world, self.device)
        self._draws: dict[int, Draws] = {}

    def __call__(self, steps: range) -> Iterator[Batch]:
        """Iterate over the batches of these steps, in rising order."""
        share = self.batch_size // self.world
        stored = (
            self._read_ahead(steps) if self.streamed else map(self._gathered, self._runs(steps))
        )
        for run, images in zip(self._runs(steps), stored, strict=True):
            finished, labels = self._finished(run, images)
            yield from zip(torch.split(finished, share), torch.split(labels, share), strict=True)

    def indices(self, step: int) -> Int64[Tensor, " b"]:
        """Return the indices of the images in the batch of a step, within the whole split."""
        return self._indices(range(step, step + 1))

    def _runs(self, steps: range) -> Iterator[range]:
        """Cut steps into those whose batches are made together; no run reaches over a block."""
        for _, run in groupby(steps, key=lambda step: step // self.together):
            first, *more = run
            yield range(first, (more[-1] if more else first) + 1, steps.step)

    def _indices(self, run: range) -> Tensor:
        positions = _of_run(self._drawn(run.start // BLOCK).indices, run)
        return positions if self.chosen is None else self.chosen[positions]

    def _finished(self, run: range, stored: Tensor) -> Batch:
        draws = self._drawn(run.start // BLOCK)
        images = scaled(stored)
        for name, parameters in zip(self.augment, draws.parameters, strict=True):
            images = AUGMENTATIONS[name].apply(images, _of_run(parameters, run))
        labels = self.labels.index_select(0, _of_run(draws.positions, run))
        return (images - self.mean) / self.std, labels

    def _gathered(self, run: range) -> Tensor:
        if self.device.type == "cpu":
            return self.stored.index_select(0, self._indices(run))
        positions = self._drawn(run.start // BLOCK).positions
        return self.stored.index_select(0, _of_run(positions, run))

    def _read_ahead(self, steps: range) -> Iterator[Tensor]:
        """Read images in a thread while earlier ones are worked on."""
        indices = map(self._indices, self._runs(steps))
        with ThreadPoolExecutor(1) as reader:
            pending = deque(reader.submit(self._read, each) for each in islice(indices, AHEAD))
            while pending:
                images = pending.popleft().result()
                pending.extend(reader.submit(self._read, each) for each in islice(indices, 1))
                yield images.to(self.device, non_blocking=True)

    def _read(self, indices: Tensor) -> Tensor:
        shape = (len(indices), *self.stored.shape[1:])
        place = torch.empty(shape, dtype=self.stored.dtype, pin_memory=self.device.type == "cuda")
        return torch.index_select(self.stored, 0, indices, out=place)

    def _drawn(self, block: int) -> Draws:
        if block not in self._draws:
            if len(self._draws) > 1:  # two, because reading ahead looks into the next block
                del self._draws[next(iter(self._draws))]
            self._draws[block] = self._draw(block)
        return self._draws[block]

    def _draw(self, block: int) -> Draws:
        share = self.batch_size // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        indices = _positions(self.count, self.seed, block, self.batch_size)[:, mine]
        drawn = [
            _parameters(name, self.seed, block, self.batch_size, self.image_size)[:, mine]
            for name in self.augment
        ]
        on_device, *parameters = (_sent(each, self.device) for each in (indices, *drawn))
        return Draws(indices, on_device, tuple(parameters))


def _of_run(drawn: Tensor, run: range) -> Tensor:
    """Return what was drawn for some steps of a block, one image after another."""
    start = run.start % BLOCK
    return drawn[start : start + len(run) * run.step : run.step].flatten(0, 1)


def _together(split: Split, share: int, device: torch.device) -> int:
    """Return how many batches are made at once: where launching costs more than working, several.

    A power of two, so that it divides a block. What it is changes no batch.
    """
    if device.type == "cpu":
        return 1
    batch = 4 * share * split.images[0].numel()
    return next((count for count in (16, 8, 4, 2) if count * batch <= TOGETHER), 1)


def _positions(count: int, seed: int, block: int, batch_size: int) -> Tensor:
    """Return the images of each step in a block: a piece of the endless stream of passes."""
    start, length = block * BLOCK * batch_size, BLOCK * batch_size
    first, last = start // count, (start + length - 1) // count
    passes = np.concatenate([_permutation(count, seed, each) for each in range(first, last + 1)])
    piece = torch.from_numpy(passes[start - first * count :][:length])
    return rearrange(piece, "(step b) -> step b", b=batch_size)


@lru_cache(maxsize=4)
def _permutation(count: int, seed: int, index: int) -> NDArray[np.int64]:
    return np.argsort(random_words(count, "pass", seed, index), kind="stable")


def _parameters(
    name: str, seed: int, block: int, batch_size: int, image_size: tuple[int, int]
) -> Tensor:
    """Draw the parameters of one augmentation; those of others do not change them."""
    way = AUGMENTATIONS[name]
    words = random_words(BLOCK * batch_size * way.numbers, name, seed, block)
    uniform = torch.from_numpy((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    shaped = rearrange(uniform, "(step b n) -> step b n", b=batch_size, n=way.numbers)
    return way.parameters(shaped, *image_size)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type == "cuda":
        tensor = tensor.contiguous().pin_memory()
    return tensor.to(device, non_blocking=True)


def scaled(images: Tensor) -> Tensor:
    """Return stored images as float32 in [0, 1]: uint8 over 255, uint16 over 65535."""
    if images.dtype == torch.uint8:
        return images.float() / 255
    return (_signed(images).to(torch.int32) & 0xFFFF).float() / 65535


def _signed(images: Tensor) -> Tensor:
    """Read 16 bits as signed ones, which all devices can index."""
    return images.view(torch.int16) if images.dtype == torch.uint16 else images


def normalisation(
    split: Split, *, chosen: Int64[Tensor, " m"] | None = None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel of images in [0, 1].

    Sums are integers and so exact. A channel that never changes gets the deviation 1.

    Args:
        split: The images, perhaps more than fit in memory.
        chosen: Indices of the images to use, all by default.
    """
    indices = torch.arange(len(split)) if chosen is None else chosen
    channels, height, width = split.images.shape[1:]
    sums, squares = [0] * channels, [0] * channels
    for some in torch.split(indices, max(CHUNK // split.images[0].numel(), 1)):
        values = _signed(split.images).index_select(0, some).long() & 0xFFFF
        for channel in range(channels):
            sums[channel] += int(values[:, channel].sum())
            squares[channel] += int(values[:, channel].square().sum())
    count = len(indices) * height * width
    full = 255 if split.images.dtype == torch.uint8 else 65535
    means = tuple(each / count / full for each in sums)
    spreads = [count * square - each**2 for each, square in zip(sums, squares, strict=True)]
    return means, tuple(math.sqrt(each) / count / full if each else 1.0 for each in spreads)


def test_batches(
    split: Split,
    *,
    batch_size: int,
    mean: Sequence[float],
    std: Sequence[float],
    device: str | torch.device = "cpu",  # noqa: PT028
    chosen: Int64[Tensor, " m"] | None = None,  # noqa: PT028
) -> Iterator[Batch]:
    """Iterate once over images in order, as they are; the last batch may be short.

    Args:
        split: Images and labels.
        batch_size: Images per batch.
        mean: Of each channel, for images in [0, 1].
        std: Standard deviation of each channel.
        device: Where batches are made.
        chosen: Indices of the images to use, in this order; all by default.
    """
    place = torch.device(device)
    means, deviations = _channels(split, mean, std, place)
    stored = _signed(split.images)
    for some in torch.split(torch.arange(len(split)) if chosen is None else chosen, batch_size):
        images = scaled(stored.index_select(0, some).to(place))
        yield (images - means) / deviations, split.labels[some].to(place)


def _channels(
    split: Split, mean: Sequence[float], std: Sequence[float], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return mean and deviation ready to work on `(b, c, h, w)`."""
    channels = split.images.shape[1]
    if len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise ConfigError(
            f"batches: expected mean and positive std of {channels} channels, "
            f"got mean {tuple(mean)} and std {tuple(std)}; use normalisation(split)"
        )
    values = torch.tensor([[*mean], [*std]], device=device)
    means, deviations = rearrange(values, "kind c -> kind c 1 1")
    return means, deviations


def _check(batch_size: int, augment: Sequence[str], rank: int, world: int, count: int) -> None:
    if count == 0:
        raise ConfigError("Batches: expected at least one image, got none")
    if batch_size < 1 or batch_size % world:
        raise ConfigError(
            f"Batches: expected a batch size divisible by {world} processes, got {batch_size}"
        )
    if not 0 <= rank < world:
        raise ConfigError(f"Batches: expected a rank from 0 to {world - 1}, got {rank}")
    unknown = [name for name in augment if name not in AUGMENTATIONS]
    if unknown:
        raise ConfigError(
            f"Batches: no augmentation {unknown[0]!r}; there are {', '.join(AUGMENTATIONS)}"
        )
