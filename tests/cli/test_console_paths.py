"""Paths that look like markup, or that break lines, in what every command prints."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import TINY, Command
from support.written_runs import tiny_dataset, write_run

from invint.fit import FitConfig
from invint.train import Callback

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = ["runs[old] and a[/b]", "[bold]:smile:[/]"]


@pytest.fixture(params=FOLDERS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder whose name looks like markup; a slash in the name makes two of it."""
    folder: Path = tmp_path / request.param
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def complete(place: Path, finished: Path) -> Path:
    return Path(shutil.copytree(finished, place / finished.relative_to(finished.parents[3])))


def test_train(command: Command, complete: Path, place: Path) -> None:
    done = command("train", *TINY, "--runs", str(place))
    assert done.status == 0, done.err
    assert done.out.endswith(f"in {complete}\n")
    assert done.err == f"{complete} is complete; nothing to do\n"


@pytest.mark.slow
def test_train_with_a_bar(command: Command, place: Path) -> None:
    done = command("train", *TINY, "--set=data.augment=flip", "--runs", str(place))
    assert done.status == 0, done.err
    assert done.err.startswith(f"run {place}")
    assert f"in {place}" in done.out


def test_evaluate(command: Command, complete: Path) -> None:
    done = command("evaluate", str(complete), "--json")
    assert json.loads(done.out)["source"] == str(complete / "model.safetensors")
    assert command("evaluate", str(complete)).status == 0
    file = complete / "gone.onnx"
    done = command("evaluate", str(file), "--data", "digits")
    assert done.err == f"invint: {file}: there is no such file\n"


def test_predict(command: Command, complete: Path, place: Path) -> None:
    image = place / "a[/b] c.png"
    image.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(np.zeros((20, 20), dtype=np.uint8)).save(image)
    answers = place / "answers.csv"
    done = command("predict", str(complete), str(image), "--out", str(answers))
    assert done == (0, "", f"1 predictions in {answers}\n")
    assert str(image) in answers.read_text()
    done = command("predict", str(complete), str(image))
    assert str(image) in done.out


def test_audit(command: Command, complete: Path, place: Path) -> None:
    arguments = ("--images", "4", "--every", "180", "--out", str(place / "audit.json"))
    assert command("audit", str(complete), *arguments).status == 0
    done = command("audit", str(place), *arguments)
    assert done.err.startswith(f"invint: {place}: expected the folder of a run")


def test_export(command: Command, complete: Path, place: Path) -> None:
    target = place / "network.safetensors"
    done = command("export", str(complete), "--format", "safetensors", "--out", str(target))
    assert done.out.startswith(f"{target}: logits differ by at most")


@pytest.mark.slow
def test_monomials(command: Command, place: Path) -> None:
    run = place / "run"
    shutil.copytree(GOLDEN / "folders" / "monomials" / "complete", run)
    figure = place / "chosen.svg"
    done = command("monomials", str(run), str(run), "--out", str(figure))
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == f"1: {run}"
    assert f"2: {run}" in lines
    assert lines[-1] == f"drawn into {figure}"


@pytest.mark.slow
def test_report(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invint.report.page.load_data", lambda *_, **__: tiny_dataset())
    monkeypatch.setattr("invint.report.measure.IMAGES", 6)
    write_run(place / "runs", seed=0)
    unfinished = write_run(place / "runs", seed=1)
    (unfinished / "result.json").unlink()
    page = place / "page.html"
    done = command("report", str(place / "runs"), "--out", str(page))
    assert done.status == 0, done.err
    assert str(unfinished) in done.err
    assert done.out.splitlines()[-1] == f"open {page.as_uri()}"


@pytest.mark.unchecked
def test_data(command: Command, place: Path) -> None:
    assert command("data", "--data-dir", str(place)).out.endswith(f"data folder: {place}\n")
    sheet = place / "sheet.png"
    assert command("data", "show", "digits", "--out", str(sheet)).out == f"{sheet}\n"
    for name in ("cat", "dog"):
        (place / name).mkdir()
        for index in range(10):
            pixels = np.full((20, 20), 20 * index + len(name + name[0]), dtype=np.uint8)
            pixels[0, 0] = ord(name[0])
            Image.fromarray(pixels).save(place / name / f"{index}[/i].png".replace("/", ""))
    (place / "cat" / "bad[red].png").write_bytes(b"")
    sheet.unlink()
    done = command("data", "check", f"folder:{place}", "--skip-bad")
    assert done.status == 0, done.err
    assert f"folder    {place}: a folder for each class\n" in done.out
    assert "cat/bad[red].png: is empty" in done.out


@dataclass
class Fitted:
    """As much of the outcome of a fit as is printed."""

    advice: str
    files: dict[str, Path]


def test_fit(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit_folder(config: FitConfig, out: Path, *, callback: Callback) -> Fitted:
        callback.on_note(f"reading {config.folder}\nand more")
        files = {"report": out / "report.html", "safetensors": out / "model.safetensors"}
        return Fitted(f"The advice on {config.folder}.\n", files)

    monkeypatch.setattr("invint.fit.fit_folder", fit_folder)
    done = command("fit", str(place), "--out", str(place / "out"))
    assert done.err == f"reading {place}\nand more\n"
    assert done.out.startswith(f"The advice on {place}.\n")
    assert (place / "out" / "report.html").as_uri() in done.out
    assert f"invint serve '{place / 'out' / 'model.safetensors'}'" in done.out


@pytest.mark.parametrize("name", ["a b [c].onnx", "a[/b].onnx", "a\nb.onnx", "a\x1b[31m.onnx"])
@pytest.mark.parametrize("command_name", ["evaluate", "audit", "predict", "export"])
def test_a_missing_network_is_one_clear_line(
    command: Command, tmp_path: Path, name: str, command_name: str
) -> None:
    extra = {"predict": ["image.png"], "evaluate": ["--data=digits"], "audit": ["--data=digits"]}
    done = command(command_name, str(tmp_path / name), *extra.get(command_name, []))
    assert (done.status, done.out) == (2, "")
    shown = str(tmp_path / name).replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert done.err.startswith(f"invint: {shown}: ")
    assert len(done.err.splitlines()) == 1
    assert "\x1b" not in done.err
