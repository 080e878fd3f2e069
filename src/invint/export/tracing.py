"""What both exporters that trace a network need: the folded network, images, quiet."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from invint.export.card import ModelCard
from invint.export.running import Normalised
from invint.models.folding import fold


def exportable(model: nn.Module, card: ModelCard) -> Normalised:
    """Return the folded network with the normalisation inside, ready to be traced."""
    network = Normalised(fold(model).cpu().float(), card).eval()
    return network.requires_grad_(False)


def example_images(card: ModelCard, count: int) -> Tensor:
    """Return random images as the network takes them, always the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, card.in_channels, *card.image_size, generator=generator)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what the exporters say about themselves."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it names the libraries it could do with
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
