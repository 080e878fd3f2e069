"""A run in two processes, as torchrun starts them, beside the same run in one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from invint import create_model
from invint.nn import GroupBatchNorm
from invint.train.device import ProcessGroup, synchronize

ROOT = Path(__file__).parent.parent.parent
TINY = [
    "digits/monomials",
    "--set=selection.start=4",
    "--set=selection.steps=[[1,3],[2,2]]",
    "--size=40",
    "--threads=1",
    "--scale=0.032",
    "--set=model.widths=2,3,4",
    "--set=model.n_fc=6",
    "--set=model.group=C4",
    "--set=model.dropout=0",
    "--set=train.batch_size=16",
    "--set=train.epochs=4",
    "--set=train.class_weights=true",
    "--set=train.optimizer=sgd",  # Adam would make steps of gradients that are rounding alone
    "--set=train.lr=3e-3",  # large steps would magnify it
    "--set=data.validation=0.25",
]
TOGETHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "invint"]


def train(runs: Path, *arguments: str, together: bool) -> tuple[Path, str]:
    command = TOGETHER if together else ["-m", "invint"]
    done = subprocess.run(
        [sys.executable, *command, "train", *TINY, *arguments, "--runs", str(runs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    (result,) = runs.glob("*/*/*/*/result.json")
    return result.parent, done.stdout


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_end_where_one_does(tmp_path: Path) -> None:
    """Eight steps with synchronised statistics: the sums differ in their order alone."""
    alone, _ = train(tmp_path / "alone", together=False)
    both, printed = train(tmp_path / "both", "--synchronized", together=True)
    assert printed.count("test images") == 1
    assert [entry["step"] for entry in log(both)] == [2, 2, 4, 4, 6, 8]
    for mine, other in zip(log(alone), log(both), strict=True):
        assert mine.get("kept") == other.get("kept")
        if "event" in mine:
            continue
        for term in ("loss", "cross_entropy", "elastic", "lr"):
            assert other[term] == pytest.approx(mine[term], rel=1e-3, abs=1e-5), term
        one = 1 / 32  # of the images of an epoch, whose logits may be as good as equal
        assert other["error"] == pytest.approx(mine["error"], abs=one)
    first, second = (load_file(folder / "model.safetensors") for folder in (alone, both))
    assert list(first) == list(second)
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, rtol=1e-3, atol=1e-4)
    environment = json.loads((both / "environment.json").read_text())
    assert (environment["processes"], environment["synchronized"]) == (2, True)
    assert sorted(path.name for path in alone.iterdir()) == sorted(
        path.name for path in both.iterdir()
    )


def test_synchronised_norms_keep_the_names_and_the_function_of_a_network() -> None:
    plain = create_model("cnn-small", num_classes=3, in_channels=1, image_size=12)
    other = create_model("cnn-small", num_classes=3, in_channels=1, image_size=12)
    other.load_state_dict(plain.state_dict())
    synchronize(other)
    assert list(other.state_dict()) == list(plain.state_dict())
    assert not [
        each for each in other.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)
    ]
    assert all(each.synchronized for each in other.modules() if isinstance(each, GroupBatchNorm))
    images = torch.randn(4, 1, 12, 12)
    torch.testing.assert_close(other(images), plain(images))
    torch.testing.assert_close(other.eval()(images), plain.eval()(images))


def test_a_process_alone_needs_no_other() -> None:
    alone, values = ProcessGroup(), torch.ones(3)
    alone.barrier()
    alone.sum_over_processes(values)
    assert values.tolist() == [1, 1, 1]
    assert (alone.any(True), alone.any(False), alone.is_main) == (True, False, True)
    assert alone.from_main("mine") == "mine"
    network = nn.Linear(2, 2)
    assert alone.wrap(network, torch.device("cpu")) is network
