import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from invint.cli import EXAMPLES, main
from invint.cli.terminal.progress import Bar
from invint.models.registry import PAPER, summaries, summarize
from invint.version import __version__


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "invint", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )


@pytest.mark.slow
def test_models_prints_parameters_beside_the_papers() -> None:
    done = run("models", "sf-wrn16-4", "cnn7", "--head", "local-ws")
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.split()[:5] == ["network", "head", "group", "widths", "n_F"]
    assert [line.split()[0] for line in lines] == ["cnn7", "sf-wrn16-4"]
    assert "9-14-28-49" in lines[1]
    assert "2,735,865" in lines[1]
    assert "-1.2%" in lines[1]


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"invint {__version__}\n")


@pytest.mark.slow
def test_wrong_names_get_one_line_and_status_2() -> None:
    done = run("models", "sfcn")
    assert done.returncode == 2
    assert done.stderr.startswith("invint: no network 'sfcn'; there are cnn7, sfcnn")
    assert len(done.stderr.splitlines()) == 1


def test_every_figure_of_the_paper_belongs_to_a_network() -> None:
    assert set(PAPER) <= set(summaries())


def test_operations_are_those_of_the_convolutions() -> None:
    """Count the multiplications of the small plain network by hand."""
    convolutions = 25 * (20 * 20 * 16 + 10 * 10 * 16 * 24 + 5 * 5 * 24 * 40)
    dense = 40 * 32 + 32 * 32 + 32 * 10
    assert summarize("cnn-small").operations == convolutions + dense


