"""`fit_folder` from end to end, on folders of real digits."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from support.folders import (
    digit_pictures,
    listed_digits,
    turned,
    turned_digits,
    write,
)
from torch import Tensor
from typer.testing import CliRunner

from invint.cli.fit import fit
from invint.data.pictures import read_picture
from invint.errors import ConfigError, DataError, Interrupted
from invint.export import load_model, load_network
from invint.fit import FitConfig, FitResult, fit_folder, name_of
from invint.fit.schedule import Stage
from invint.models.efficientnet import efficientnet_lite0
from invint.predict import predict
from invint.study.records import read_predictions
from invint.train import Callback


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("invint.report.measure.IMAGES", 12)
        patch.setattr("invint.fit.answers.TURNED_LEAST", 3)
        patch.setattr("invint.fit.answers.CIRCLE", range(0, 360, 45))
        patch.setattr("invint.fit.answers.MOVED", 4)
        patch.setattr("invint.fit.linear.REPEATS", 1)
        patch.setattr("invint.fit.features.PROBED", 1)
        patch.setattr("invint.fit.candidates.ENOUGH", 45)
        patch.setattr("invint.fit.candidates.EPOCHS", 1)
        yield


def drawn_weights() -> dict[str, Tensor]:
    """Return weights of the backbone as nobody has trained them: they tell digits apart too."""
    torch.manual_seed(0)
    state: dict[str, Tensor] = efficientnet_lite0(num_classes=1000).state_dict()
    return state


@pytest.fixture
def backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invint.fit.candidates.has_weights", lambda: True)
    monkeypatch.setattr("invint.models.efficientnet.read_weights", drawn_weights)
    monkeypatch.setattr("invint.fit.candidates.SIDES", (32, 48))


class Notes(Callback):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_note(self, text: str) -> None:
        self.lines.append(text)


def quick(folder: Path, **options: object) -> FitConfig:
    return FitConfig(**{"folder": folder, "minutes": 5.0, "side": 16, "backbone": "none"} | options)  # type: ignore[arg-type]


def leave_out_gradients(patch: pytest.MonkeyPatch) -> None:
    """Begin with the networks from scratch."""
    nothing = Stage("nothing", lambda: 0.0, lambda: None)
    patch.setattr("invint.fit.search.Search._gradients_stage", lambda _, **__: nothing)


@pytest.fixture(scope="module")
def from_scratch(tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    root = tmp_path_factory.mktemp("turned")
    with pytest.MonkeyPatch.context() as patch:
        leave_out_gradients(patch)
        return fit_folder(quick(turned_digits(root / "digits")), root / "out")


@pytest.mark.slow
@pytest.mark.unchecked
def test_without_a_backbone_gradients_are_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.fit.search.Search._from_scratch", lambda _: iter(()))
    monkeypatch.setattr("invint.fit.folder.write_report", lambda *_, **__: None)
    root = tmp_path / "digits"
    for digit in (0, 1, 4):
        write(root / "train" / str(digit), digit_pictures(digit, count=12))
        write(root / "test" / str(digit), digit_pictures(digit, count=8, first=20))
    result = fit_folder(quick(root, side=None), tmp_path / "out")
    (gradients,) = result.answers
    assert gradients.candidate.name == "gradients"
    assert gradients.side == 64
    assert gradients.turned.changed == 0
    assert gradients.run.error < 0.2  # guessing makes 0.67
    pictures = [root / "test" / digit for digit in "014"]
    found = [each.label for each in predict(result.files["onnx"], pictures)]
    wrong = sum(
        label != digit for label, digit in zip(found, 8 * "0" + 8 * "1" + 8 * "4", strict=True)
    )
    assert wrong / 24 == pytest.approx(gradients.run.error)


@pytest.mark.slow
@pytest.mark.unchecked
def test_without_a_backbone_a_steerable_network_is_trained(from_scratch: FitResult) -> None:
    names = [each.candidate.name for each in from_scratch.answers]
    assert names == ["steerable", "plain"]
    steerable, plain = from_scratch.answers
    assert from_scratch.best is steerable
    assert steerable.turned.changed == 0
    assert steerable.run.train_images == plain.run.train_images == 4 * 60  # both learn from all
    assert steerable.run.error < plain.run.error
    assert "use steerable" in from_scratch.advice.lower()
    assert "pip install 'invint[pretrained]'" in from_scratch.advice
    assert "320 test pictures, never used to choose anything" in from_scratch.advice


@pytest.mark.slow
@pytest.mark.unchecked
def test_the_network_works_on_new_pictures_however_they_are_turned(
    from_scratch: FitResult, tmp_path: Path
) -> None:
    write(tmp_path / "new", digit_pictures(0, count=12, first=140))
    for kind in ("onnx", "safetensors"):
        answers = list(predict(from_scratch.files[kind], [tmp_path / "new"]))
        assert sum(answer.label == "0" for answer in answers) >= 10
    network = load_model(from_scratch.files["onnx"])
    assert network.card.class_names == ("0", "1", "4", "7")
    images = torch.stack([read_picture(p, side=16) for p in (tmp_path / "new").iterdir()]) / 255
    for turns in range(1, 4):
        moved = network(torch.rot90(images, turns, (2, 3)))
        torch.testing.assert_close(moved, network(images), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.unchecked
def test_the_report_holds_the_advice_and_the_same_names(from_scratch: FitResult) -> None:
    text = from_scratch.files["report"].read_text()
    assert "a classifier that keeps its answers as pictures turn" in text
    assert "folder:" not in text.partition("<footer")[0].partition('id="runs"')[0]
    for name in ("steerable", "plain"):
        assert f">{name}<" in text or f"</span>{name}" in text
    found = read_predictions(from_scratch.best.run)
    assert found is not None
    wrong = (found[0].argmax(dim=1) != found[1]).double().mean()
    assert float(wrong) == pytest.approx(from_scratch.best.run.error)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.usefixtures("backbone")
def test_with_a_backbone_its_features_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.fit.search.Search._tuned", lambda _: iter(()))
    monkeypatch.setattr("invint.fit.search.Search._from_scratch", lambda _: iter(()))
    monkeypatch.setattr("invint.fit.folder.export_model", lambda *_: None)
    reports: list[Path] = []
    monkeypatch.setattr(
        "invint.fit.folder.write_report", lambda _, path, **__: reports.append(path)
    )
    root, notes = tmp_path / "digits", Notes()
    for digit in (0, 1, 4):
        write(root / "train" / str(digit), digit_pictures(digit, count=12))
        write(root / "test" / str(digit), digit_pictures(digit, count=8, first=20))
    config = quick(root, side=None, backbone=None)
    result = fit_folder(config, tmp_path / "out", callback=notes)
    names = [each.candidate.name for each in result.answers]
    assert len(reports) == 2  # of the first answer and of all: they take a while
    assert names == ["orbit", "upright", "gradients", "orbit-posed", "orbit-mirrored"]
    orbit, upright, gradients, posed, mirrored = result.answers
    assert result.best in (orbit, gradients, posed, mirrored)
    assert orbit.run.error < 0.4  # guessing makes 0.67
    assert {each.turned.changed for each in (orbit, gradients, posed, mirrored)} == {0.0}
    assert upright.turned.changed > 0
    assert "which size: 36 pictures at 32 x 32 pixels" in notes.lines
    for answer in (orbit, gradients, posed, mirrored):
        network, card = load_network(answer.store.model)
        network.double().eval()
        images = torch.rand(2, 1, *card.image_size, dtype=torch.float64)
        moved = network(torch.rot90(images, 1, (2, 3)))
        torch.testing.assert_close(moved, network(images), atol=1e-9, rtol=0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    computed = json.loads((tmp_path / "out" / "features" / "computed.json").read_text())
    assert ["pretrained", 32, 7] in computed
    assert ["gradients", 64, 3] in computed
    again = fit_folder(config, tmp_path / "out")  # all is there
    assert [each.run.error for each in again.answers] == [each.run.error for each in result.answers]
    runs = {path: at for path, at in before.items() if "runs" in path.parts}
    assert len(runs) == 5
    assert {path: path.stat().st_mtime_ns for path in runs} == runs


class Stopper(Callback):
    """Presses Ctrl-C at a step of the run of that number."""

    def __init__(self, run: int) -> None:
        self.run, self.runs = run, 0

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        self.runs += 1

    def on_step(self, step: int) -> None:
        if self.runs == self.run and step == 3:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.unchecked
def test_ctrl_c_writes_what_is_done_and_the_same_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.fit.folder.export_model", lambda *_: None)
    leave_out_gradients(monkeypatch)
    root = listed_digits(tmp_path / "slides")
    config, out = quick(root), tmp_path / "out"
    with pytest.raises(Interrupted, match="stopped before there was an answer"):
        fit_folder(config, out, callback=Stopper(1))
    assert not (out / "advice.txt").exists()
    with pytest.raises(Interrupted, match="what was done by then is in"):
        fit_folder(config, out, callback=Stopper(3))  # in the ordinary network
    for name in ("advice.txt", "report.html", "model.safetensors"):
        assert (out / name).stat().st_size
    assert "plain" not in (out / "advice.txt").read_text()
    results = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(results) == 2
    result = fit_folder(config, out)
    assert "groups of test pictures" in result.advice
    assert {path: path.stat().st_mtime_ns for path in results} == results
    with pytest.raises(ConfigError, match=r"begun with minutes 5\.0; choose another folder"):
        fit_folder(replace(config, minutes=2.0), out)
    (root / "pictures" / "batch-0" / "000.png").unlink()
    (root / "pictures" / "batch-0" / "001.png").rename(root / "pictures" / "batch-0" / "000.png")
    table = (root / "labels.csv").read_text().splitlines()
    (root / "labels.csv").write_text("\n".join(line for line in table if "0/001" not in line))
    with pytest.raises(DataError, match="the pictures have changed since this was begun"):
        fit_folder(config, out)
    plan = json.loads((out / "plan.json").read_text())
    (out / "plan.json").write_text(json.dumps(plan | {"format": 2}))
    with pytest.raises(ConfigError, match="begun by another version; choose another folder"):
        fit_folder(config, out)
    (out / "plan.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged; remove it"):
        fit_folder(config, out)


class Hurried:
    """A clock that is ahead once somebody has begun to train."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class Late(Callback):
    def __init__(self, clock: Hurried) -> None:
        self.clock, self.runs = clock, 0

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        self.runs += 1

    def on_step(self, step: int) -> None:
        if self.runs == 3 and step == 2:  # the ordinary network
            self.clock.ahead = 1e4


