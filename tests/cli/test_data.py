import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner, Result

from invint.cli.data import data_app
from invint.data import DATASETS, Split
from invint.errors import ConfigError, DataError

pytestmark = pytest.mark.unchecked  # typer passes another context than the one it documents
TITLES = ["name", "what", "images", "classes", "shape", "licence", "download", "here"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVINT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(data_app, arguments)


def lines(*arguments: str) -> list[str]:
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_the_list_says_what_is_here(tmp_path: Path) -> None:
    for download in DATASETS["mnist"].downloads:
        path = tmp_path / "data" / "mnist" / download.file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    header, *rows = lines()
    assert header.split() == TITLES
    here = {row.split()[0]: row.split()[-1] for row in rows[: len(DATASETS)]}
    assert list(here) == list(DATASETS)
    yes = [name for name, word in here.items() if word == "yes"]
    assert yes == ["digits", "mnist", "rotmnist-regenerated"]
    assert "60,000 + 10,000" in rows[1]
    assert "CC BY-SA 3.0" in rows[1]
    assert "12 MB" in rows[1]
    assert rows[-1] == f"data folder: {tmp_path / 'data'}"


def test_another_folder_can_be_named_before_or_after_the_command(tmp_path: Path) -> None:
    place = str(tmp_path / "elsewhere")
    assert lines("--data-dir", place)[-1] == f"data folder: {place}"
    for arguments in (
        ("--data-dir", place, "check", "svhn"),
        ("check", "svhn", "--data-dir", place),
    ):
        assert place in str(run(*arguments).exception)


def test_check_counts_the_classes_and_prints_the_fingerprint() -> None:
    printed = lines("check", "digits")
    assert printed[0].split() == ["class", "train", "test"]
    assert printed[1].split() == ["0", "99", "79"]
    assert printed[11].split() == ["all", "1,000", "797"]
    assert "fingerprint  c88e094e93366225" in printed
    assert "images       1 x 20 x 20 (channels, height, width)" in printed


def write_pictures(root: Path) -> None:
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for number in range(10):
            pixels = torch.full((20, 30), 12 * number + len(list(root.iterdir())))
            Image.fromarray(pixels.byte().numpy()).save(root / name / f"{number}.png")


def test_check_prints_the_scan_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "pets"
    write_pictures(root)
    for number in range(30):
        (root / "cat" / f"empty{number:02}.png").touch()
    stopped = run("check", f"folder:{root}")
    assert isinstance(stopped.exception, DataError)
    assert f"`invint data check folder:{root}` lists them" in str(stopped.exception)
    assert "pictures  20 good, 30 bad" in stopped.stdout.splitlines()
    for number in range(30):
        assert f"  cat/empty{number:02}.png: is empty; copy it again" in stopped.stdout.splitlines()
    options = ("--skip-bad", "--side", "16", "--test-share", "0.5")
    printed = lines("check", f"folder:{root}", *options)
    assert "test      50% held out, by class; no group and no set of copies is divided" in printed
    assert [line.split() for line in printed if line.startswith(("cat", "dog"))] == [
        ["cat", "5", "5"],
        ["dog", "5", "5"],
    ]
    assert "images       1 x 16 x 16 (channels, height, width)" in printed
    assert lines("show", f"folder:{root}", *options) == ["folder-pets.png"]


def test_leaks_and_classes_are_left_out_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "pets"
    write_pictures(root / "train")
    for name in ("cat", "dog", "one, two", "rare"):
        for split in ("train", "test"):
            (root / split / name).mkdir(parents=True, exist_ok=True)
            Image.new("L", (20, 30), 100 + ord(name[0])).save(root / split / name / "both.png")
    (root / "train" / "one, two" / "more.png").touch()
    options = ("--drop-leaks", "--min-per-class", "5", "--skip-class", "one, two")
    for command in ("check", "show"):
        printed = lines(command, f"folder:{root}", *options)
        if command == "check":
            assert [line.split() for line in printed if line.startswith(("cat", "dog"))] == [
                ["cat", "10", "1"],
                ["dog", "10", "1"],
            ]
            assert "leakage, left out (2)" in printed
            assert "  train/cat/both.png (train) = test/cat/both.png (test)" in printed
            assert "  class 'rare' is left out: 2 pictures, fewer than 5" in printed
    unknown = run("check", f"folder:{root}", "--skip-class", "cats").exception
    assert isinstance(unknown, ConfigError)
    assert "no class 'cats'; did you mean 'cat'? there are 'cat', 'dog', " in str(unknown)


@pytest.mark.parametrize("columns", [60, 80])
def test_names_are_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    printed = lines()
    shown = [line.split()[0] for line in printed[1:-2] if not line.startswith(" ")]
    assert shown == list(DATASETS)
    assert max(map(len, printed[:-1])) <= columns
    assert not any("…" in line for line in printed)


def test_check_says_what_is_missing() -> None:
    error = run("check", "stl10").exception
    assert isinstance(error, DataError)
    assert "`invint data fetch stl10` downloads it" in str(error)


def test_what_comes_with_invint_needs_no_fetching() -> None:
    assert lines("fetch", "digits") == ["digits comes with invint: nothing to fetch"]


def test_what_is_here_is_not_fetched_again(tmp_path: Path) -> None:
    for name in ("train_32x32.mat", "test_32x32.mat"):
        path = tmp_path / "data" / "svhn" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert lines("fetch", "svhn") == [f"svhn: 0 files fetched, all in {tmp_path / 'data' / 'svhn'}"]


def test_what_nobody_offers_is_asked_for(tmp_path: Path) -> None:
    error = run("fetch", "svhn-recropped").exception
    assert isinstance(error, DataError)
    assert str(error).endswith(f"; put it in {tmp_path / 'data' / 'svhn-recropped'}")


@pytest.mark.parametrize("name", ["folder", "arrays"])
def test_own_data_is_not_fetched(name: str) -> None:
    error = run("fetch", name).exception
    assert isinstance(error, ConfigError)
    assert str(error) == f"{name} is your own data: there is nothing to fetch"


@pytest.mark.parametrize("command", ["fetch", "check", "show"])
def test_an_unknown_name_gets_the_nearest_one(command: str) -> None:
    done = run(command, "digit")
    assert isinstance(done.exception, ConfigError)
    assert "did you mean 'digits'?" in str(done.exception)
    assert done.output == ""  # no empty line of a bar that never was


def test_show_writes_a_sheet(tmp_path: Path) -> None:
    assert lines("show", "digits", "--count", "20") == ["digits.png"]
    with Image.open(tmp_path / "digits.png") as sheet:
        assert sheet.size[0] > 700
    assert lines("show", "digits", "--out", "new/sheet.png") == ["new/sheet.png"]
    assert (tmp_path / "new" / "sheet.png").is_file()


def test_show_draws_other_images_for_another_seed(tmp_path: Path) -> None:
    for seed, name in (("0", "a"), ("0", "b"), ("1", "c")):
        lines("show", "digits", "--seed", seed, "--out", f"{name}.png")
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


def test_augmented_images_are_those_a_network_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stand in for the batches, to see what is asked of them."""
    asked: list[object] = []

    class Batches:
        def __init__(self, part: Split, **options: object) -> None:
            asked.append((len(part), options))

        def __call__(self, steps: range) -> list[tuple[Tensor, Tensor]]:
            asked.append(steps)
            return [(torch.zeros(9, 1, 20, 20), torch.arange(9))]

    module = ModuleType("invint.data.batches")
    module.__dict__["Batches"] = Batches
    monkeypatch.setitem(sys.modules, "invint.data.batches", module)
    assert lines("show", "digits", "--augment", "rotate, crop", "--count", "9") == [
        "digits-rotate-crop.png"
    ]
    options = {"batch_size": 9, "seed": 0, "augment": ("rotate", "crop")}
    assert asked == [(1000, options | {"mean": (0.0,), "std": (1.0,)}), range(1)]
    assert (tmp_path / "digits-rotate-crop.png").is_file()


@pytest.mark.parametrize("command", [(), ("fetch",), ("check",), ("show",)])
def test_help_ends_with_examples(command: tuple[str, ...]) -> None:
    printed = lines(*command, "--help")
    written = [line for line in printed if line.strip()]
    title, *examples = (line.strip() for line in written[-3:])
    assert title == "Examples:"
    assert all(each.startswith(" ".join(("invint data", *command))) for each in examples)
