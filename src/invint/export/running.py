"""Networks that take images between 0 and 1: read from a file, or about to be written."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.axes import check_axes
from invint.errors import ShapeError
from invint.export.card import ModelCard


class LoadedModel:
    """A network read from a file.

    Args:
        card: What the file says about it.
        run: Takes images to logits.
        file: Name of the file.

    Shape:
        Images `(b, c, h, w)` as float between 0 and 1, of the card's size, to `(b, classes)`.
    """

    def __init__(
        self, card: ModelCard, run: Callable[[Tensor], Tensor], file: str = "network"
    ) -> None:
        self.card, self._run, self.file = card, run, file

    @property
    def name(self) -> str:
        """What people call the network: as its card does, else as its file."""
        return self.card.title or self.file

    def __call__(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        if not images.is_floating_point():
            raise ShapeError(
                f"LoadedModel: expected float images between 0 and 1, got {images.dtype}; "
                "divide by 255"
            )
        height, width = self.card.image_size
        sizes = {"c": self.card.in_channels, "h": height, "w": width}
        check_axes(images, "b c h w", "LoadedModel", **sizes)
        with torch.no_grad():
            return self._run(images)


class Normalised(nn.Module):
    """A network behind the normalisation of its images.

    Args:
        network: Takes normalised images to logits.
        card: Says mean and standard deviation.
    """

    image_mean: Tensor
    image_std: Tensor

    def __init__(self, network: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.network = network
        # not "mean": onnxscript 0.7 takes a buffer for the result of an operation of that name
        self.register_buffer("image_mean", torch.tensor(card.mean).view(-1, 1, 1))
        self.register_buffer("image_std", torch.tensor(card.std).view(-1, 1, 1))

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Normalise images between 0 and 1, and return logits."""
        logits: Tensor = self.network((images - self.image_mean) / self.image_std)
        return logits
