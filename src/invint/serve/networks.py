"""Networks to try: read from a run or a file, folded, timed."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from invint.errors import ConfigError
from invint.export import LoadedModel, ModelCard, Normalised, load_model
from invint.models.folding import fold

CHUNK = 24  # images computed at once, so that memory does not grow with what is asked
ANGLES = (120, 72, 36, 24, 12)  # how finely a circle is looked at, as speed allows
PATIENCE = 0.5  # seconds a look around the circle should take at most
AGREEMENT = 1e-3  # between a folded network and the one in the file, of the largest logit


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


def comfortable_angles(networks: Sequence[ServedNetwork]) -> int:
    """Return how many angles all networks together can look at in half a second."""
    deadline = time.monotonic() + 60
    spent = 0.0
    for network in networks:
        images = torch.zeros(CHUNK, network.card.in_channels, *network.card.image_size)
        network.probabilities(images[:2], deadline=deadline)  # the first call prepares
        start = time.monotonic()
        network.probabilities(images, deadline=deadline)
        spent += (time.monotonic() - start) / CHUNK
    return next((count for count in ANGLES if count * spent < PATIENCE), ANGLES[-1])


def _open_network(path: Path) -> ServedNetwork:
    file = path / "model.safetensors" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise ConfigError(f"{path}: no model.safetensors in this folder; is the run complete?")
    loaded = load_model(file)
    height, width = loaded.card.image_size
    if height != width or height % 2 or loaded.card.in_channels not in (1, 3):
        raise ConfigError(
            f"{path}: images are made square, of an even side and 1 or 3 channels, but this "
            f"network takes {loaded.card.in_channels} x {height} x {width}"
        )
    run = folded(file, loaded) if file.suffix == ".safetensors" else loaded
    return ServedNetwork(_title(path, loaded.card), loaded.card, run)


def folded(path: Path, loaded: LoadedModel) -> Callable[[Tensor], Tensor]:
    """Return a safetensors network in its inference form, or as read where the two disagree.

    Args:
        path: The file.
        loaded: What `load_model` made of it.
    """
    with torch.random.fork_rng(devices=[]):  # weights are drawn and thrown away
        network = loaded.card.build()
    network.load_state_dict(load_file(path))
    fast = Normalised(fold(network), loaded.card).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    card = loaded.card
    images = torch.rand(2, card.in_channels, *card.image_size, generator=generator)
    expected = loaded(images).float()
    with torch.no_grad():
        difference = (fast(images) - expected).abs().max().item()
    agree = difference <= AGREEMENT * max(1.0, expected.abs().max().item())
    return fast if agree else loaded


def _title(path: Path, card: ModelCard) -> str:
    """Return the name of the recipe, of the network and its head, or of the file."""
    recipe = path / "recipe.json"
    if path.is_dir() and recipe.is_file():
        try:
            return str(json.loads(recipe.read_text())["name"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{recipe}: not a recipe of a run ({error!r})") from error
    return card.title or path.stem
