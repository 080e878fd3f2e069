import gzip
import os
import struct
from pathlib import Path

import pytest
import torch

from invint.data.download import File, verify
from invint.data.official import FASHION_FILES, load_fashion_mnist, load_mnist, rotate_fashion_mnist
from invint.data.registry import check_files, load_dataset
from invint.errors import DataError

NAMES = ("train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")


def idx(magic: int, sizes: tuple[int, ...], body: bytes) -> bytes:
    return gzip.compress(struct.pack(f">{1 + len(sizes)}i", magic, *sizes) + body, mtime=0)


def write_mnist(folder: Path, counts: tuple[int, int] = (20, 10)) -> None:
    """Write files in the official layout: pixel p of image i is i + p modulo 251, label i % 10."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, count in zip(("train", "t10k"), counts, strict=True):
        pixels = bytes((i + p) % 251 for i in range(count) for p in range(784))
        labels = bytes(i % 10 for i in range(count))
        images = idx(2051, (count, 28, 28), pixels)
        (folder / f"{stem}-images-idx3-ubyte.gz").write_bytes(images)
        (folder / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(2049, (count,), labels))


def test_images_and_labels_are_those_of_the_files(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    dataset = load_mnist(tmp_path, counts=(20, 10))
    assert dataset.image_shape == (1, 28, 28)
    assert (len(dataset.train), len(dataset.test)) == (20, 10)
    assert dataset.train.images[7, 0, 3, 5] == 7 + 3 * 28 + 5
    assert dataset.train.labels.tolist() == [i % 10 for i in range(20)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (NAMES[0], b"", "expected an idx file with the magic number 2051, got nothing"),
        (NAMES[0], b"<html>not found</html>", "cut off, or not gzipped"),
        (NAMES[0], idx(2051, (20, 28, 28), bytes(9))[:-9], "cut off, or not gzipped"),
        (NAMES[0], idx(2049, (20,), bytes(20)), "magic number 2051, got 2049"),
        (NAMES[0], idx(2051, (2**31 - 1, 28, 28), b""), r"sizes \(20, 28, 28\), got \(2147483647"),
        (NAMES[0], idx(2051, (20, 28, 28), bytes(99)), "expected 15,680 bytes.*, got 99"),
        (NAMES[0], idx(2051, (20, 28, 28), bytes(20000)), "expected 15,680 bytes.*, got more"),
        (NAMES[1], idx(2049, (10,), bytes([10] * 10)), "expected labels from 0 to 9, got 10 to 10"),
        (NAMES[1], gzip.compress(b"\0\0\b", mtime=0), "cut off, or not gzipped"),
    ],
)
def test_a_lying_file_gets_one_line_with_its_name(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    write_mnist(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_mnist(tmp_path, counts=(20, 10))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("INVINT_DATA", ""), "mnist").is_dir(), reason="no MNIST in INVINT_DATA"
)
def test_the_real_files_are_read() -> None:
    assert all(check_files("mnist").values())
    dataset = load_dataset("mnist")
    assert dataset.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert torch.bincount(dataset.test.labels).tolist() == [
        980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009,
    ]  # fmt: skip
    assert dataset.fingerprint == "e0130f111822ed58"


def test_fashion_mnist_has_the_format_of_mnist_and_names_of_its_own(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    fashion = load_fashion_mnist(tmp_path, counts=(20, 10))
    assert torch.equal(fashion.train.images, load_mnist(tmp_path, counts=(20, 10)).train.images)
    assert fashion.class_names[9] == "ankle boot"


def test_rotated_fashion_has_every_image_once(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    made = rotate_fashion_mnist(tmp_path, counts=(12, 18), fashion_counts=(20, 10))
    assert (made.name, len(made.train), len(made.test)) == ("fashion-rotated", 12, 18)
    labels = torch.cat((made.train.labels, made.test.labels))
    assert labels.bincount().tolist() == [3] * 10
    again = rotate_fashion_mnist(tmp_path, counts=(12, 18), fashion_counts=(20, 10))
    assert torch.equal(again.test.images, made.test.images)


def test_the_same_content_compressed_anew_is_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(b"again")
    verify(path, File("file.gz", 7, "0" * 32, {5: "639849f6b368019778991b32434354fc"}))
    with pytest.raises(DataError, match="expected the checksum ff, got 63984"):
        verify(path, File("file.gz", 7, "0" * 32, {5: "ff"}))
    with pytest.raises(DataError, match="expected 7 bytes, got 5"):
        verify(path, File("file.gz", 7, "0" * 32, {6: "ff"}))


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("INVINT_DATA", ""), "fashion-mnist").is_dir(),
    reason="no Fashion-MNIST in INVINT_DATA",
)
def test_the_real_fashion_files_are_read() -> None:
    assert len(check_files("fashion-mnist")) == len(FASHION_FILES)
    assert load_dataset("fashion-mnist").fingerprint == "a06d3266794aa014"
    assert load_dataset("fashion-rotated").fingerprint == "93c7e5e90da63958"
