import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat, whosmat

from invint.data.matlab import list_variables, read_variable

ERRORS = (ValueError, EOFError, struct.error, zlib.error)
RANDOM = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "X": RANDOM.integers(0, 256, (32, 32, 3, 7), dtype=np.uint8),
    "y": RANDOM.integers(1, 11, (7, 1)).astype(np.uint8),
    "wide": RANDOM.integers(-(2**40), 2**40, (3, 5)),
    "fractions": RANDOM.random((2, 3, 4)),
    "single": RANDOM.random((4, 1)).astype(np.float32),
    "short": RANDOM.integers(-9, 9, (1, 3)).astype(np.int16),
    "one": np.array([[7]], dtype=np.uint8),
    "none": np.zeros((0, 3), dtype=np.uint8),
    "a_name_of_no_less_than_thirty_1": np.zeros((2, 2), dtype=np.int32),
}


@pytest.mark.parametrize("packed", [True, False])
def test_arrays_are_those_that_were_written(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "own.mat"
    savemat(path, ARRAYS, do_compression=packed)
    variables = list_variables(path)
    told = {name: (each.shape, each.kind) for name, each in variables.items()}
    assert told == {name: (shape, kind) for name, shape, kind in whosmat(path)}
    for name, expected in loadmat(path, variable_names=list(ARRAYS)).items():
        if name in ARRAYS:
            np.testing.assert_array_equal(read_variable(path, variables[name]), expected)
            np.testing.assert_array_equal(expected, ARRAYS[name])


def test_other_kinds_are_listed_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "own.mat"
    savemat(path, {"text": "hello", "cells": np.array([1, "a"], dtype=object), "s": {"a": 1}})
    variables = list_variables(path)
    assert {name: each.kind for name, each in variables.items()} == {
        "text": "char",
        "cells": "cell",
        "s": "struct",
    }
    with pytest.raises(ERRORS):
        read_variable(path, variables["cells"])


@pytest.mark.parametrize("packed", [True, False])
def test_damage_raises_what_is_promised_and_nothing_else(tmp_path: Path, packed: bool) -> None:
    """With SciPy some of these end the process."""
    path = tmp_path / "own.mat"
    savemat(path, {name: ARRAYS[name] for name in ("y", "short")}, do_compression=packed)
    content, refused = path.read_bytes(), 0
    for seed in range(300):
        draw = random.Random(seed)
        place = draw.randrange(126, len(content))
        new = draw.choice([b"\xff" * 8, bytes(8), draw.randbytes(4), b""])
        path.write_bytes(content[:place] + new + content[place + draw.randrange(9) :])
        try:
            for variable in list_variables(path).values():
                read_variable(path, variable)
        except ERRORS:
            refused += 1
    assert refused > 200


def test_a_file_is_not_unpacked_beyond_what_it_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "own.mat"
    savemat(path, {"X": np.zeros((1000, 1000), dtype=np.uint8)})
    content = path.read_bytes()
    size, lie = struct.pack("<2I", 2, 10**6), struct.pack("<2I", 2, 2**32 - 1)
    assert content.count(size) == 1
    path.write_bytes(content.replace(size, lie))
    variable = list_variables(path)["X"]
    with pytest.raises(ValueError, match=r"an element of 4,294,967,295 bytes, where at most"):
        read_variable(path, variable)
