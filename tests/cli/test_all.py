"""What all commands share: the version, wrong use in one line, and how they exit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command

from invint.version import __version__


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "invint", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"invint {__version__}\n")


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
        ("train --set train.optimizer=lion", "no optimizer 'lion'; there are adam, sgd and adamw"),
        ("train --set train.decay=sine", "no decay 'sine'; did you mean 'cosine'"),
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
        ("train --device tpu", "expected the device cpu, cuda or mps and the precision float32"),
        ("audit gone.onnx --every 0", "--every 0: expected degrees above 0, up to 360"),
        ("audit gone.onnx --every 1e-7", "--every 1e-07: that is more than 3,600 angles; use 0.1"),
        ("audit gone.onnx --images -1", "--images -1: expected 1 image or more"),
        ("audit gone.onnx --min-accuracy 95", "--min-accuracy 95: expected a fraction from 0 to 1"),
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


@pytest.mark.unchecked
def test_a_file_that_cannot_be_written_is_one_line(command: Command, tmp_path: Path) -> None:
    wall = tmp_path / "wall"
    wall.write_text("")
    done = command("data", "show", "digits", "--out", str(wall / "sheet.png"))
    assert done.status == 2
    assert done.err.startswith("invint: ")
    assert "Traceback" not in done.err