TINY = (
    "--size=40 --scale=0.08 --threads=1 --set=model.widths=2,3,4 --set=model.n_fc=6 "
    "--set=model.group=C4 --set=train.batch_size=16 --set=train.epochs=4"
)


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run commands in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["invint", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(int(stop.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is complete."""
    runs = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-m", "invint", "train", *TINY.split(), "--quiet"]
    done = subprocess.run([*command, "--runs", str(runs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "error on 797 test images of digits, from 40, scaled to 0.08" in done.stdout
    (result,) = runs.glob("*/*/*/*/result.json")
    return result.parent


@pytest.mark.slow
def test_train_in_json_is_one_object_a_line(command: Command, tmp_path: Path) -> None:
    arguments = ("train", *TINY.split(), "--json", "--tensorboard", "--runs", str(tmp_path))
    done = command(*arguments)
    assert (done.status, done.err) == (0, "")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line["event"] for line in lines] == ["started", *["epoch"] * 4, "finished"]
    folder = Path(lines[0]["folder"])
    assert lines[-1].items() >= json.loads((folder / "result.json").read_text()).items()
    assert list((folder / "tensorboard").glob("events.*"))
    again = [json.loads(line) for line in command(*arguments).out.splitlines()]
    assert [line["event"] for line in again] == ["note", "finished"]
    assert again[-1] == lines[-1]


@pytest.mark.slow
def test_train_shows_a_bar_on_stderr_and_the_result_on_stdout(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    done = command("train", *TINY.split(), "--runs", str(tmp_path))
    assert done.status == 0
    folder = tmp_path / finished.relative_to(finished.parents[3])
    assert done.err.startswith(f"run {folder}")
    assert "20/20" in done.err
    lines = done.out.splitlines()
    error = json.loads((finished / "result.json").read_text())["error"]
    assert lines[0].startswith(f"{error:.2%} error on 797 test images of digits, from 40")
    assert lines[1].endswith(f"in {folder}")


@pytest.mark.slow
def test_evaluate_counts_what_the_run_counted(command: Command, finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    done = command("evaluate", str(finished), "--json")
    assert done.status == 0
    assert json.loads(done.out)["error"] == result["error"]
    assert json.loads(done.out)["per_class"] == result["per_class"]
    table = command("evaluate", str(finished)).out.splitlines()
    assert table[0].split() == ["class", "images", "error"]
    assert table[-1].split() == ["all", "797", f"{result['error']:.2%}"]


@pytest.mark.slow
def test_evaluate_says_what_it_misses(command: Command, finished: Path, tmp_path: Path) -> None:
    file = finished / "model.safetensors"
    done = command("evaluate", str(file))
    assert done == (2, "", f"invint: {file}: a file does not say its data set; give --data NAME\n")
    done = command("evaluate", str(tmp_path))
    assert done.status == 2
    assert "expected the folder of a run, with recipe.json in it, or a file" in done.err
    (tmp_path / "recipe.json").write_text("{}")
    assert (
        "the run is not complete; resume with `invint train`"
        in command("evaluate", str(tmp_path)).err
    )


@pytest.mark.slow
def test_audit_turns_test_images(command: Command, finished: Path, tmp_path: Path) -> None:
    record = tmp_path / "audit.json"
    arguments = ("audit", str(finished), "--images=20", "--every=90")
    done = command(*arguments, "--out", str(record))
    assert done.status == 0, done.err
    assert done.out.startswith("digits/local-ws: 20 images of 20 x 20 pixels, float32\n")
    assert json.loads(record.read_text())["name"] == "digits/local-ws"
    assert "90" in done.out
    file = str(finished / "model.safetensors")
    done = command("audit", file, "--data=digits", *arguments[2:])
    assert done.out.startswith("sfcnn-small, local-ws: 20 images")
    assert command(*arguments, "--min-accuracy=1").status == 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "suffix"), [("torch", ".pt2"), ("safetensors", ".safetensors")])
def test_export_writes_a_file_that_evaluates_alike(
    command: Command, finished: Path, tmp_path: Path, name: str, suffix: str
) -> None:
    target = tmp_path / f"network{suffix}"
    done = command("export", str(finished), "--format", name, "--out", str(target))
    assert done.status == 0, done.err
    assert done.out.startswith(f"{target}: logits differ by at most ")
    scores = json.loads(command("evaluate", str(target), "--data=digits", "--json").out)
    result = json.loads((finished / "result.json").read_text())
    assert scores["error"] == pytest.approx(result["error"], abs=2 / 797)


@pytest.mark.slow
def test_export_writes_onnx_beside_the_run(command: Command, finished: Path) -> None:
    pytest.importorskip("onnxscript")
    assert command("export", str(finished)).status == 0
    done = command("evaluate", str(finished / "model.onnx"), "--data=digits", "--json")
    assert json.loads(done.out)["data"] == "digits"


@pytest.mark.slow
def test_export_refuses_what_it_cannot_do(command: Command, finished: Path) -> None:
    done = command("export", str(finished), "--format", "keras")
    assert done == (2, "", "invint: --format keras: there are onnx, torch, safetensors\n")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("invint.data.pictures") is None, reason="pictures cannot be read yet"
)
def test_predict_answers_for_pictures_and_folders(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    for number in range(3):
        pixels = np.full((20, 20), 80 * number, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    answers = tmp_path / "answers.csv"
    pictures = [str(tmp_path / f"{number}.png") for number in range(3)]
    done = command("predict", str(finished), *pictures, "--out", str(answers))
    assert done.status == 0, done.err
    with answers.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == pictures
    for row in rows:
        shares = {key: float(value) for key, value in row.items() if key.startswith("p(")}
        assert len(shares) == 10
        assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
        assert max(shares, key=lambda key: shares[key]) == f"p({row['label']})"
    assert command("predict", str(finished), str(tmp_path)).status == 2
    done = command("predict", str(finished), str(tmp_path), "--skip-bad", "--json")
    assert [bool(row["problem"]) for row in json.loads(done.out)] == [False, False, False, True]
    done = command("predict", str(finished), *pictures, "--out", "answers.txt")
    assert done.err == "invint: --out answers.txt: expected a .csv or .json file\n"


def test_brackets_in_a_path_are_no_markup(command: Command, finished: Path, tmp_path: Path) -> None:
    runs = tmp_path / "r [old] [/x]"
    shutil.copytree(finished, runs / finished.relative_to(finished.parents[3]))
    done = command("train", *TINY.split(), "--runs", str(runs), "--quiet")
    assert done.status == 0, done.err
    assert str(runs) in done.out


@pytest.mark.parametrize("content", ["{}", "[]", "[" * 100_000, '{"name": "x"}'])
def test_a_damaged_recipe_of_a_run_is_named(
    command: Command, finished: Path, tmp_path: Path, content: str
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "recipe.json").write_text(content)
    done = command("evaluate", str(tmp_path / "run"))
    assert (done.status, done.out) == (2, "")
    assert "run/recipe.json: " in done.err
    assert len(done.err.splitlines()) == 1


def test_a_run_without_its_network_says_so(
    command: Command, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    done = command("evaluate", str(tmp_path / "run"))
    assert "the run is complete, but its model.safetensors is gone; train it again" in done.err


def test_an_audit_that_fails_says_why(command: Command, finished: Path) -> None:
    done = command("audit", str(finished), "--every", "80", "--min-accuracy", "1", "--images", "20")
    assert done.status == 1
    assert done.err.endswith("invint: the accuracy falls below 100.0%\n")
    assert "320" in done.out  # the last turn before the circle closes


@pytest.mark.slow
def test_recipes_are_listed_and_shown() -> None:
    done = run("recipes")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert {"digits/local-ws", "rotmnist/sf-ii", "stl10/wrn"} <= set(names)
    shown = run("recipes", "show", "rotmnist/local-ws", "--set", "train.lr=0.5").stdout
    rows = {line.split()[0]: line.strip().split(maxsplit=2)[1:] for line in shown.splitlines()}
    assert rows["train.reg"] == ["0.001", "[1]"]
    assert rows["[1]"] == ["appendix,", "hyper-parameters on Rotated-MNIST, column Local-WS"]
    assert rows["train.lr"] == ["0.5"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train digits/cn", "no recipe 'digits/cn'; did you mean 'digits/cnn'? `invint recipes`"),
        (
            "train --set train.speed=3",
            "no value 'train.speed'; train has epochs, batch_size",
        ),
        (
            "train --data didgits",
            "no data set 'didgits'; did you mean 'digits'? `invint data` lists",
        ),
        (
            "train --scale 0",
            "train.scale must be from 1e-06 to 1, got 0",
        ),
        ("train --set train.accumulate=0", "train.accumulate must be from 1 to 1e+06, got 0"),
        ("train --set train.accumulate=33", "a batch of 64, got 33 parts; choose at most 32"),
        ("train --set train.lr=-1", "train.lr must be from 0 to 1e+30, got -1"),
        ("train --set train.lr=1e300", "train.lr must be from 0 to 1e+30, got 1e+300"),
        ("train --set train.reg=NaN", "train.reg must be from 0 to 1e+06, got nan"),
        ("train --set train.batch_size=1", "train.batch_size must be from 2 to 1e+06, got 1"),
        ("train --set model.n_fc=0", "model.n_fc must be from 1 to 100,000, got 0"),
        ("train --set data.validation=-0.5", "data.validation must be from 0 to 0.99, got -0.5"),
        ("train --set train.optimizer=lion", "no optimizer 'lion'; there are adam and sgd"),
        ("train --set train.decay=cosine", "no decay 'cosine'; there are exponential, step and"),
        ("train --set data.augment=zoom", "Batches: no augmentation 'zoom'; there are"),
        ("train --set data.validation=2", "data.validation must be from 0 to 0.99, got 2"),
        ("train --set model.name=vgg", "no network 'vgg'"),
        ("train --size 5", "subset of 'digits': 5 images cannot show 10 classes"),
        ("train --threads -1", "expected 1 to 1024 threads, got -1"),
        ("train --threads 100000", "expected 1 to 1024 threads, got 100000"),
        ("train --set train.lr=NaN", "train.lr must be from 0 to 1e+30, got nan"),
        ("train --set train.lr_decay_epochs=0", "expected one or more epochs above 0 for the"),
        ("train --set train.lr_decay_epochs=[]", "expected one or more epochs above 0 for the"),
        ("train --set data.test_turns=0", "data.test_turns must be from 1 to 360, got 0"),
        ("train --set model.dropout=2", "model.dropout must be from 0 to 1, got 2"),
        (
            "train digits/monomials --set selection.start=5",
            "selection: 5 monomials cannot be chosen out of 5; start with more",
        ),
        (
            "train digits/monomials --set selection.steps=[[2,5],[4,10]]",
            "selection: the number of monomials must fall at each step, got 20 → 5 → 10",
        ),
        (
            "train digits/monomials --set train.epochs=3",
            "selection: a step at epoch 4 does not fit a run of 3 epochs; use 0 to less than 3",
        ),
        (
            "train digits/monomials --set selection.steps=[[19.9,5]] --scale 0.05",
            "selection: the last choice falls on step 15, the end of a run of 15 steps; train",
        ),
        (
            "train digits/pooling --set selection.method=magnitude",
            "selection 'magnitude' needs the head 'monomials', got 'max'",
        ),
        (
            "train digits/monomials-magnitude-catalog --set selection.start=2 "
            "--set selection.steps=[[1,1]]",
            "a catalog of 3 factors with distances up to 2 needs 3 monomials, got 2; start with",
        ),
        (
            "train digits/monomials --set selection.steps=5",
            "selection.steps must be a list like [[10, 5]], got 5",
        ),
        ("train --device tpu", "expected the device cpu or cuda and the precision float32 or"),
        ("audit gone.onnx --every 0", "--every 0: expected degrees above 0, up to 360"),
        ("audit gone.onnx --every 1e-7", "--every 1e-07: that is more than 3,600 turns; use 0.1"),
        ("audit gone.onnx --images -1", "--images -1: expected 1 image or more"),
        ("audit gone.onnx --min-accuracy 95", "--min-accuracy 95: expected a share from 0 to 1"),
        ("audit gone.onnx --out .", ".: it is a folder, which no file takes the place of; name"),
        ("study digits --records /dev/null", "/dev/null: it is a device, which no file takes the"),
        ("models --head monomial", "no head 'monomial'; did you mean 'monomials'? there are max"),
        ("evaluate gone.onnx --data digits", "gone.onnx: there is no such file"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(*arguments.split(), *(["--quiet"] if arguments.startswith("train") else []))
    assert done.status == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.startswith("invint: ")
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_an_unknown_option_is_status_2(command: Command) -> None:
    assert command("train", "--speed", "3").status == 2


@pytest.mark.parametrize("name", [each.__name__ for each in EXAMPLES] + ["recipes"])
def test_help_ends_with_examples(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.status == 0
    assert done.out.count(f"invint {name}") >= 2


def test_a_bar_that_never_began_leaves_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    Bar().on_end()
    assert capsys.readouterr().err == ""


def test_the_bar_shows_the_epoch_and_what_was_selected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    bar = Bar()
    bar.on_start(tmp_path, 3, 10)
    entry = {"event": "selection", "epoch": 2.0, "step": 5, "kept": [0, 2], "scores": [3.0, 1, 2]}
    bar.on_log(entry)
    bar.on_log({**entry, "scores": [3.0, 1], "tried": 1200, "accepted": 7})
    bar.on_log({"event": "monomials", "epoch": 0, "start": {"distances": [[0, 1], [0, 2]]}})
    bar.on_step(10)
    bar.on_log({"epoch": 4.0, "error": 0.25, "lr": 1e-3, "validation_error": 0.5})
    bar.on_end()
    shown = capsys.readouterr().err
    assert shown.startswith(f"going on in {tmp_path}")
    assert "epoch 2: 2 of 3 monomials kept" in shown
    assert "epoch 2: 2 monomials by least squares, 7 of 1,200 exchanges made" in shown
    assert "epoch 0: 2 monomials, kept as drawn" in shown
    assert "10/10" in shown
    assert "error 25.0%" in shown
    assert "validation 50.0%" in shown


@pytest.mark.unchecked
def test_a_file_that_cannot_be_written_is_one_line(command: Command, tmp_path: Path) -> None:
    wall = tmp_path / "wall"
    wall.write_text("")
    done = command("data", "show", "digits", "--out", str(wall / "sheet.png"))
    assert done.status == 2
    assert done.err.startswith("invint: ")
    assert "Traceback" not in done.err
