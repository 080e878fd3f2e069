"""The cache is right, instant the second time, and never half there."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from invint.data import cache, folder, pictures
from invint.data.cache import Shape, draft, suggested_shape, user_cache
from invint.data.dataset import Dataset
from invint.data.folder import load_folder, scan
from invint.data.listing import read_layout
from invint.data.splits import FileInfo
from invint.errors import DataError, InvintError


def write_pictures(root: Path, count: int, side: int = 16) -> None:
    random = np.random.default_rng(0)
    for number in range(count):
        path = root / "ab"[number % 2] / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_pictures(tmp_path / "set", 30)
    return tmp_path / "set"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the pictures that are decoded."""
    calls: list[int] = []
    decode = pictures.decode

    def counting(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return decode(*arguments, **options)

    monkeypatch.setattr(cache, "decode", counting)
    return calls


def same(first: Dataset, second: Dataset) -> bool:
    return first.fingerprint == second.fingerprint


def test_the_second_start_opens_no_picture(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_folder(root, cache=place)
    monkeypatch.setattr(cache, "read_bytes", lambda _: pytest.fail("opened a picture"))
    assert same(load_folder(root, cache=place), first)


def test_each_picture_is_read_and_decoded_once(root: Path, place: Path, decoded: list[int]) -> None:
    load_folder(root, cache=place)
    assert len(decoded) == 30


def test_another_split_decodes_nothing(
    root: Path, place: Path, decoded: list[int], tmp_path: Path
) -> None:
    load_folder(root, cache=place)
    decoded.clear()
    for options in ({"seed": 1}, {"test_share": 0.5}):
        fresh = load_folder(root, cache=tmp_path / "fresh" / next(iter(options)), **options)
        assert len(decoded) == 30
        decoded.clear()
        assert same(load_folder(root, cache=place, **options), fresh)
        assert decoded == []


def test_splits_are_kept_side_by_side(root: Path, place: Path) -> None:
    for _ in range(2):
        for seed in range(3):
            load_folder(root, cache=place, seed=seed)
    assert len(list(place.glob("images-*"))) == 3


def test_a_scan_decodes_for_those_who_ask_for_the_side_it_chose(
    root: Path, place: Path, decoded: list[int]
) -> None:
    side = scan(root, cache=place).shape.side
    decoded.clear()
    load_folder(root, cache=place, side=side, seed=1)
    assert decoded == []
    load_folder(root, cache=place, side=2 * side)
    assert len(decoded) == 30
    decoded.clear()
    scan(root, cache=place)
    scan(root, cache=place, side=2 * side)
    assert decoded == []


def test_other_labels_in_a_table_decode_nothing_and_take_the_place_of_the_old_ones(
    root: Path, place: Path, decoded: list[int]
) -> None:
    for shift in range(2):
        rows = [f"{'ab'[n % 2]}/{n:05}.png,{(n + shift) // 7 % 2}" for n in range(30)]
        (root / "labels.csv").write_text("\n".join(["path,label", *rows]) + "\n")
        load_folder(root, cache=place)
        assert len(list(place.glob("images-*"))) == 1
    assert len(decoded) == 30


def test_a_folder_that_is_listed_is_not_listed_again(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = read_layout(root)
    monkeypatch.setattr(folder, "read_layout", lambda _: pytest.fail("listed again"))
    assert scan(layout, cache=place).path == root
    assert len(load_folder(layout, cache=place).train) == 24


def test_images_are_mapped_not_loaded(root: Path, place: Path) -> None:
    found = load_folder(root, cache=place)
    before = found.train.images.clone()
    (path,) = place.glob("images-*.npy")
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0] ^ 255
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last]))
    assert found.test.images[-1, -1, -1, -1] == last
    assert torch.equal(found.train.images, before)


def test_writing_into_images_leaves_the_cache_alone(root: Path, place: Path) -> None:
    first = load_folder(root, cache=place)
    print_before = first.fingerprint
    first.train.images[0] = 0
    assert load_folder(root, cache=place).fingerprint == print_before


def change_content(root: Path) -> None:
    Image.new("RGB", (16, 16), (1, 2, 3)).save(root / "a" / "00000.png")


def change_time(root: Path) -> None:
    os.utime(root / "a" / "00000.png", ns=(1, 1))


def add(root: Path) -> None:
    Image.new("RGB", (16, 16), (1, 2, 3)).save(root / "b" / "new.png")


def remove(root: Path) -> None:
    (root / "a" / "00000.png").unlink()


def rename(root: Path) -> None:
    (root / "a" / "00000.png").rename(root / "a" / "99999.png")


def move_to_other_class(root: Path) -> None:
    (root / "a" / "00000.png").rename(root / "b" / "00000.png")