@pytest.mark.slow
@pytest.mark.unchecked
def test_what_takes_longer_than_measured_is_stopped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.fit.folder.export_model", lambda *_: None)
    monkeypatch.setattr("invint.fit.folder.write_report", lambda *_, **__: None)
    leave_out_gradients(monkeypatch)
    clock = Hurried()
    config = quick(listed_digits(tmp_path / "slides"))
    result = fit_folder(config, tmp_path / "out", callback=Late(clock), clock=clock)
    assert [each.name for each in result.skipped] == [
        "ordinary network from scratch, 16 x 16 pixels"
    ]
    assert "was stopped because it took longer than" in result.advice
    assert [each.candidate.name for each in result.answers] == ["steerable"]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    root = tmp_path / "hostile"
    for digit in (0, 1):
        write(root / str(digit), turned(digit_pictures(digit, count=30)))
    (root / "0" / "empty.png").write_bytes(b"")
    (root / "0" / "text.jpg").write_text("no picture")
    shutil.copy(root / "1" / "000.png", root / "1" / "cut.png")
    (root / "1" / "cut.png").write_bytes((root / "1" / "000.png").read_bytes()[:60])
    (root / "1" / "away.png").symlink_to("/etc/passwd")
    (root / "notes.txt").write_text("not a picture")
    return root


