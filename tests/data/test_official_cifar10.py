import os
from pathlib import Path

import numpy as np
import pytest
import torch

from invint.data.official import CIFAR10_FOLDER, CIFAR10_NAMES, load_cifar10
from invint.data.registry import check_files, load_dataset
from invint.errors import DataError

FILES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]


def records(seed: int, count: int = 4) -> np.ndarray:
    """One label byte, then red, green and blue, each row by row."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3073), dtype=np.uint8)
    pixels[:, 0] = (seed + np.arange(count)) % 10
    return pixels


def write_cifar10(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(FILES):
        (folder / name).write_bytes(records(seed).tobytes())


@pytest.mark.parametrize("inside", ["", CIFAR10_FOLDER])
def test_records_are_a_label_and_three_planes(tmp_path: Path, inside: str) -> None:
    write_cifar10(tmp_path / inside)
    dataset = load_cifar10(tmp_path, per_file=4)
    assert (len(dataset.train), len(dataset.test)) == (20, 4)
    assert dataset.train.labels[8:12].tolist() == [2, 3, 4, 5]
    third = records(2)
    for channel, row, column in ((0, 0, 0), (1, 4, 30), (2, 31, 31)):
        expected = third[1, 1 + 1024 * channel + 32 * row + column]
        assert dataset.train.images[9, channel, row, column] == expected
    assert dataset.class_names == CIFAR10_NAMES


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected 12,292 bytes, got 0"),
        (records(0).tobytes()[:-1], "got 12,291"),
        (records(0).tobytes() + b"0", "got 12,293"),
        (bytes([10]) + records(0).tobytes()[1:], "expected labels from 0 to 9, got 1 to 10"),
    ],
)
def test_a_lying_file_gets_one_line_with_its_name(
    tmp_path: Path, content: bytes, message: str
) -> None:
    write_cifar10(tmp_path)
    (tmp_path / FILES[2]).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_cifar10(tmp_path, per_file=4)
    assert str(tmp_path / FILES[2]) in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("INVINT_DATA", ""), "cifar10").is_dir(),
    reason="no CIFAR-10 in INVINT_DATA",
)
def test_the_real_files_are_read() -> None:
    assert all(check_files("cifar10").values())
    dataset = load_dataset("cifar10")
    assert torch.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
    assert [CIFAR10_NAMES[label] for label in dataset.train.labels[:3].tolist()] == [
        "frog", "truck", "truck",
    ]  # fmt: skip
    assert dataset.fingerprint == "088db17c50ddf8b6"
