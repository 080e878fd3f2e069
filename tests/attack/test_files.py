"""Tables, recipes, arrays and the official files of data sets, damaged and made to lie."""

import gzip
import io
import json
import os
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from support.attack import Judge, cut, damaged, hostile_text
from support.hostile_pictures import zeros
from support.pictures import write_noise

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

# A CSV file beside pictures

TABLE = "path,label,split,group\n" + "".join(
    f"{name}/{number}.png,{name},{split},g{number}\n"
    for name in "ab"
    for number, split in enumerate(("train",) * 6 + ("test",) * 4)
)
TABLES: dict[str, str | bytes] = {
    "empty": "",
    "no columns": "\n\n\n",
    "no rows": "path,label\n",
    "other columns": "file;class\na/0.png;a\n",
    "zero bytes": b"path,label\na/0.png,a\0\n",
    "not UTF-8": b"path,label\n\xff\xfe,a\n",
    "UTF-16": TABLE.encode("utf-16"),
    "an open quote": 'path,label\n"a/0.png,a\n',
    "one enormous cell": "path,label\n" + "a" * 200_000 + ",a\n",
    "too many cells": "path,label\n" + "a/0.png,a" + ",x" * 1000 + "\n",
    "a path out": "path,label\n../../etc/passwd,a\na/0.png,b\n",
    "an absolute path": "path,label\n/etc/passwd,a\na/0.png,b\n",
    "a label of escapes": "path,label\na/0.png,\x1b[2J\n",
    "a label of markup": "path,label\na/0.png,[bold]\n",
    "a formula": "path,label\na/0.png,=cmd|' /C calc'!A0\n",
    "a split nobody knows": "path,label,split\na/0.png,a,[/]\n",
    "all for testing": TABLE.replace("train", "test"),
    "one class": "path,label\na/0.png,a\na/1.png,a\n",
    "twice the same": "path,label\na/0.png,a\n./a/0.png,b\n",
    "a column twice": "path,label,label\na/0.png,a,b\nb/0.png,b,a\n",
    "no path": "path,label\n,a\n",
    "a page": "<!DOCTYPE html><html>not found</html>",
}


@pytest.fixture
def pictures(at_home: Path) -> Path:
    write_noise(at_home / "pictures")
    (at_home / "pictures" / "a" / "bad.png").unlink()
    return at_home / "pictures"


@pytest.mark.parametrize("name", TABLES)
def test_tables(judge: Judge, pictures: Path, name: str) -> None:
    content = TABLES[name]
    table = pictures / "labels.csv"
    table.write_bytes(content.encode() if isinstance(content, str) else content)
    judge.refused("data", "check", f"folder:{table}")


@pytest.mark.parametrize("seed", range(10))
def test_damaged_tables(judge: Judge, pictures: Path, seed: int) -> None:
    table = pictures / "labels.csv"
    table.write_bytes(damaged(TABLE.encode(), seed))
    judge.refused_or_taken("data", "check", f"folder:{table}")


# Folders


@pytest.mark.parametrize("seed", range(6))
def test_folders_whose_names_are_hostile(judge: Judge, pictures: Path, seed: int) -> None:
    name = hostile_text(seed).replace("/", "") or "a"
    (pictures / "a").rename(pictures / name)
    judge.refused_or_taken("data", "check", f"folder:{pictures}")


def test_a_folder_of_loops(judge: Judge, at_home: Path) -> None:
    for name in "ab":
        (at_home / "loops" / name).mkdir(parents=True)
        (at_home / "loops" / name / "again").symlink_to(at_home / "loops")
        (at_home / "loops" / name / "picture.png").symlink_to("picture.png")
    judge.refused("data", "check", f"folder:{at_home / 'loops'}")


def test_a_folder_that_is_a_loop(judge: Judge, at_home: Path) -> None:
    (at_home / "loop").symlink_to("loop")
    judge.refused("data", "check", f"folder:{at_home / 'loop'}")


# Recipes

