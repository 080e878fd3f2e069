"""What there is to try: networks read from runs or files, folded and timed, and samples."""

import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from invint.data.official import small_digits
from invint.errors import ConfigError
from invint.export import LoadedModel, ModelCard, load_model, load_network
from invint.export.files import example_images, exportable
from invint.predict import model_file
from invint.train.store import RunStore

CHUNK = 24  # images computed at once, so that memory does not grow with what is asked
ANGLES = (120, 72, 36, 24, 12)  # how finely the circle is divided, as speed allows
CIRCLE_SECONDS = 0.5  # that all angles together should take at most
AGREEMENT = 1e-3  # between a folded network and the one in the file, of the largest logit
SAMPLE_SIDE, SAMPLE_MARGIN = 160, 16  # as much margin as the digits have that networks learn from


@dataclass(frozen=True)
class ServedNetwork:
    """A network behind the page.

    Attributes:
        title: What people call it.
        card: What its file says about it.
        run: Takes images between 0 and 1 to logits.
    """

    title: str
    card: ModelCard
    run: Callable[[Tensor], Tensor]

    def probabilities(
        self, images: Float[Tensor, "b c h w"], *, deadline: float
    ) -> Float[Tensor, "b classes"]:
        """Return the probability of each class, or raise `TimeoutError` after the deadline."""
        parts = []
        for chunk in torch.split(images, CHUNK):
            if time.monotonic() > deadline:
                raise TimeoutError
            with torch.no_grad():
                parts.append(self.run(chunk).float().softmax(dim=1))
        return torch.cat(parts)


def open_networks(paths: Sequence[Path]) -> list[ServedNetwork]:
    """Read the network of each run folder or file; they must know the same classes."""
    networks = [_open_network(path) for path in paths]
    first = networks[0].card.class_names
    for network in networks[1:]:
        if network.card.class_names != first:
            raise ConfigError(
                f"serve: {network.title} has other classes than {networks[0].title}; "
                "compare networks of the same data set"
            )
    if len({each.title for each in networks}) < len(networks):
        return [
            replace(each, title=f"{each.title} ({path.name})")
            for each, path in zip(networks, paths, strict=True)
        ]
    return networks


def default_angles(networks: Sequence[ServedNetwork]) -> int:
    """Return at how many angles all networks together can answer in half a second."""
    deadline = time.monotonic() + 60
    spent = 0.0
    for network in networks:
        images = torch.zeros(CHUNK, network.card.in_channels, *network.card.image_size)
        network.probabilities(images[:2], deadline=deadline)  # the first call prepares
        start = time.monotonic()
        network.probabilities(images, deadline=deadline)
        spent += (time.monotonic() - start) / CHUNK
    return next((count for count in ANGLES if count * spent < CIRCLE_SECONDS), ANGLES[-1])


def _open_network(path: Path) -> ServedNetwork:
    file = model_file(path)
    loaded = load_model(file)
    height, width = loaded.card.image_size
    if height != width or height % 2 or loaded.card.in_channels not in (1, 3):
        raise ConfigError(
            f"{path}: images are made square, of an even side and 1 or 3 channels, but this "
            f"network takes {loaded.card.in_channels} x {height} x {width}"
        )
    run = _folded(file, loaded) if file.suffix == ".safetensors" else loaded
    title = RunStore(path).recipe_name or loaded.card.title or path.stem
    return ServedNetwork(title, loaded.card, run)


def _folded(path: Path, loaded: LoadedModel) -> Callable[[Tensor], Tensor]:
    """Return a safetensors network in its inference form, or as read where the two disagree."""
    network, card = load_network(path)
    fast = exportable(network.float(), card)
    images = example_images(card, 2)
    expected = loaded(images).float()
    with torch.no_grad():
        difference = (fast(images) - expected).abs().max().item()
    agree = difference <= AGREEMENT * max(1.0, expected.abs().max().item())
    return fast if agree else loaded


@cache
def sample_images() -> dict[str, bytes]:
    """Return one digit of each kind as a PNG file, by the name of the sample."""
    digits, labels = small_digits()
    inner = SAMPLE_SIDE - 2 * SAMPLE_MARGIN
    samples = {}
    for label in range(10):
        images = digits[labels == label].numpy()
        distances = ((images - images.mean(axis=0)) ** 2).sum(axis=(1, 2))
        typical = images[distances.argmin()]  # nearest to the mean of its kind
        small = Image.fromarray((typical * 255 / 16).round().astype(np.uint8))
        large = Image.new("L", (SAMPLE_SIDE, SAMPLE_SIDE))
        large.paste(
            small.resize((inner, inner), Image.Resampling.BICUBIC), (SAMPLE_MARGIN, SAMPLE_MARGIN)
        )
        file = io.BytesIO()
        large.save(file, format="PNG", optimize=True)
        samples[f"digit-{label}"] = file.getvalue()
    return samples
