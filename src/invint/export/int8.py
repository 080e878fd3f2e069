"""Exported networks with their convolutions in int8, by the quantisation of ONNX Runtime."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from invint.errors import ConfigError, check_axes, require_extra
from invint.export.card import KEY
from invint.export.files import LoadedModel, quiet, read_onnx

CALIBRATION = 512  # images from which the steps are found
BATCH = 64
INT8 = f"{KEY}-int8"  # under which a file says how it was quantised


def quantize_onnx(source: Path, path: Path, images: Float[Tensor, "b c h w"]) -> LoadedModel:
    """Write an exported network again with int8 convolutions, and return it.

    Weights have a step for each output channel, symmetric about 0; activations have one step for
    a whole map, from the extremes that `images` give. So a pixel is rounded as it would be
    anywhere else, and turned copies of a filter are rounded to turned copies: under quarter turns
    the network stays as exact as it was. Heads and linear layers stay in float32. Weights use 7 of
    the 8 bits, because processors without VNNI instructions would saturate at more.

    Args:
        source: What `export_model` wrote as ONNX.
        path: Where the new file goes.
        images: Like those it is to see, between 0 and 1; training images, never test images.
    """
    tools = require_extra("onnxruntime.quantization", "quantize_onnx", "onnx")
    card = read_onnx(source).card
    height, width = card.image_size
    check_axes(images, "b c h w", "quantize_onnx", c=card.in_channels, h=height, w=width)
    if not len(images):
        raise ConfigError("quantize_onnx: expected images to find the steps from, got none")
    kind = tools.QuantType
    with tempfile.TemporaryDirectory(prefix="invint-") as folder, quiet():
        plain = Path(folder) / "plain.onnx"
        tools.shape_inference.quant_pre_process(source, plain, skip_symbolic_shape=True)
        tools.quantize_static(
            plain,
            path,
            _reader(images),
            quant_format=tools.QuantFormat.QDQ,
            op_types_to_quantize=["Conv"],
            per_channel=True,
            reduce_range=True,
            activation_type=kind.QUInt8,
            weight_type=kind.QInt8,
        )
    describe(path, {"calibration_images": len(images)})
    return read_onnx(path)


def _reader(images: Tensor) -> Any:
    """Return what ONNX Runtime asks for images, batch by batch."""
    tools = require_extra("onnxruntime.quantization", "quantize_onnx", "onnx")

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc, name-defined]
        """Hands out batches until there are none left."""

        def __init__(self) -> None:
            self.batches: Iterator[Tensor] = iter(torch.split(images.float(), BATCH))

        def get_next(self) -> dict[str, np.ndarray[Any, Any]] | None:
            """Return the next batch by the name of the input."""
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch.numpy()}

    return Reader()


def describe(path: Path, facts: dict[str, Any]) -> None:
    """Say in a quantised file how it was made, and what was measured."""
    onnx = require_extra("onnx", "quantize_onnx", "onnx")
    model = onnx.load(path)
    said = {each.key: each.value for each in model.metadata_props}
    known = json.loads(said.get(INT8, "{}")) | facts
    kept = {KEY: said[KEY], INT8: json.dumps(known)}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, kept)
    onnx.save(model, path)


def facts_of(path: Path) -> dict[str, Any] | None:
    """Return what a file says about its quantisation; `None` if it is not quantised."""
    onnx = require_extra("onnx", "facts_of", "onnx")
    said = {each.key: each.value for each in onnx.load(path).metadata_props}
    return json.loads(said[INT8]) if INT8 in said else None


def spread(images: Tensor, count: int = CALIBRATION) -> Tensor:
    """Return up to `count` of some images, taken evenly from first to last."""
    chosen = torch.linspace(0, len(images) - 1, min(count, len(images))).round().long()
    return images[chosen]