DEEP = "[" * 100_000
RECIPES: dict[str, str | bytes] = {
    "empty.toml": "",
    "empty.json": "",
    "list.json": "[]",
    "nothing.json": "null",
    "deep.json": DEEP,
    "deep.toml": f"base = {DEEP}",
    "not text.toml": b"\xff\xfe\0base",
    "not text.json": b"\xff\xfe\0base",
    "itself.json": '{"base": "itself.json"}',
    "itself.toml": 'base = "itself.toml"',
    "no base.toml": "[train]\nlr = 1",
    "a base nobody knows.toml": 'base = "[bold]\\n"',
    "a base that is no text.json": '{"base": ["digits/cnn"]}',
    "a device.toml": 'base = "/dev/zero.toml"',
    "a part that is no table.json": '{"base": "digits/cnn", "train": 3}',
    "a key of lines.json": '{"base": "digits/cnn", "train": {"a\\nb": 1}}',
    "infinite.json": '{"base": "digits/cnn", "train": {"lr": Infinity}}',
    "not a number.toml": 'base = "digits/cnn"\n[train]\nlr = nan',
    "enormous.json": '{"base": "digits/cnn", "train": {"lr": 1' + "0" * 5000 + "}}",
    "long.json": '{"base": "digits/cnn", "train": {"epochs": 1' + "0" * 1000 + "}}",
    "a path for a name.json": '{"base": "digits/cnn", "name": "../../out"}',
    "a date.toml": 'base = "digits/cnn"\n[train]\nlr = 1979-05-27',
    "twice.toml": 'base = "digits/cnn"\nbase = "digits/cnn"',
    "code.json": '{"base": "digits/cnn", "model": {"name": "__import__(\'os\')"}}',
}
RECIPE = json.dumps(
    {
        "base": "digits/local-ws",
        "train": {"lr": 0.001, "epochs": 4, "batch_size": 16},
        "model": {"widths": [2, 3, 4], "group": "C4"},
        "data": {"augment": ["flip"], "size": 40},
    }
).encode()


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(judge: Judge, at_home: Path, name: str) -> None:
    content = RECIPES[name]
    (at_home / name).write_bytes(content.encode() if isinstance(content, str) else content)
    judge.refused("recipes", "show", name)


@pytest.mark.parametrize("seed", range(15))
def test_damaged_recipes(judge: Judge, at_home: Path, seed: int) -> None:
    (at_home / "own.json").write_bytes(damaged(RECIPE, seed))
    judge.refused_or_taken("recipes", "show", "own.json")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a loop": lambda path: path.symlink_to(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
}
READING: dict[str, tuple[str, ...]] = {
    "own.toml": ("recipes", "show", "own.toml"),
    "own.json": ("recipes", "show", "own.json"),
    "records.json": ("report", "records.json"),
    "known.json": ("study", "digits", "--dry-run", "--known", "known.json"),
    "own.npz": ("data", "check", "arrays:own.npz"),
    "labels.csv": ("data", "check", "folder:labels.csv"),
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", READING)
def test_what_is_no_file(judge: Judge, at_home: Path, name: str, kind: str) -> None:
    NO_FILES[kind](at_home / name)
    judge.refused(*READING[name])


# Arrays


def npy(header: str, body: bytes = b"") -> bytes:
    """Return a NumPy file with a header of one's own."""
    text = header.encode("latin-1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def archive(**files: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, content in files.items():
            whole.writestr(f"{name}.npy", content)
    return file.getvalue()


IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
LABELS = np.arange(40) % 2


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, images=IMAGES, labels=LABELS)
    return file.getvalue()


LYING: dict[str, str] = {
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 8, 8)}",
    "enormous": "{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807, 9, 9)}",
    "overflowing": "{'descr': '|u1', 'fortran_order': False, 'shape': (2**64,)}",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (40,)}",
    "no bytes at all": "{'descr': '|V0', 'fortran_order': False, 'shape': (40,)}",
    "nested types": "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (40,)}",
    "code": "__import__('os').system('true')",
    "deep": "(" * 300 + ")" * 300,
    "no keys": "{}",
    "a zero": "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 8, 8)}",
}


@pytest.mark.parametrize("name", LYING)
def test_arrays_that_lie(judge: Judge, at_home: Path, name: str) -> None:
    lying = npy(LYING[name], bytes(2560))
    labels = io.BytesIO()
    np.save(labels, LABELS)
    (at_home / "own.npz").write_bytes(archive(images=lying, labels=labels.getvalue()))
    judge.refused("data", "check", "arrays:own.npz")


@pytest.mark.parametrize("seed", range(8))
def test_arrays_cut_off(judge: Judge, at_home: Path, seed: int) -> None:
    (at_home / "own.npz").write_bytes(cut(arrays(), seed))
    judge.refused("data", "check", "arrays:own.npz")


@pytest.mark.parametrize("seed", range(20))
def test_damaged_arrays(judge: Judge, at_home: Path, seed: int) -> None:
    """In the header of the first array, or where the archive says what is in it."""
    content = arrays()
    start = 0 if seed % 2 else len(content) - 300
    content = content[:start] + damaged(content[start : start + 300], seed) + content[start + 300 :]
    (at_home / "own.npz").write_bytes(content)
    judge.refused_or_taken("data", "check", "arrays:own.npz")


def test_a_bomb_of_arrays(judge: Judge, at_home: Path) -> None:
    """Each of the copies unpacks to a gibibyte, from a file of some megabytes."""
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1073741824,)}")
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
        warnings.simplefilter("ignore")  # of names that come twice
        for _ in range(3):
            whole.writestr("images.npy", header + bytes(2**22))
    content = file.getvalue().replace(struct.pack("<I", len(header) + 2**22), b"\xff\xff\xff\x7f")
    (at_home / "own.npz").write_bytes(content)
    judge.refused("data", "check", "arrays:own.npz")


