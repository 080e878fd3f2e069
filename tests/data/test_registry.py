import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invint.data import DATASETS, Dataset, fetch_dataset, load_dataset
from invint.data.registry import check_files, data_folder, dataset_folder, is_here
from invint.errors import ConfigError, DataError

FETCHED = [name for name, entry in DATASETS.items() if entry.downloads]
OFFERED = [name for name in FETCHED if DATASETS[name].downloads[0].urls]


def test_all_sets_are_there() -> None:
    assert list(DATASETS) == [
        "digits",
        "mnist",
        "rotmnist",
        "rotmnist-regenerated",
        "fashion-mnist",
        "fashion-rotated",
        "svhn",
        "svhn-recropped",
        "cifar10",
        "stl10",
        "folder",
        "arrays",
    ]


def test_the_embedded_set_needs_no_folder(tmp_path: Path) -> None:
    assert load_dataset("digits", tmp_path / "nowhere").name == "digits"
    assert fetch_dataset("digits", tmp_path / "nowhere") == []
    assert check_files("digits", tmp_path / "nowhere") == {}
    assert not (tmp_path / "nowhere").exists()


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="no data set 'cifar'; did you mean 'cifar10'\\? `invint"):
        load_dataset("cifar")
    with pytest.raises(ConfigError, match="no data set 'imagenet'; `invint data` lists all"):
        load_dataset("imagenet")


def test_numbers_and_shapes_are_known_without_the_files(tmp_path: Path) -> None:
    known = {name: (entry.counts, entry.image_shape) for name, entry in DATASETS.items()}
    assert known["rotmnist-regenerated"] == ((12_000, 50_000), (1, 28, 28))
    assert known["stl10"] == ((5_000, 8_000), (3, 96, 96))
    assert known["svhn-recropped"] == (None, (3, 32, 32))
    assert known["folder"] == known["arrays"] == (None, None)
    digits = load_dataset("digits")
    assert known["digits"] == ((len(digits.train), len(digits.test)), digits.image_shape)
    assert is_here(f"folder:{tmp_path}")


@pytest.mark.parametrize("name", ["folder", "arrays", "folder:"])
def test_own_data_needs_a_path(name: str) -> None:
    with pytest.raises(ConfigError, match=r"name the path after a colon, as (folder|arrays):PATH"):
        load_dataset(name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("folder", {}),
        ("folder", {"skip_bad": True, "side": 32, "test_share": 0.3}),
        ("folder", {"drop_leaks": True, "min_per_class": 3, "skip_class": ("a",)}),
        ("folder", {"progress": max}),
        ("arrays", {"test_share": 0.5}),
    ],
)
def test_own_images_are_read_from_their_path_with_their_options(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand in for the reader, to see what is asked of it."""
    asked: list[object] = []

    def load(path: Path, **given: object) -> Dataset:
        asked.append((path, given))
        return load_dataset("digits")

    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], load=load))
    load_dataset(f"{name}:{tmp_path}", **options)
    assert asked == [(tmp_path, options)]


@pytest.mark.parametrize("name", ["folder", "arrays"])
def test_own_images_are_split_by_the_seed_that_is_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def load(_: Path, *, seed: int = 0) -> Dataset:
        seeds.append(seed)
        return load_dataset("digits")

    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], load=load))
    for seed in (0, 3):
        load_dataset(f"{name}:{tmp_path}", split_seed=seed)
    assert seeds == [0, 3]


def test_progress_may_be_asked_of_sets_that_have_none() -> None:
    dataset = load_dataset("digits", progress=lambda *_: pytest.fail("nothing is decoded"))
    assert dataset.name == "digits"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("digits", {"side": 32}, "digits: side is for folder:PATH; leave it out"),
        ("mnist", {"drop_leaks": True}, "mnist: drop_leaks is for folder:PATH and arrays:PATH;"),
        ("digits", {"min_per_class": 2}, "digits: min_per_class is for folder:PATH; leave it out"),
        ("digits", {"skip_class": ["a"]}, "digits: skip_class is for folder:PATH; leave it out"),
        ("mnist", {"skip_bad": True}, "mnist: skip_bad is for folder:PATH; leave it out"),
        ("arrays:a.npz", {"side": 32}, "arrays:a.npz: side is for folder:PATH; leave it out"),
        ("svhn", {"test_share": 0.1}, "svhn: test_share is for folder:PATH and arrays:PATH; leave"),
        ("mnist", {"split_seed": 1}, "mnist: split_seed is for folder:PATH and arrays:PATH; leave"),
    ],
)
def test_options_of_own_images_are_refused_elsewhere(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        load_dataset(name, **options)


def test_other_sets_take_no_path() -> None:
    with pytest.raises(ConfigError, match="mnist takes no path; --data-dir or INVINT_DATA says"):
        load_dataset("mnist:/data")


@pytest.mark.parametrize("name", OFFERED)
def test_missing_files_are_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    download = DATASETS[name].downloads[0]
    home = tmp_path / (DATASETS[name].home or name)
    expected = (
        f"{name}: {download.results[0].name} is not in {home}; `invint data fetch {name}` "
        f"downloads it, or put {download.file.name} there ({download.urls[0]})"
    )
    for function in (load_dataset, check_files):
        with pytest.raises(DataError, match=re.escape(expected)):
            function(name, tmp_path)
    assert not is_here(name, tmp_path)


def test_a_file_nobody_offers_is_asked_for(tmp_path: Path) -> None:
    expected = f"svhn-recropped: train_32x32.mat is not in {tmp_path}/svhn-recropped; put it there"
    with pytest.raises(DataError, match=re.escape(expected)):
        load_dataset("svhn-recropped", tmp_path)


def test_a_wrong_checksum_is_found(tmp_path: Path) -> None:
    for download in DATASETS["mnist"].downloads:
        path = tmp_path / "mnist" / download.file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(download.file.size or 0))
    assert is_here("mnist", tmp_path)
    assert is_here("rotmnist-regenerated", tmp_path)
    with pytest.raises(
        DataError, match=r"train-.*\.gz: expected the checksum f68b.*; remove it and"
    ):
        check_files("mnist", tmp_path)


def test_a_folder_in_place_of_a_file_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "svhn" / "train_32x32.mat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"train_32x32\.mat is not in"):
        load_dataset("svhn", tmp_path)


def test_the_data_folder_is_the_first_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INVINT_DATA", str(tmp_path / "named"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "named"
    monkeypatch.setenv("INVINT_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "invint"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "invint"


@pytest.mark.parametrize("name", FETCHED)
def test_files_are_described(name: str) -> None:
    for download in DATASETS[name].downloads:
        for url in download.urls:
            assert url.endswith(f"/{download.file.name}")
            assert download.file.md5 is not None
        for file in (download.file, *download.members):
            assert file.md5 is None or re.fullmatch("[0-9a-f]{32}", file.md5)
            assert Path(file.name).name == file.name


def test_the_regenerated_set_reads_the_files_of_mnist(tmp_path: Path) -> None:
    assert dataset_folder("rotmnist-regenerated", tmp_path) == tmp_path / "mnist"


@pytest.mark.parametrize("name", ["rotmnist-regenerated", "svhn-recropped"])
def test_sets_that_are_not_official_say_so(name: str) -> None:
    assert DATASETS[name].note
