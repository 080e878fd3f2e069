from pathlib import Path

import numpy as np
import pytest

from invint.data.official import STL10_FOLDER, STL10_NAMES, load_stl10
from invint.errors import DataError


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 3, 96, 96), dtype=np.uint8)


def write_stl10(folder: Path, counts: tuple[int, int] = (5, 8)) -> None:
    """Write each channel column by column, and labels from 1."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in zip(("train", "test"), counts, strict=True):
        columns_first = pixels(count).swapaxes(2, 3)
        (folder / f"{part}_X.bin").write_bytes(columns_first.tobytes())
        (folder / f"{part}_y.bin").write_bytes(bytes(i % 10 + 1 for i in range(count)))
    (folder / "class_names.txt").write_text("\n".join(STL10_NAMES) + "\n")


@pytest.mark.parametrize("inside", ["", STL10_FOLDER])
def test_columns_become_rows(tmp_path: Path, inside: str) -> None:
    write_stl10(tmp_path / inside)
    dataset = load_stl10(tmp_path, counts=(5, 8))
    assert dataset.image_shape == (3, 96, 96)
    assert np.array_equal(dataset.train.images.numpy(), pixels(5))
    assert dataset.test.labels.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train_X.bin", b"", "expected 138,240 bytes, got 0"),
        ("test_y.bin", bytes(7), "expected 8 bytes, got 7"),
        ("train_y.bin", bytes(5), r"expected labels from 1 to 10, got 0 to 0"),
        ("test_y.bin", bytes([11] * 8), r"expected labels from 1 to 10, got 11 to 11"),
        ("class_names.txt", b"cat dog", "expected the classes airplane .* truck, got cat dog"),
    ],
)
def test_a_lying_file_gets_one_line_with_its_name(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    write_stl10(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load_stl10(tmp_path, counts=(5, 8))
    assert str(tmp_path / name) in str(caught.value)
