import gzip
import math
import os
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor

from invint.data.official import (
    AMAT_STEM,
    load_mnist,
    load_rotated_mnist,
    regenerate_rotated_mnist,
    rotate_bytes,
)
from invint.data.registry import load_dataset
from invint.errors import DataError


def line(number: int) -> str:
    """Write pixel p as p / 1024 and the label as a float, as the official files have it."""
    return "   ".join(f"{p / 1024:.6f}" for p in range(784)) + f"   {float(number % 10):.6f}\n"


def write_amat(folder: Path, counts: tuple[int, int] = (12, 30)) -> None:
    for part, count in zip(("train_valid", "test"), counts, strict=True):
        (folder / f"{AMAT_STEM}_{part}.amat").write_text("".join(map(line, range(count))))


def write_mnist(folder: Path, counts: tuple[int, int] = (20, 10)) -> None:
    """Write random images, and the label i % 10, in the layout of MNIST."""
    for stem, count in zip(("train", "t10k"), counts, strict=True):
        pixels = torch.randint(0, 256, (count * 784,), dtype=torch.uint8).numpy().tobytes()
        images = struct.pack(">4i", 2051, count, 28, 28) + pixels
        labels = struct.pack(">2i", 2049, count) + bytes(i % 10 for i in range(count))
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def test_a_line_is_an_image_row_by_row_and_its_label(tmp_path: Path) -> None:
    write_amat(tmp_path)
    dataset = load_rotated_mnist(tmp_path, counts=(12, 30))
    assert dataset.test.labels.tolist() == [i % 10 for i in range(30)]
    for row, column in ((0, 0), (0, 27), (3, 5), (27, 27)):
        expected = round((28 * row + column) / 1024 * 256)
        assert dataset.train.images[4, 0, row, column] == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected 12 lines, got 0"),
        (line(0) * 11, "expected 12 lines, got 11"),
        (line(0) * 13, "expected 12 lines, got 13"),
        (line(0) * 11 + "0.5 " * 784 + "\n", "expected 785 numbers a line .*row 12"),
        (
            line(0) * 11 + line(0).replace("0.000000", "zero", 1),
            "expected 785 numbers a line .*'zero'.*row 11",
        ),
        (line(0) * 11 + line(0).replace("0.000000", "7.000000", 1), r"pixel outside \[0, 1\]"),
        (line(0) * 11 + line(0).replace("0.000000", "nan", 1), r"pixel outside \[0, 1\]"),
        (line(0) * 11 + "0.5 " * 784 + "10.0\n", "a label that is not a digit"),
        (line(0) * 11 + "0.5 " * 784 + "1.5\n", "a label that is not a digit"),
        ("0" * 400_000, "expected 12 lines, got 400,000 bytes, far too many"),
        ("π" * 3, "expected 785 numbers a line"),
    ],
)
def test_a_damaged_text_file_gets_one_line_with_its_name(
    tmp_path: Path, content: str, message: str
) -> None:
    write_amat(tmp_path)
    path = tmp_path / f"{AMAT_STEM}_train_valid.amat"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load_rotated_mnist(tmp_path, counts=(12, 30))
    assert str(path) in str(caught.value)


def turned_by_loops(image: Tensor, angle: float) -> Tensor:
    """Look up each pixel where it was before the rotation, bilinearly, with zeros outside."""
    side = len(image)
    centre = (side - 1) / 2
    out = torch.zeros(side, side, dtype=torch.float64)
    for row in range(side):
        for column in range(side):
            x, y = column - centre, centre - row
            source_x = math.cos(angle) * x + math.sin(angle) * y
            source_y = -math.sin(angle) * x + math.cos(angle) * y
            r, c = centre - source_y, source_x + centre
            for i in (math.floor(r), math.floor(r) + 1):
                for j in (math.floor(c), math.floor(c) + 1):
                    if 0 <= i < side and 0 <= j < side:
                        out[row, column] += (1 - abs(r - i)) * (1 - abs(c - j)) * image[i, j]
    return out


def test_each_image_is_turned_by_its_own_angle() -> None:
    images = torch.randint(0, 256, (2, 1, 9, 9), dtype=torch.uint8)
    angles = torch.tensor([0.7, 4.0], dtype=torch.float64)
    turned = rotate_bytes(images, angles)
    for image, angle, result in zip(images, angles.tolist(), turned, strict=True):
        assert (turned_by_loops(image[0], angle) - result[0]).abs().max() < 0.5 + 1e-9


def test_a_quarter_turn_permutes_pixels() -> None:
    images = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8)
    turned = rotate_bytes(images, torch.tensor([math.pi / 2], dtype=torch.float64))
    assert torch.equal(turned, torch.rot90(images, 1, dims=(-2, -1)))


def test_regenerated_images_are_distinct_images_of_mnist_with_their_labels(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    mnist = load_mnist(tmp_path, counts=(20, 10))
    made = regenerate_rotated_mnist(tmp_path, counts=(12, 15), mnist_counts=(20, 10))
    assert made.note == "regenerated from MNIST"
    assert (len(made.train), len(made.test)) == (12, 15)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(30, generator=generator)[:27]
    angles = 2 * math.pi * torch.rand(27, generator=generator, dtype=torch.float64)
    images = torch.cat((mnist.train.images, mnist.test.images))
    labels = torch.cat((mnist.train.labels, mnist.test.labels))
    assert torch.equal(torch.cat((made.train.labels, made.test.labels)), labels[chosen])
    for place, part, number in ((0, made.train, 0), (12, made.test, 0), (26, made.test, 14)):
        expected = turned_by_loops(images[chosen[place], 0], angles[place].item())
        assert (expected - part.images[number, 0]).abs().max() < 0.5 + 1e-9


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("INVINT_DATA", ""), "mnist").is_dir(), reason="no MNIST in INVINT_DATA"
)
def test_the_regenerated_set_never_changes() -> None:
    made = load_dataset("rotmnist-regenerated")
    assert (len(made.train), len(made.test)) == (12_000, 50_000)
    assert made.fingerprint == "0bc0c91291157796"
