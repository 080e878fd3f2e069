import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from invint.data.official import load_recropped_svhn, load_svhn
from invint.data.registry import load_dataset
from invint.errors import DataError

TRAIN, TEST = "train_32x32.mat", "test_32x32.mat"


def content(count: int) -> dict[str, np.ndarray]:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
    return {"X": pixels, "y": (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]}


def write_svhn(folder: Path, counts: tuple[int, int] = (20, 10)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in zip((TRAIN, TEST), counts, strict=True):
        savemat(folder / name, content(count), do_compression=True)


def test_images_are_turned_into_the_order_of_tensors(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    dataset = load_svhn(tmp_path, counts=(20, 10))
    pixels = content(20)["X"]
    for image, channel, row, column in ((0, 0, 0, 0), (7, 2, 3, 30), (19, 1, 31, 5)):
        expected = pixels[row, column, channel, image]
        assert dataset.train.images[image, channel, row, column] == expected


def test_the_label_ten_is_the_digit_zero(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    labels = load_svhn(tmp_path, counts=(20, 10)).test.labels
    assert labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_other_crops_may_be_any_number_and_are_called_so(tmp_path: Path) -> None:
    write_svhn(tmp_path, (13, 11))
    dataset = load_recropped_svhn(tmp_path)
    assert (len(dataset.train), len(dataset.test)) == (13, 11)
    assert dataset.note == "SVHN, re-cropped"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.ones((19, 1), np.uint8)}, r"expected y of size \(20, 1\), got \(19, 1\)"),
        ({"y": np.full((20, 1), 11)}, r"expected labels from 1 to 10, got 11 to 11"),
        ({"X": np.zeros((32, 32, 3, 20))}, "expected X of uint8, 32 x 32 x 3 x n, got double"),
        ({"X": np.zeros((28, 28, 3, 20), np.uint8)}, "expected X of uint8, 32 x 32 x 3 x n"),
        ({"X": np.zeros((32, 32, 3, 21), np.uint8)}, r"expected y of size \(21, 1\)"),
        ({"X": "text"}, "expected X of uint8, 32 x 32 x 3 x n, got char"),
    ],
)
def test_wrong_variables_are_named(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / TRAIN, content(20) | changes)
    with pytest.raises(DataError, match=message) as caught:
        load_svhn(tmp_path, counts=(20, 10))
    assert str(tmp_path / TRAIN) in str(caught.value)


def test_missing_variables_are_named(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / TEST, {"images": np.zeros(3)})
    with pytest.raises(DataError, match="expected the variables X and y, got images"):
        load_svhn(tmp_path, counts=(20, 10))


def test_a_file_without_images_is_refused(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    empty = {"X": np.zeros((32, 32, 3, 0), np.uint8), "y": np.zeros((0, 1), np.uint8)}
    savemat(tmp_path / TEST, empty)
    with pytest.raises(DataError, match="expected some images, got 0"):
        load_recropped_svhn(tmp_path)


def test_other_counts_than_the_official_ones_are_refused(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    with pytest.raises(DataError, match="expected 73,257 images, got 20"):
        load_svhn(tmp_path)


@pytest.mark.parametrize("start", [b"", b"\x89HDF\r\n\x1a\n" + bytes(200), b"MATLAB 7.3 MAT-file"])
def test_what_is_not_a_matlab_5_file_is_refused(tmp_path: Path, start: bytes) -> None:
    write_svhn(tmp_path)
    (tmp_path / TRAIN).write_bytes(start)
    with pytest.raises(DataError, match=r"expected a MATLAB 5\.0 file, got one that begins"):
        load_svhn(tmp_path, counts=(20, 10))


@pytest.mark.parametrize("share", [0.01, 0.3, 0.9])
def test_a_cut_file_gets_one_line_with_its_name(tmp_path: Path, share: float) -> None:
    write_svhn(tmp_path)
    whole = (tmp_path / TRAIN).read_bytes()
    (tmp_path / TRAIN).write_bytes(whole[: max(130, int(share * len(whole)))])
    with pytest.raises(DataError, match=TRAIN) as caught:
        load_svhn(tmp_path, counts=(20, 10))
    assert "\n" not in str(caught.value)


def test_a_file_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    write_svhn(tmp_path)
    savemat(tmp_path / TRAIN, content(20))
    raw = (tmp_path / TRAIN).read_bytes()
    sizes, lie = struct.pack("<4i", 32, 32, 3, 20), struct.pack("<4i", 32, 32, 3, 2**30)
    assert raw.count(sizes) == 1
    (tmp_path / TRAIN).write_bytes(raw.replace(sizes, lie))
    with pytest.raises(DataError, match=TRAIN):
        load_recropped_svhn(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(os.environ.get("INVINT_DATA", ""), "svhn-recropped").is_dir(),
    reason="no re-cropped SVHN in INVINT_DATA",
)
def test_the_real_files_are_read() -> None:
    dataset = load_dataset("svhn-recropped")
    assert dataset.image_shape == (3, 32, 32)
    assert set(dataset.train.labels.tolist()) == set(range(10))
    assert dataset.train.images.float().mean().item() == pytest.approx(115, abs=15)
    assert torch.bincount(dataset.train.labels).argmax() == 1
