"""Files of networks by their format: written, compared before they are in place, read."""

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from invint.errors import ConfigError, InvintError
from invint.export.card import ModelCard
from invint.export.onnx import read_onnx, write_onnx
from invint.export.program import read_program, write_program
from invint.export.refusal import PICKLES
from invint.export.running import LoadedModel, Normalised
from invint.export.tracing import example_images
from invint.export.weights import read_weights, write_weights
from invint.files import replaceable

TOLERANCE = 1e-4  # of the largest logit, or of 1 where logits are smaller
FORMATS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
WRITERS: dict[str, Callable[[nn.Module, ModelCard, Path], None]] = {
    ".onnx": write_onnx,
    ".pt2": write_program,
    ".safetensors": write_weights,
}
READERS: dict[str, Callable[[Path], LoadedModel]] = {
    ".onnx": read_onnx,
    ".pt2": read_program,
    ".safetensors": read_weights,
}


def export_model(
    model: nn.Module, path: str | Path, card: ModelCard, *, format: str | None = None
) -> float:
    """Write a network to a file that carries its card, and return how far the file is off.

    ONNX and `torch.export` files hold the folded network with the normalisation inside and run
    without invint; safetensors holds weights, from which `load_model` rebuilds the network. The
    file is written under another name, read back, run on images and compared with the network, and
    takes its place only if the largest difference is within 1e-4 of the largest logit (or of 1).

    Args:
        model: The network, on any device and in any mode; it is left alone.
        path: Where the file goes; its suffix is that of the format.
        card: What the file is to say.
        format: `onnx`, `torch` or `safetensors`; by default what the suffix says.

    Example:
        >>> from invint import create_model
        >>> card = ModelCard(("cat", "dog"), (20, 20), 1, name="cnn-small")
        >>> model = create_model("cnn-small", num_classes=2, in_channels=1)
        >>> difference = export_model(model, "pets.safetensors", card)
    """
    path = Path(path)
    suffix = _suffix_of(path, format)
    path = replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        draft = Path(folder) / path.name
        WRITERS[suffix](model, card, draft)
        difference = _difference(READERS[suffix](draft), model, card)
        draft.replace(path)
    return difference


def load_model(path: str | Path) -> LoadedModel:
    """Read a network from an ONNX, `torch.export` or safetensors file.

    Pickles are refused, whatever their name: reading one runs the code inside.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if path.suffix in PICKLES:
        raise ConfigError(
            f"{path}: a pickle can run any code when it is read, so none is; "
            "export the network with export_model"
        )
    if path.suffix not in READERS:
        raise ConfigError(f"{path}: expected a file ending in {_listed(READERS)}")
    try:
        return READERS[path.suffix](path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error


def _suffix_of(path: Path, format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise ConfigError(f"export_model: no format {format!r}; there are {_listed(FORMATS)}")
    suffix = path.suffix if format is None else FORMATS[format]
    if suffix not in WRITERS or path.suffix != suffix:
        expected = _listed(WRITERS) if format is None else suffix
        raise ConfigError(f"export_model: expected a file ending in {expected}, got {path}")
    return suffix


def _difference(loaded: LoadedModel, model: nn.Module, card: ModelCard) -> float:
    """Return the largest difference of logits, or raise `ConfigError` if it is too large."""
    images = example_images(card, 3)
    reference = Normalised(copy.deepcopy(model).cpu().float().eval(), card)
    with torch.no_grad():
        expected = reference(images)
    if expected.shape != (3, len(card.class_names)):
        raise ConfigError(
            f"export_model: expected a logit for each of {len(card.class_names)} class names, "
            f"got logits of shape {tuple(expected.shape)} for 3 images"
        )
    actual = torch.cat([loaded(images[:1]), loaded(images[1:])])  # batches of two sizes
    difference: float = (actual - expected).abs().max().item()
    allowed = TOLERANCE * max(1.0, expected.abs().max().item())
    if not difference <= allowed:  # NaN must fail
        raise ConfigError(
            f"export_model: the exported logits are off by {difference:.2g}, more than "
            f"{allowed:.2g}; nothing was written"
        )
    return difference


def _listed(names: dict[str, Any]) -> str:
    return ", ".join(names)
