"""Cards say only what a network can be built from."""

import json
import math
from typing import Any

import pytest

from invint import ConfigError
from invint.export import ModelCard

CARD: dict[str, Any] = {
    "format_version": 1,
    "class_names": ["a", "b"],
    "image_size": [20, 20],
    "in_channels": 1,
    "mean": [0.5],
    "std": [1.0],
}


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"class_names": [1, 2]}, r"class_names must be texts, got \(1, 2\)"),
        ({"image_size": ["20", "20"]}, "image_size must be height and width in pixels, got"),
        ({"image_size": [20]}, "image_size must be height and width in pixels, and there must be"),
        ({"image_size": [20, -20]}, r"a channel, got \(20, -20\) and 1"),
        ({"in_channels": 0}, r"a channel, got \(20, 20\) and 0"),
        ({"in_channels": None}, r"in_channels must be a number, got \(None,\)"),
        ({"mean": ["0.5"]}, r"mean must be numbers, got \('0.5',\)"),
        ({"mean": [math.inf]}, r"mean must be finite, got \(inf,\)"),
        ({"std": [None]}, r"std must be numbers, got \(None,\)"),
        ({"std": [math.nan]}, r"std must be positive, got .* and \(nan,\)"),
        ({"group": 4}, r"group, name and head must be texts, got \(4, None, None\)"),
        ({"name": ["sfcnn"]}, "group, name and head must be texts, got"),
        ({"options": [1]}, r"options must be names with values, got \(\[1\],\)"),
    ],
)
def test_what_is_of_another_type_is_named(values: dict[str, Any], message: str) -> None:
    assert ModelCard.from_json(json.dumps(CARD)).in_channels == 1
    with pytest.raises(ConfigError, match=f"ModelCard: .*{message}"):
        ModelCard.from_json(json.dumps(CARD | values))