@pytest.mark.parametrize(
    "change", [change_content, change_time, add, remove, rename, move_to_other_class]
)
def test_a_changed_folder_is_noticed(
    root: Path, place: Path, decoded: list[int], tmp_path: Path, change: Any
) -> None:
    load_folder(root, cache=place)
    change(root)
    decoded.clear()
    found = load_folder(root, cache=place)
    assert len(decoded) >= 29
    assert same(found, load_folder(root, cache=tmp_path / "fresh"))
    assert len(list(place.glob("images-*"))) == 1


def test_a_file_that_becomes_readable_is_noticed(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = pictures.read_bytes

    def denied(path: str) -> Any:
        if path.endswith("00000.png"):
            raise DataError("permission denied; check that it is there and may be read")
        return read(path)

    monkeypatch.setattr(cache, "read_bytes", denied)
    with pytest.raises(DataError, match=r"a/00000\.png: permission denied\."):
        load_folder(root, cache=place)
    monkeypatch.setattr(cache, "read_bytes", read)
    assert len(load_folder(root, cache=place).train) == 24


def test_a_file_that_stays_empty_is_not_looked_at_again(
    root: Path, place: Path, decoded: list[int]
) -> None:
    (root / "a" / "empty.png").touch()
    first = load_folder(root, cache=place, skip_bad=True)
    decoded.clear()
    assert same(load_folder(root, cache=place, skip_bad=True), first)
    assert decoded == []


def cut_map(place: Path) -> None:
    (path,) = place.glob("images-*.npy")
    path.write_bytes(path.read_bytes()[:-100])


def drop_map(place: Path) -> None:
    (path,) = place.glob("images-*.npy")
    path.unlink()


def cut_manifest(place: Path) -> None:
    text = (place / "manifest.json").read_text()
    (place / "manifest.json").write_text(text[: len(text) // 2])


def other_format(place: Path) -> None:
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps({**manifest, "format": 0}))


def no_manifest(place: Path) -> None:
    (place / "manifest.json").write_text("[]")


@pytest.mark.parametrize("damage", [cut_map, drop_map, cut_manifest, other_format, no_manifest])
def test_a_damaged_cache_is_made_anew(root: Path, place: Path, damage: Any) -> None:
    first = load_folder(root, cache=place)
    expected = first.fingerprint
    del first
    damage(place)
    assert load_folder(root, cache=place).fingerprint == expected
    assert len(list(place.glob("images-*"))) == 1


def test_a_failing_write_leaves_nothing_and_says_so(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.Rows, "put", full)
    line = r"cache: cannot keep decoded pictures \(no space left on device\); make room there or"
    with pytest.raises(DataError, match=line):
        load_folder(root, cache=place)
    assert [path.name for path in place.iterdir()] == ["lock"]


def test_a_failure_to_reach_the_disk_is_told(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(DataError, match=r"cannot keep decoded pictures \(input/output error\)"):
        load_folder(root, cache=place)
    assert [path.name for path in place.iterdir()] == ["lock"]


def test_an_interrupt_leaves_nothing(root: Path, place: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_folder(root, cache=place, progress=interrupt)
    assert [path.name for path in place.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    "options",
    [
        *({"side": 33}, {"test_share": 1.0}, {"min_per_class": -1}),
        *({"skip_class": ["c"]}, {"skip_class": ["a"]}),
    ],
)
def test_what_is_refused_unread_writes_nothing(
    root: Path, place: Path, options: dict[str, Any], decoded: list[int]
) -> None:
    with pytest.raises(InvintError):
        load_folder(root, cache=place, **options)
    assert decoded == []
    assert not place.exists()


def test_classes_that_are_skipped_are_neither_decoded_nor_kept_in_the_place_of_others(
    root: Path, tmp_path: Path, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    (root / "c").mkdir()
    Image.new("L", (16, 16)).save(root / "c" / "other.png")
    Image.new("L", (16, 16), 9).save(root / "c" / "another.png")
    for _ in range(2):
        assert len(load_folder(root).train) == 26
        assert len(load_folder(root, skip_class=["c"]).train) == 24
        assert len(load_folder(root, min_per_class=3).train) == 24
    assert len(decoded) == 32 + 30


def test_pictures_that_a_first_reading_left_out_are_there_for_the_next(
    root: Path, place: Path, tmp_path: Path
) -> None:
    leaking = (root / "a" / "00000.png").read_bytes()
    for split in ("train", "test"):
        for name in "ab":
            (tmp_path / "split" / split / name).mkdir(parents=True)
            for path in (root / name).glob("*0.png" if split == "test" else "*[1-9].png"):
                path.rename(tmp_path / "split" / split / name / path.name)
    (tmp_path / "split" / "train" / "a" / "copy.png").write_bytes(leaking)
    clean = load_folder(tmp_path / "split", cache=place, drop_leaks=True)
    found = load_folder(tmp_path / "split", cache=place)
    assert len(found.train) == len(clean.train) + 1
    assert same(found, load_folder(tmp_path / "split", cache=tmp_path / "fresh"))


def test_progress_goes_from_some_to_all(tmp_path: Path, place: Path) -> None:
    write_pictures(tmp_path / "set", 100, side=4)
    steps: list[tuple[int, int]] = []
    load_folder(tmp_path / "set", cache=place, progress=lambda *step: steps.append(step))
    assert steps == [(32, 100), (64, 100), (96, 100), (100, 100)]


def test_a_wrong_guess_of_the_shape_is_put_right(
    root: Path, place: Path, monkeypatch: pytest.MonkeyPatch, decoded: list[int]
) -> None:
    """The one sixteen-bit picture is not in the sample of headers."""
    monkeypatch.setattr(cache, "SAMPLE", 2)
    Image.fromarray(np.full((16, 16), 40_000, dtype=np.uint16)).save(root / "a" / "00001.png")
    found = load_folder(root, cache=place)
    assert found.train.images.dtype == torch.uint16
    assert len(decoded) == 62
    assert len(list(place.glob("images-*"))) == 1


def test_the_cache_lies_in_the_users_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load_folder(root)
    (place,) = (tmp_path / "xdg" / "invint" / "folders").iterdir()
    assert {path.suffix for path in place.iterdir()} == {".json", ".npy", ""}
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache(root, "").parent == tmp_path / "home" / ".cache" / "invint" / "folders"
    assert user_cache(root, "a") != user_cache(root, "b")


@pytest.mark.parametrize(
    ("shape", "most"),
    [(Shape(96, 3, False), 151), (Shape(512, 3, False), 5), (Shape(1024, 3, True), 1)],
)
def test_no_more_is_written_at_once_than_four_megabytes_or_one_picture(
    tmp_path: Path, shape: Shape, most: int
) -> None:
    with draft(tmp_path, shape, 0) as rows:
        assert rows.at_once == most


def fingerprint(root: Path, place: Path) -> str:
    return load_folder(root, cache=place).fingerprint


@pytest.mark.slow
def test_two_processes_at_once_agree(tmp_path: Path, place: Path) -> None:
    write_pictures(tmp_path / "set", 200)
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        found = pool.starmap(fingerprint, [(tmp_path / "set", place)] * 4, chunksize=1)
    assert len(set(found)) == 1
    assert len(list(place.glob("images-*"))) == 1


KILLED = """
import sys, time
from pathlib import Path
from invint.data.folder import load_folder
def wait(done, total):
    print(done, flush=True)
    time.sleep(60)
load_folder(Path(sys.argv[1]), cache=Path(sys.argv[2]), progress=wait)
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_that_counts(root: Path, place: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(root), str(place)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(place.glob("images-*"))
    assert not (place / "manifest.json").exists()
    assert len(load_folder(root, cache=place).train) == 24
    assert len(list(place.glob("images-*"))) == 1


MEASURED = """
import sys
from pathlib import Path
from invint.data import cache
from invint.data.folder import load_folder
cache.processors = lambda: 2  # each thread holds some pictures
def usage():  # `resource` would count the parent's memory too
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before = usage()
found = load_folder(Path(sys.argv[1]), cache=Path(sys.argv[2]), side=int(sys.argv[3]))
print(usage() - before, found.train.images.nbytes / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("side", "count", "all_of_them"), [(224, 1000, 110), (512, 600, 350)])
def test_memory_does_not_grow_with_the_folder(
    tmp_path: Path, place: Path, side: int, count: int, all_of_them: int
) -> None:
    write_pictures(tmp_path / "set", count)
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "set"), str(place), str(side)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    grown, mapped = map(float, done.stdout.split())
    assert mapped > all_of_them
    assert grown < all_of_them / 2


@pytest.mark.slow
def test_the_second_start_is_instant(tmp_path: Path, place: Path) -> None:
    write_pictures(tmp_path / "set", 3000, side=32)
    load_folder(tmp_path / "set", cache=place)
    start = time.process_time()
    load_folder(tmp_path / "set", cache=place)
    assert time.process_time() - start < 1


def info(width: int, height: int, mode: str = "RGB") -> FileInfo:
    return FileInfo("", 0, 0, "x", width, height, mode)


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(28, 28)] * 3, 28),
        ([(27, 27)] * 3, 28),
        ([(96, 64)] * 3, 96),
        ([(4000, 3000)] * 3, 96),
        ([(32, 32), (32, 20), (500, 500)], 32),
        ([(20, 20), (30, 30), (40, 40)], 32),
        ([(300, 20), (400, 30), (500, 40)], 96),
        ([(1, 1), (2, 2), (3, 3)], 16),
        ([(1, 1)] * 3, 2),
        ([], 16),
    ],
)
def test_the_side_is_the_common_one_or_the_next_above_the_median(
    sizes: list[tuple[int, int]], side: int
) -> None:
    assert suggested_shape([info(*size) for size in sizes], None).side == side
    assert suggested_shape([info(*size) for size in sizes], 40).side == 40
