import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from invint.data.arrays import load_arrays
from invint.errors import DataError


def images(count: int, *shape: int, kind: type = np.uint8) -> NDArray[Any]:
    return np.random.default_rng(count).integers(0, 256, (count, *shape)).astype(kind)


def saved(folder: Path, **arrays: NDArray[Any]) -> Path:
    path = folder / "set.npz"
    np.savez(path, allow_pickle=False, **arrays)
    return path


def three_classes(count: int) -> NDArray[np.int64]:
    return np.arange(count) % 3


@pytest.mark.parametrize("shape", [(12, 12), (12, 12, 3), (3, 12, 12), (12, 12, 1), (1, 12, 12)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_axes_are_told_apart(tmp_path: Path, shape: tuple[int, ...], kind: type) -> None:
    stored = images(6, *shape, kind=kind)
    path = saved(
        tmp_path,
        train_images=stored,
        train_labels=three_classes(6),
        test_images=stored[:3],
        test_labels=three_classes(3),
    )
    found = load_arrays(path).train.images
    assert found.dtype == (torch.uint8 if kind == np.uint8 else torch.uint16)
    for number, row, column, channel in np.ndindex(6, 12, 12, found.shape[1]):
        at = {2: (row, column), 3: (row, column, channel)}[len(shape)]
        if shape[0] in (1, 3):
            at = (channel, row, column)
        assert found[number, channel, row, column].item() == stored[(number, *at)]


def test_a_share_is_held_out_by_class(tmp_path: Path) -> None:
    path = saved(tmp_path, images=images(60, 8, 8), labels=three_classes(60))
    found = load_arrays(path, test_share=0.25)
    assert found.name == "arrays:set"
    assert found.class_names == ("0", "1", "2")
    assert found.test.labels.bincount().tolist() == [5, 5, 5]
    assert len(found.train) == 45
    again = load_arrays(path, test_share=0.25, seed=1)
    assert not torch.equal(found.test.images, again.test.images)


def test_groups_are_never_divided(tmp_path: Path) -> None:
    groups = np.array([f"patient {number // 4}" for number in range(60)])
    path = saved(tmp_path, images=images(60, 8, 8), labels=three_classes(60), groups=groups)
    found = load_arrays(path)
    assert found.train.groups is not None
    assert found.test.groups is not None
    assert not set(found.train.groups.tolist()) & set(found.test.groups.tolist())


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_images_and_groups_on_both_sides_are_told_and_dropped(tmp_path: Path, kind: type) -> None:
    train, val, test = (images(count, 5, 5, kind=kind) for count in (9, 6, 7))
    train[4], val[3], train[7] = test[2], test[2], val[1]
    labels = {
        f"{name}_labels": three_classes(len(each))
        for name, each in (("train", train), ("val", val), ("test", test))
    }
    groups = {"train_groups": np.arange(9), "val_groups": 10 + np.arange(6)}
    groups["test_groups"] = np.array([0, *range(20, 26)])
    pictures = {"train_images": train, "val_images": val, "test_images": test}
    path = saved(tmp_path, **pictures, **labels, **groups)
    found = load_arrays(path)
    assert found.note == (
        "leakage: image 3 (validation) = image 2 (test) and 3 more; "
        "--drop-leaks leaves such pictures out"
    )
    assert len(found.train) == 9
    clean = load_arrays(path, drop_leaks=True)
    assert clean.note == "pictures left out because they leak: 4"
    assert clean.validation is not None
    for split, before, left in (
        (clean.train, train, [1, 2, 3, 5, 6, 8]),
        (clean.validation, val, [0, 1, 2, 4, 5]),
        (clean.test, test, range(7)),
    ):
        assert split.images[:, 0].tolist() == before[[*left]].tolist()
    del pictures["val_images"]
    train[4], train[0] = 0, 1
    groups["test_groups"][0] = 8
    only = load_arrays(saved(tmp_path, **pictures, **labels, **groups))
    assert only.note == (
        "leakage: image 8 (train) and image 0 (test) are both of group '8'; "
        "--drop-leaks leaves such pictures out"
    )


def test_a_copy_held_out_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    pictures = images(60, 8, 8)
    pictures[59] = pictures[0]
    path = saved(tmp_path, images=pictures, labels=three_classes(60))
    notes = {load_arrays(path, seed=seed).note for seed in range(12)}
    start, end = "leakage: image ", "; --drop-leaks leaves such pictures out"
    assert notes == {
        "",
        f"{start}0 (train) = image 59 (test){end}",
        f"{start}59 (train) = image 0 (test){end}",
    }


def test_splits_of_the_file_are_kept(tmp_path: Path) -> None:
    labels = three_classes(6)[:, None]
    found = load_arrays(
        saved(
            tmp_path,
            train_images=images(6, 8, 8),
            train_labels=labels.astype(np.uint8),
            val_images=images(3, 8, 8),
            val_labels=labels[:3],
            test_images=images(5, 8, 8),
            test_labels=labels[:5],
            class_names=np.array(["cat", "dog", "owl"]),
        )
    )
    assert found.class_names == ("cat", "dog", "owl")
    assert found.validation is not None
    assert [len(part) for part in (found.train, found.validation, found.test)] == [6, 3, 5]
    assert found.train.labels.tolist() == [0, 1, 2, 0, 1, 2]


def given(**changes: Any) -> dict[str, Any]:
    return {"images": images(30, 8, 8), "labels": three_classes(30), **changes}


def splits(**changes: Any) -> dict[str, Any]:
    return {
        "train_images": images(6, 8, 8),
        "train_labels": three_classes(6),
        "test_images": images(6, 8, 8),
        "test_labels": three_classes(6),
        **changes,
    }


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        (
            given(images=images(30, 8, 8).astype(float)),
            "images: expected uint8 or uint16, got float",
        ),
        (given(images=images(30, 3, 8, 3)), r"images: expected \(n, h, w\), \(n, h, w, c\) or"),
        (
            given(images=images(30, 8, 8, 8)),
            r"1 to 4 channels and more pixels, got \(30, 8, 8, 8\)",
        ),
        (given(images=images(30, 8)), r"images: expected .*got \(30, 8\)"),
        (given(images=images(30, 8, 9)), r"all square, got \(30, 1, 8, 9\)"),
        (given(labels=three_classes(29)), r"labels: expected one entry for each of 30 images"),
        (
            given(labels=three_classes(30) - 1),
            r"labels: expected class indices from 0, got \[-1, 0",
        ),
        (given(labels=three_classes(30) / 2), r"labels: expected class indices from 0, got \[0.0"),
        (given(labels=three_classes(30) * 2), "expected labels 0 to 4.*got no image of class 1"),
        (given(labels=three_classes(30) * 0), "expected labels 0 to 0.*got no image of class 1"),
        (given(labels=three_classes(30) * 2**29), "expected labels 0 to .*got label 1073741824"),
        (given(class_names=np.array(["a", "b"])), "expected labels 0 to 1, .*got label 2"),
        (given(class_names=np.arange(3)), "class_names: expected a row of strings, got int64"),
        (
            given(groups=np.arange(4)),
            r"groups: expected one entry for each of 30 images, got \(4,\)",
        ),
        ({"images": images(4, 8, 8)}, "expected an array labels; found images"),
        ({"pictures": images(4, 8, 8)}, "expected the arrays images and labels, .*found none of"),
        (splits(test_images=images(6, 10, 10)), "images of the splits differ in shape or type"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, arrays: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=f"set.npz: .*{line}"):
        load_arrays(saved(tmp_path, **arrays))


def test_labels_beyond_any_class_count_are_refused(tmp_path: Path) -> None:
    labels = np.full(30, 2**63, dtype=np.uint64)
    with pytest.raises(DataError, match="labels: expected class indices from 0, got"):
        load_arrays(saved(tmp_path, **given(labels=labels)))


class Trap:
    """Unpickling this would fail the test."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("was unpickled",)


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez(path, images=images(4, 8, 8), labels=np.array([Trap()], dtype=object))
    line = "labels.npy holds Python objects, which are not read; save numbers or strings"
    with pytest.raises(DataError, match=line):
        load_arrays(path)


def test_what_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "set.npz"
    np.savez_compressed(path, images=np.zeros((10_000, 64, 64), np.uint8), labels=np.zeros(10_000))
    assert path.stat().st_size < 10**6
    with pytest.raises(DataError, match="unpacks to 41,040,256 bytes, more than 1,000,000; make"):
        load_arrays(path, max_bytes=10**6)


def written(path: Path, name: str, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def test_a_header_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    file = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (10**15, 8, 8)}
    np.lib.format.write_array_header_1_0(file, header)
    path = written(tmp_path / "set.npz", "images.npy", file.getvalue() + b"1234")
    line = re.escape("images.npy says (1000000000000000, 8, 8) of uint8 but has 4 bytes; save it")
    with pytest.raises(DataError, match=line):
        load_arrays(path)


def test_what_is_no_array_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.npz: no such file"):
        load_arrays(tmp_path / "none.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(DataError, match=r"pipe.npz: is no file; name one"):
        load_arrays(tmp_path / "pipe.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(
        DataError, match=r"text.npz: is no whole .npz file \(File is not a zip file"
    ):
        load_arrays(tmp_path / "text.npz")
    path = written(tmp_path / "set.npz", "images.npy", b"hello, this is no array")
    with pytest.raises(DataError, match=r"set.npz: images.npy is no NumPy array \("):
        load_arrays(path)
    header = b"\x93NUMPY\x01\x00\x59\x02" + b"(" * 300 + b")" * 300 + b"\n"
    path = written(tmp_path / "set.npz", "images.npy", header)
    with pytest.raises(DataError, match=r"is no NumPy array \(Cannot parse header: '\(+\)$"):
        load_arrays(path)  # not all of the header
    whole = saved(tmp_path, **given()).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"half.npz: is no whole .npz file"):
        load_arrays(tmp_path / "half.npz")


def test_damaged_bytes_are_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path, **given())
    data = bytearray(path.read_bytes())
    data[500] ^= 255
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"is no whole .npz file \(Bad CRC-32"):
        load_arrays(path)
