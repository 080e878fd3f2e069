"""A folder of pictures through the commands, with the options of folders."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.pictures import write_noise

from invint import predict
from invint.cli import main
from invint.data import cache

TINY = "--scale=0.5 --threads=1 --set=train.batch_size=8 --set=train.epochs=1 --quiet"
OPTIONS = ("--skip-bad", "--side=20", "--test-share=0.5")


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a bad file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return f"folder:{write_noise(Path('sets/two'))}"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks on, and sees every fourth picture."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(cache, "CHUNK", 4)
    monkeypatch.setattr(predict, "BATCH", 4)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["invint", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.slow
def test_what_comes_after_training_reads_the_folder_as_the_run_did(
    pictures: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "digits/cnn", "--data", pictures, *TINY.split())
    assert run(monkeypatch, *train) == 2
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 1
    assert "1 bad file(s): a/bad.png: is empty." in printed[0]
    assert run(monkeypatch, *train, *OPTIONS) == 0
    (result,) = Path("runs").absolute().glob("*/*/*/*/result.json")
    folder = str(result.parent)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    absolute = ("train", "digits/cnn", "--data", f"folder:{Path('../sets/two').resolve()}")
    again = (*absolute, *TINY.split(), *OPTIONS, "--runs=../runs")
    capsys.readouterr()
    assert run(monkeypatch, *again, "--json") == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first == {
        "event": "note",
        "text": f"{os.path.relpath(folder)} is complete; nothing to do",
    }
    kept = json.loads(result.read_text())
    assert (kept["train_images"], kept["test_images"]) == (10, 10)
    capsys.readouterr()
    assert run(monkeypatch, "evaluate", folder, "--json") == 0
    assert json.loads(capsys.readouterr().out)["error"] == kept["error"]
    other = pictures.replace(":", ":../")
    assert run(monkeypatch, "evaluate", folder, "--data", other, "--skip-bad") == 0
    assert run(monkeypatch, "audit", folder, "--images=4", "--every=90") == 0
    assert run(monkeypatch, "report", folder, "--out", "report.html") == 0
    assert "no such folder" not in Path("report.html").read_text()
    assert (result.parent / "turns.json").is_file()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("data check DATA --skip-bad", marks=pytest.mark.unchecked),
        pytest.param("data show DATA --skip-bad", marks=pytest.mark.unchecked),
        "train digits/cnn --data DATA",
        "study digits --data DATA",
        "tune digits/cnn --data DATA",
    ],
)
def test_decoding_is_shown_the_first_time_only(
    command: str, pictures: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those that train stop at the bad file, once it was read."""
    arguments = command.replace("DATA", pictures).split()
    before = set(Path().iterdir())
    for first in (True, False):
        assert run(monkeypatch, *arguments) == (0 if "--skip-bad" in arguments else 2)
        printed = capfd.readouterr()
        assert ("/21" in printed.err) == first
        assert "/21" not in printed.out
    left = {path.name for path in set(Path().iterdir()) - before}
    assert left <= {"cache", "folder-two.png"}


def test_decoding_is_not_shown_where_nobody_looks_on(
    pictures: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "CHUNK", 4)
    assert run(monkeypatch, "train", "digits/cnn", "--data", pictures) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("invint: ")


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_what_comes_after_training_shows_how_far_it_is(
    pictures: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    train = ("train", "digits/cnn", "--data", pictures, *TINY.split(), *OPTIONS)
    assert run(monkeypatch, *train) == 0
    assert capfd.readouterr().err == ""  # as --quiet says
    (result,) = Path("runs").glob("*/*/*/*/result.json")
    folder = str(result.parent)
    for command in ("evaluate", "audit"):
        Path("cache").rename(f"cache before {command}")
        assert run(monkeypatch, command, folder) == 0
        assert "decoding" in capfd.readouterr().err
    assert run(monkeypatch, "predict", folder, "sets/two", "--skip-bad") == 0
    printed = capfd.readouterr()
    assert "predicting" in printed.err
    assert len(printed.out.splitlines()) == 22


def test_what_is_left_out_is_a_choice_of_the_run(
    pictures: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study counts what is left, and a training is refused for the name as it was typed."""
    name = "with, comma [and] brackets"
    folder = Path(pictures.partition(":")[2])
    (folder / "b").rename(folder / name)
    write_noise(Path("sets/other"))
    for each in ("a", "b"):
        (Path("sets/other") / each).rename(folder / f"other {each}")
    options = ("--skip-bad", "--skip-class", name, "--skip-class=other a", "--min-per-class=5")
    study = ("study", "digits", "--data", pictures, "--only=cnn", "--seeds=1", "--dry-run")
    assert run(monkeypatch, *study, *options, "--drop-leaks") == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "digits/cnn" in line]
    assert row.split()[1] == "16"
    train = ("train", "digits/cnn", "--data", pictures, *options, "--min-per-class=11")
    assert run(monkeypatch, *train) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "expected at least two classes, found 0 large enough for --min-per-class" in line
    assert not Path("runs").exists()


def test_a_study_counts_the_images_of_a_folder_with_its_options(
    pictures: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = ("study", "digits", "--data", pictures, "--only=cnn", "--seeds=1", "--dry-run")
    assert run(monkeypatch, *study) == 2
    capsys.readouterr()
    assert run(monkeypatch, *study, *OPTIONS) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "digits/cnn" in line]
    assert row.split()[1] == "10"
