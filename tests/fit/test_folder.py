import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from support.browser import browser_page
from support.folders import (
    digit_pictures,
    listed_digits,
    six_and_nine,
    turned,
    turned_digits,
    write,
)
from typer.testing import CliRunner

from invint.cli.fit import fit
from invint.errors import ConfigError, DataError, Interrupted
from invint.export import load_model
from invint.fit import FitConfig, FitResult, Plan, fit_folder, name_of
from invint.predict import predict
from invint.study.records import read_predictions
from invint.study.statistics import BETTER
from invint.train import Callback
from invint.train.setup import load_data

PLAN = Plan(side=16, batch_size=32, steps=45, seeds=1)
SHORT = Plan(side=16, batch_size=16, steps=2, seeds=1)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("invint.report.measure.IMAGES", 24)
        yield


class Notes(Callback):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_note(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def orientation(tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    root = tmp_path_factory.mktemp("six-and-nine")
    config = FitConfig(folder=six_and_nine(root / "digits"), test_share=0.3)
    return fit_folder(config, root / "out", plan=PLAN)


@pytest.mark.slow
def test_classes_that_differ_by_orientation_are_named(orientation: FitResult) -> None:
    (pair,) = orientation.findings.confusions
    assert pair.classes == (1, 2)
    assert "6 and 9: confused" in orientation.advice
    assert "do not use an invariant network to tell them apart" in orientation.advice
    assert "differ by their orientation" in orientation.advice
    assert orientation.findings.best.recipe == "fit/cnn"
    assert "The ordinary network, seed 0: the lowest error on the val" in orientation.advice


@pytest.mark.slow
def test_the_network_works_on_new_pictures(orientation: FitResult, tmp_path: Path) -> None:
    write(tmp_path / "new", digit_pictures(0, count=12, first=100))
    for kind in ("onnx", "safetensors"):
        answers = list(predict(orientation.files[kind], [tmp_path / "new"]))
        assert sum(answer.label == "0" for answer in answers) >= 10
    assert load_model(orientation.files["onnx"]).card.class_names == ("0", "6", "9")


@pytest.mark.slow
def test_the_report_opens_and_holds_the_advice(orientation: FitResult, tmp_path: Path) -> None:
    with browser_page(orientation.files["report"]) as visit:
        text = visit.page.inner_text("body")
        visit.page.screenshot(path=tmp_path / "report.png", full_page=True)
    assert "digits: does rotation invariance help?" in text
    assert "6 and 9: confused" in text
    assert "Accuracy against angle" in text
    assert "Test error in %, digits" in text
    assert "arrays:" not in text
    assert "Not shown: the data set" not in text


@pytest.mark.slow
def test_invariance_is_said_to_help_where_images_are_turned(tmp_path: Path) -> None:
    config = FitConfig(folder=turned_digits(tmp_path / "digits"))
    result = fit_folder(config, tmp_path / "out", plan=PLAN)
    with_ordinary = result.findings.comparisons[0]
    assert with_ordinary.verdict == BETTER
    assert "fewer errors" in result.advice
    assert "In short: rotation invariance helps on these images." in result.advice
    assert result.findings.best.test_images == 4 * 80


@pytest.mark.slow
def test_groups_of_a_table_are_never_divided(tmp_path: Path) -> None:
    config = FitConfig(folder=listed_digits(tmp_path / "slides"))
    notes = Notes()
    result = fit_folder(config, tmp_path / "out", plan=replace(SHORT, seeds=2), callback=notes)
    run = result.findings.best
    assert run.folder is not None
    subset = json.loads((run.folder / "subset.json").read_text())
    train = load_data(config.data(SHORT.side), None).train
    assert train.groups is not None
    learnt, chosen_by = (
        set(train.groups[subset[key]].tolist()) for key in ("indices", "validation")
    )
    assert learnt
    assert chosen_by
    assert not learnt & chosen_by
    assert "groups of test images" in result.advice
    assert "over 2 seeds" in result.advice
    assert notes.lines[0].startswith("folder")
    assert "[8/8] steerable network with integration, seed 1" in notes.lines


class Impatient(Callback):
    """Stops the third run at its first step."""

    def __init__(self) -> None:
        self.runs = 0

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        self.runs += 1

    def on_step(self, step: int) -> None:  # noqa: ARG002
        if self.runs == 3:
            raise Interrupted("stopped")


@pytest.mark.slow
def test_the_same_again_resumes(tmp_path: Path) -> None:
    root = listed_digits(tmp_path / "slides")
    config, out = FitConfig(folder=root, minutes=1.0), tmp_path / "out"
    with pytest.raises(Interrupted):
        fit_folder(config, out, plan=SHORT, callback=Impatient())
    results = {path: path.stat().st_mtime_ns for path in out.rglob("result.json")}
    assert len(results) == 2
    result = fit_folder(config, out)  # with the plan that was begun
    assert result.plan == SHORT
    assert {path: path.stat().st_mtime_ns for path in results} == results
    with pytest.raises(ConfigError, match=r"begun with minutes 1\.0; choose another folder"):
        fit_folder(replace(config, minutes=2.0), out)
    (root / "pictures" / "batch-0" / "000.png").unlink()
    (root / "pictures" / "batch-0" / "001.png").rename(root / "pictures" / "batch-0" / "000.png")
    table = (root / "labels.csv").read_text().splitlines()
    (root / "labels.csv").write_text("\n".join(line for line in table if "0/001" not in line))
    with pytest.raises(DataError, match="the pictures have changed since this was begun"):
        fit_folder(config, out)
    (out / "plan.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged; remove it"):
        fit_folder(config, out)


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


@pytest.mark.slow
def test_bad_files_are_named_and_can_be_left_out(hostile: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="4 bad file") as caught:
        fit_folder(FitConfig(folder=hostile), tmp_path / "out", plan=SHORT)
    for name in ("0/empty.png", "0/text.jpg", "1/cut.png", "1/away.png", "--skip-bad"):
        assert name in str(caught.value)
    result = fit_folder(FitConfig(folder=hostile, skip_bad=True), tmp_path / "out", plan=SHORT)
    assert all(path.is_file() for path in result.files.values())


@pytest.mark.slow
def test_the_command_measures_trains_and_prints_the_advice(tmp_path: Path) -> None:
    for digit in (0, 1):
        write(tmp_path / "digits" / str(digit), digit_pictures(digit, count=30))
    app = typer.Typer()
    app.command()(fit)
    arguments = [str(tmp_path / "digits"), "--minutes", "0.001", "--side", "16"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "measuring how fast this machine is" in result.stderr
    planned = "images of 16 x 16 pixels; 4 networks, each trained once, for 30 steps: about"
    assert planned in result.stderr
    assert result.stdout.startswith("The networks\nright answers")
    assert "The time was too short for a whole training" in result.stdout
    assert "One seed: another start or split may come out otherwise" in result.stdout
    assert (tmp_path / "out" / "advice.txt").read_text() in result.stdout
    *_, report, label, page = result.stdout.splitlines()
    assert report.endswith((tmp_path / "out" / "report.html").as_uri())
    assert f"invint predict {tmp_path / 'out' / 'model.onnx'} PICTURES" in label
    assert f"invint serve {tmp_path / 'out' / 'model.onnx'}" in page


def test_pictures_are_called_by_their_folder_or_list(tmp_path: Path) -> None:
    (tmp_path / "photos.v2").mkdir()
    (tmp_path / "photos.csv").write_text("")
    assert name_of(tmp_path / "photos.v2") == "photos.v2"
    assert name_of(tmp_path / "photos.v2" / "..") == tmp_path.name
    assert name_of(tmp_path / "photos.csv") == "photos"
    assert name_of(Path("/")) == "images"


def test_wrong_configes_are_one_line(tmp_path: Path) -> None:
    root = tmp_path / "pictures"
    with pytest.raises(DataError, match="no such folder"):
        fit_folder(FitConfig(folder=root), tmp_path / "out")
    root.mkdir()
    with pytest.raises(DataError, match="at least two classes, found none"):
        fit_folder(FitConfig(folder=root), tmp_path / "out")
    write(root / "0", digit_pictures(0, count=3))
    with pytest.raises(DataError, match="at least two classes, found only '0'"):
        fit_folder(FitConfig(folder=root), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write(root / "1", digit_pictures(1, count=1))
    with pytest.raises(DataError, match="class '1' has too few pictures"):
        fit_folder(FitConfig(folder=root), tmp_path / "out", plan=SHORT)
    assert not (tmp_path / "out").exists()
    write(root / "1", digit_pictures(1, count=2))
    with pytest.raises(DataError, match="too few pictures to learn from and to choose by"):
        fit_folder(FitConfig(folder=root), tmp_path / "out", plan=SHORT)
    with pytest.raises(ConfigError, match="would be taken for a class"):
        fit_folder(FitConfig(folder=root), root / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written to"):
        fit_folder(FitConfig(folder=root), tmp_path / "file" / "out")
    with pytest.raises(ConfigError, match="minutes above 0"):
        FitConfig(folder=root, minutes=0)
    with pytest.raises(ConfigError, match="even side of 16 or more, got 10"):
        FitConfig(folder=root, side=10)


@pytest.mark.slow
def test_predictions_are_those_of_the_run(orientation: FitResult) -> None:
    run = orientation.findings.best
    found = read_predictions(run)
    assert found is not None
    wrong = (found[0].argmax(dim=1) != found[1]).double().mean()
    assert float(wrong) == pytest.approx(run.error)
