"""The fault list, each produced for real, in processes of their own."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.disks import disk_of, fill

from invint.data.official import STL10_COUNTS, STL10_IMAGE, STL10_NAMES
from invint.errors import Interrupted, RunError
from invint.train.run import explained

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
TINY = [
    "--size=40",
    "--threads=1",
    "--set=model.widths=2,3,4",
    "--set=model.n_fc=6",
    "--set=model.group=C4",
    "--set=train.batch_size=16",
    "--set=train.epochs=4",
    "--scale=0.08",
    "--quiet",
]
ENVIRONMENT = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
FREQUENT = (  # the command, with a checkpoint after every step, and time to be stopped in
    "import sys, time; from invint.train import run as training; from invint.cli import main; "
    "training.SECONDS_BETWEEN_CHECKPOINTS = training.SECONDS_WITHOUT_CHECKPOINT = -1.0; "
    "step = training.Run.after_step; "
    "training.Run.after_step = lambda *a: time.sleep({pause}) or step(*a); "
    "sys.argv[0] = 'invint'; main()"
)


def start(*arguments: str, pause: float = 0.0, limit: int | None = None) -> "subprocess.Popen[str]":
    """Start the command, perhaps with an address space of so many bytes."""

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-c", FREQUENT.format(pause=pause), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        preexec_fn=restrict,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
    """Return the status and the lines on stderr."""
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors.splitlines()


def folder_in(runs: Path) -> Path:
    (found,) = runs.glob("*/*/*/*/recipe.json")
    return found.parent


def wait_for(runs: Path, process: "subprocess.Popen[str]") -> Path:
    """Wait until a run has saved something, and return its folder."""
    deadline = time.monotonic() + 100
    while not list(runs.glob("*/*/*/*/previous.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return folder_in(runs)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of half a megabyte."""
    with disk_of("512k", tmp_path / "disk") as place:
        yield place


def test_a_full_disk_leaves_no_half_file_and_the_run_goes_on_once_there_is_room(
    small_disk: Path,
) -> None:
    process = start("train", *TINY, "--runs", str(small_disk), pause=0.1)
    folder = wait_for(small_disk, process)
    ballast = fill(small_disk)
    status, lines = finish(process)
    assert status == 2
    assert lines == [
        f"invint: {folder}: the disk is full; the last checkpoint is kept: make room and run the "
        "same command again"
    ]
    assert not list(folder.glob(".*"))
    kept = [path for path in folder.glob("*.safetensors") if path.name != "next.safetensors"]
    assert kept
    ballast.unlink()
    assert finish(start("train", *TINY, "--runs", str(small_disk))) == (0, [])
    assert json.loads((folder / "result.json").read_text())["steps"] == 20


def test_memory_that_runs_out_is_one_line(tmp_path: Path) -> None:
    arguments = ("train", "--runs", str(tmp_path), "--threads=1", "--quiet")
    large = ("--set=train.batch_size=1000", "--set=model.widths=90,9,9")
    status, lines = finish(start(*arguments, *large, limit=4 * 2**30))
    assert status == 2, lines
    assert len(lines) == 1
    assert lines[0].startswith("invint: ")
    assert lines[0].endswith(
        "the step needs more memory than this machine has; the last checkpoint is kept: use "
        "--set train.accumulate=2 (or more), which starts a run of its own, or free memory"
    )


def test_a_second_process_leaves_and_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    arguments = ("train", *TINY, "--runs", str(tmp_path))
    first = start(*arguments, pause=0.5)
    folder = wait_for(tmp_path, first)
    assert finish(start(*arguments)) == (
        2,
        [f"invint: {folder}: another process is working on this run; wait for it or stop it"],
    )
    first.send_signal(signal.SIGINT)
    status, lines = finish(first)
    assert status == 130
    assert len(lines) == 1
    assert lines[0].startswith("invint: stopped at step ")
    assert lines[0].endswith(f"of 20; the same command resumes it from there ({folder})")
    assert finish(start(*arguments)) == (0, [])
    assert (folder / "result.json").exists()


def test_data_that_vanished_is_one_line_and_the_run_goes_on_once_it_is_back(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data" / "stl10"
    data.mkdir(parents=True)
    (data / "class_names.txt").write_text("\n".join(STL10_NAMES))
    for part, count in zip(("train", "test"), STL10_COUNTS, strict=True):
        with (data / f"{part}_X.bin").open("wb") as file:
            file.truncate(count * STL10_IMAGE)  # black, and no room on the disk
        (data / f"{part}_y.bin").write_bytes(bytes(1 + number % 10 for number in range(count)))
    arguments = ("train", "stl10/pooling", *TINY[:2], "--quiet", "--scale=0.0001", "--set")
    arguments += ("model.name=cnn-small", "--set=model.head=none", "--data-dir", str(data.parent))
    arguments += (
        "--set=train.batch_size=16",
        "--set=data.augment=",
        "--runs",
        str(tmp_path / "runs"),
    )
    process = start(*arguments, pause=0.5)
    folder = wait_for(tmp_path / "runs", process)
    process.kill()
    process.communicate()
    (data / "train_X.bin").rename(data / "elsewhere")
    status, lines = finish(start(*arguments))
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"invint: stl10: train_X.bin is not in {data}; `invint data fetch")
    assert (folder / "last.safetensors").exists()


def test_a_memory_error_of_the_interpreter_and_other_failures_are_explained() -> None:
    folder = Path("run")
    with (
        pytest.raises(RunError, match="needs more memory than this machine has"),
        explained(folder),
    ):
        raise MemoryError
    with pytest.raises(RunError, match=r"run: .*Input/output error; the last"), explained(folder):
        raise OSError(5, "Input/output error")
    with pytest.raises(Interrupted, match="stopped at once"), explained(folder):
        raise KeyboardInterrupt
    with pytest.raises(RuntimeError, match="a mistake of ours"), explained(folder):
        raise RuntimeError("a mistake of ours")


def test_killed_runs_end_in_the_bits_of_undisturbed_ones() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kills.py"), "--kills=6", "--no-record"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("all bits the same")


KILLED = """
import os, signal, sys
from pathlib import Path
from invint.recipes import changed, find_recipe
from invint.train import Execution, Callback, train_run, run as training

class Killing(Callback):
    def on_step(self, step):
        if step == 101:
            os.kill(os.getpid(), signal.SIGKILL)

runs, device, kill = sys.argv[1:]
training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
recipe = changed(find_recipe("digits/monomials"), ["train.scale=0.5", "model.dropout=0.3"])
execution = Execution(device=device, deterministic=True)
watch = Killing() if kill == "kill" else None
print(train_run(recipe, runs=Path(runs), execution=execution, callback=watch))
"""


@pytest.mark.slow
@pytest.mark.gpu
def test_a_run_killed_on_a_gpu_ends_in_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    """Compiled, with dropout and pruning, half of it in another process."""

    def train(runs: str, kill: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / runs), "cuda", kill]
        return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)

    assert train("killed", "kill").returncode == -signal.SIGKILL
    folders = [train(runs).stdout.strip() for runs in ("killed", "whole")]
    for name in ("model.safetensors", "predictions.safetensors"):
        killed, whole = (Path(folder, name).read_bytes() for folder in folders)
        assert killed == whole
