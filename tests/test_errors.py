import pytest
import torch

from invint import ShapeError
from invint.errors import brief, check_axes


def test_names_owner_axes_and_shape() -> None:
    with pytest.raises(
        ShapeError, match=r"^Layer: expected g=8, got g=4 \(axes: b c g; shape: \(1, 2, 4\)\)$"
    ):
        check_axes(torch.zeros(1, 2, 4), "b c g", "Layer", c=2, g=8)
    with pytest.raises(ShapeError, match=r"^Layer: expected 3 axes, got 2 \(axes: b c g; shape"):
        check_axes(torch.zeros(1, 2), "b c g", "Layer")


def test_says_how_to_make_a_float_tensor() -> None:
    with pytest.raises(ShapeError, match=r"Layer: expected a float tensor, got torch.uint8; conv"):
        check_axes(torch.zeros(1, 2, dtype=torch.uint8), "b c", "Layer")


def test_long_values_are_cut_in_messages() -> None:
    assert brief([1, "a"]) == "[1, 'a']"
    assert brief("a" * 300, most=5) == "'aaaa…"
