from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from invint import ConfigError, ShapeError, create_model
from invint.export import ModelCard, export_model, load_model
from invint.export.int8 import describe, facts_of, quantize_onnx, spread

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SPEC: dict[str, Any] = {"name": "sfcnn-small", "head": "monomials", "image_size": 16}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of three convolutions as ONNX."""
    torch.manual_seed(0)
    spec = SPEC | {"in_channels": 1, "num_classes": 3, "group": "C4"}
    model = create_model(**spec, widths=(4, 6, 8), n_fc=8)
    card = ModelCard.from_spec(
        spec | {"options": {"widths": (4, 6, 8), "n_fc": 8}}, mean=(0.4,), std=(0.2,)
    )
    path = tmp_path_factory.mktemp("int8") / "plain.onnx"
    export_model(model, path, card)
    return path


@pytest.mark.slow
@pytest.mark.unchecked
def test_int8_is_small_near_and_as_exact_under_quarter_turns(
    exported: Path, tmp_path: Path
) -> None:
    path, images = tmp_path / "int8.onnx", torch.rand(80, 1, 16, 16)
    loaded, plain = quantize_onnx(exported, path, images), load_model(exported)
    assert loaded.card == plain.card
    assert path.stat().st_size < 0.5 * exported.stat().st_size
    kinds = [each.data_type for each in onnx.load(path).graph.initializer]
    assert kinds.count(onnx.TensorProto.INT8) >= 3
    new = torch.rand(8, 1, 16, 16)
    expected, logits = plain(new), loaded(new)
    assert 0 < (logits - expected).norm() < 0.05 * expected.norm()
    for quarters in (1, 2, 3):
        turned = loaded(torch.rot90(new, quarters, dims=(2, 3)))
        torch.testing.assert_close(turned, logits, atol=1e-5, rtol=1e-5)
    assert facts_of(path) == {"calibration_images": 80}
    assert facts_of(exported) is None
    describe(path, {"error": 0.5})
    assert facts_of(path) == {"calibration_images": 80, "error": 0.5}
    assert load_model(path).card == plain.card


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("images", "kind", "message"),
    [
        (torch.rand(2, 1, 8, 8), ShapeError, "quantize_onnx: expected h=16, got h=8"),
        (torch.rand(0, 1, 16, 16), ConfigError, "quantize_onnx: expected images to find the"),
    ],
)
def test_images_must_be_those_of_the_network(
    images: Tensor, kind: type[Exception], message: str, exported: Path, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=message):
        quantize_onnx(exported, tmp_path / "int8.onnx", images)
    assert not list(tmp_path.iterdir())


def test_images_are_taken_evenly() -> None:
    assert spread(torch.arange(10), 4).tolist() == [0, 3, 6, 9]
    assert spread(torch.arange(3), 4).tolist() == [0, 1, 2]