def test_bad_files_are_named_and_nothing_is_left_behind(hostile: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="4 bad file") as caught:
        fit_folder(quick(hostile), tmp_path / "out")
    for name in ("0/empty.png", "0/text.jpg", "1/cut.png", "1/away.png", "--skip-bad"):
        assert name in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.unchecked
def test_the_command_prints_the_advice_and_what_comes_next(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.fit.folder.export_model", lambda *_: None)
    write(hostile / "rare", digit_pictures(2, count=1))
    write(hostile / "odd", digit_pictures(3, count=8))
    app = typer.Typer()
    app.command()(fit)
    arguments = [str(hostile), "--minutes", "0.001", "--side", "16", "--backbone", "none"]
    arguments += ["--skip-bad", "--min-per-class", "5", "--skip-class", "odd", "--drop-leaks"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("In short\n")
    assert (tmp_path / "out" / "advice.txt").read_text() in result.stdout
    assert "give more --minutes" in result.stdout
    *_, report, label, page = result.stdout.splitlines()
    assert report.endswith((tmp_path / "out" / "report.html").as_uri())
    assert f"invint predict {tmp_path / 'out' / 'model'}" in label
    assert f"invint serve {tmp_path / 'out' / 'model'}" in page


def test_pictures_are_called_by_their_folder_or_list(tmp_path: Path) -> None:
    (tmp_path / "photos.v2").mkdir()
    (tmp_path / "photos.csv").write_text("")
    assert name_of(tmp_path / "photos.v2") == "photos.v2"
    assert name_of(tmp_path / "photos.v2" / "..") == tmp_path.name
    assert name_of(tmp_path / "photos.csv") == "photos"
    assert name_of(Path("/")) == "images"


def test_wrong_wishes_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    with pytest.raises(DataError, match="no such folder"):
        fit_folder(quick(root), tmp_path / "out")
    root.mkdir()
    with pytest.raises(DataError, match="at least two classes, found none"):
        fit_folder(quick(root), tmp_path / "out")
    write(root / "0", digit_pictures(0, count=3))
    with pytest.raises(DataError, match="at least two classes, found only '0'"):
        fit_folder(quick(root), tmp_path / "out")
    write(root / "1", digit_pictures(1, count=1))
    with pytest.raises(DataError, match="class '1' has too few pictures"):
        fit_folder(quick(root), tmp_path / "out")
    write(root / "1", digit_pictures(1, count=2))
    with pytest.raises(DataError, match=r"too few are there of '1' \(1\); .*--min-per-class 2"):
        fit_folder(quick(root), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="would be taken for a class"):
        fit_folder(quick(root), root / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written to"):
        fit_folder(quick(root), tmp_path / "file" / "out")
    with pytest.raises(ConfigError, match="minutes above 0"):
        quick(root, minutes=0)
    with pytest.raises(ConfigError, match="even side of 16 or more, got 10"):
        quick(root, side=10)
    with pytest.raises(ConfigError, match="a seed of 0 or more, got -1"):
        quick(root, seed=-1)
    with pytest.raises(ConfigError, match=r"data\.test_share must be"):
        quick(root, test_share=1.0)
    with pytest.raises(ConfigError, match="--backbone resnet50"):
        fit_folder(quick(root, backbone="resnet50"), tmp_path / "out")