# Official files


def idx(magic: int, *sizes: int, body: bytes = b"") -> bytes:
    return gzip.compress(struct.pack(f">{1 + len(sizes)}i", magic, *sizes) + body)


IDX: dict[str, bytes] = {
    "empty": b"",
    "not gzipped": struct.pack(">4i", 2051, 60_000, 28, 28),
    "nothing inside": gzip.compress(b""),
    "another magic number": idx(2049, 60_000, 28, 28),
    "negative sizes": idx(2051, -60_000, -28, 28),
    "enormous sizes": idx(2051, 2**31 - 1, 2**31 - 1, 2**31 - 1),
    "too few bytes": idx(2051, 60_000, 28, 28, body=bytes(1000)),
    "a bomb": b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + zeros(2**26)[2:-4] + bytes(8),
}


@pytest.mark.parametrize("name", IDX)
def test_idx_files(judge: Judge, at_home: Path, name: str) -> None:
    mnist(at_home, IDX[name])
    judge.refused("data", "show", "mnist", "--data-dir", ".")


@pytest.mark.parametrize("seed", range(5))
def test_damaged_idx_files(judge: Judge, at_home: Path, seed: int) -> None:
    mnist(at_home, damaged(idx(2051, 60_000, 28, 28, body=bytes(10_000)), seed))
    judge.refused("data", "show", "mnist", "--data-dir", ".")


def mnist(root: Path, images: bytes) -> None:
    (root / "mnist").mkdir()
    for stem in ("train", "t10k"):
        (root / "mnist" / f"{stem}-images-idx3-ubyte.gz").write_bytes(images)
        (root / "mnist" / f"{stem}-labels-idx1-ubyte.gz").write_bytes(idx(2049, 0))


def mat(*, compressed: bool = True) -> bytes:
    file = io.BytesIO()
    crops = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    labels = (np.arange(12, dtype=np.uint8) % 10 + 1)[:, None]
    savemat(file, {"X": crops, "y": labels}, do_compression=compressed)
    return file.getvalue()


def write_mat(root: Path, content: bytes) -> None:
    (root / "svhn-recropped").mkdir()
    for split in ("train", "test"):
        (root / "svhn-recropped" / f"{split}_32x32.mat").write_bytes(content)


@pytest.mark.parametrize("seed", range(8))
def test_mat_files_cut_off(judge: Judge, at_home: Path, seed: int) -> None:
    write_mat(at_home, cut(mat(), seed))
    judge.refused("data", "check", "svhn-recropped", "--data-dir", ".")


@pytest.mark.parametrize("seed", range(15))
def test_damaged_mat_files(judge: Judge, at_home: Path, seed: int) -> None:
    content = mat(compressed=False)  # so that sizes and types are hit, not checksums alone
    write_mat(at_home, content[:124] + damaged(content[124:300], seed) + content[300:])
    judge.refused_or_taken("data", "check", "svhn-recropped", "--data-dir", ".")


AMAT: dict[str, bytes] = {
    "empty": b"",
    "words": b"zero one two\n",
    "not text": b"\xff\xfe\0\0" * 100,
    "one long line": b"0 " * 100_000,
    "infinite": b"inf " * 785,
    "a row": b"0 " * 784 + b"3\n",
}


@pytest.mark.parametrize("name", AMAT)
def test_text_files(judge: Judge, at_home: Path, name: str) -> None:
    (at_home / "rotmnist").mkdir()
    for split in ("train_valid", "test"):
        path = at_home / "rotmnist" / f"mnist_all_rotation_normalized_float_{split}.amat"
        path.write_bytes(AMAT[name])
    judge.refused("data", "show", "rotmnist", "--data-dir", ".")


# Records

RECORDS: dict[str, str] = {
    "empty": "",
    "nothing": "null",
    "a number": "7",
    "no runs": '{"format": 1, "runs": []}',
    "runs that are none": '{"format": 1, "runs": [1, 2]}',
    "runs that are a text": '{"format": 1, "runs": "many"}',
    "another format": '{"format": 99, "runs": [{"format": 99}]}',
    "a run without anything": '{"format": 1, "runs": [{"format": 1}]}',
    "deep": '{"runs": ' + DEEP,
    "bins that are none": '{"format": 1, "runs": [{"format": 1, "calibration": [[1]]}]}',
}


@pytest.mark.parametrize("name", RECORDS)
def test_records(judge: Judge, at_home: Path, name: str) -> None:
    (at_home / "records.json").write_text(RECORDS[name])
    judge.refused("report", "records.json")
