"""What a network says of pictures, and what happens when it says nothing."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from invint import predict as module
from invint.errors import DataError
from invint.export import LoadedModel, ModelCard
from invint.predict import predict


def broken(images: Tensor) -> Tensor:
    """Answer pictures that are dark with what is no number."""
    light = images.mean(dim=(1, 2, 3))
    return torch.stack([light / light, light * 0], dim=1)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    card = ModelCard(("a", "b"), (8, 8), 1, name="cnn-small")
    monkeypatch.setattr(module, "load_model", lambda _: LoadedModel(card, broken))
    (tmp_path / "network.onnx").touch()
    paths = [tmp_path / "dark.png", tmp_path / "light.png"]
    for path, grey in zip(paths, (0, 255), strict=True):
        Image.new("L", (8, 8), grey).save(path)
    return paths


def test_an_answer_that_is_no_number_is_refused(pictures: list[Path]) -> None:
    with pytest.raises(DataError, match=r"dark\.png: the answer is no number"):
        list(predict(pictures[0].with_name("network.onnx"), pictures))


def test_or_left_out_where_bad_pictures_are(pictures: list[Path]) -> None:
    dark, light = predict(pictures[0].with_name("network.onnx"), pictures, skip_bad=True)
    assert dark.probabilities is None
    assert "no number" in dark.problem
    assert light.label == "a"
