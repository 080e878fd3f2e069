import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from support.tiny_runs import tiny, weights, workspace_in

from invint.errors import ConfigError
from invint.recipes import changed
from invint.study import pool
from invint.study.grid import Cell
from invint.study.pool import InProcess, Note, Outcome, Workspace, completed, executor_for
from invint.train import Execution
from invint.train.store import RunStore

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A real cluster of two worker processes that save a checkpoint after every epoch."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def save_often() -> None:
    training = importlib.import_module("invint.train.run")
    vars(training)["SECONDS_BETWEEN_CHECKPOINTS"] = 0.0


def is_underway(workspace: Workspace, cell: Cell) -> bool:
    saved = (workspace.folder(cell) / "last.safetensors").exists()
    return saved and 0 < workspace.steps_done(cell) < cell.steps / 2


def worker_of(client: Any, workspace: Workspace, cell: Cell) -> int:
    """Return the process that works on a run: the one that has its lock open."""
    lock = str(workspace.folder(cell) / "lock")
    (pid,) = [
        pid
        for pid in client.run(os.getpid).values()
        if lock in {file.path for file in psutil.Process(pid).open_files()}
    ]
    return int(pid)


def on_cluster(
    cells: Sequence[Cell],
    workspace: Workspace,
    *,
    jobs: int = 1,
    address: str | None = None,
    note: Note = pool.silent,
) -> Iterator[Outcome]:
    """Train runs on a cluster as the command does."""
    with executor_for(workspace, engine="dask", jobs=jobs, address=address, note=note) as executor:
        yield from completed(executor, cells, workspace, at_once=None, note=note)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_run_changes_no_bit(client: Any, tmp_path: Path) -> None:
    here, there = workspace_in(tmp_path / "here"), workspace_in(tmp_path / "there")
    cells = [tiny(seed=seed, scale=1.0) for seed in (0, 1)] + [tiny(seed=2)]
    address, outcomes = client.scheduler.address, list[Outcome]()
    client.run(save_often)
    work = threading.Thread(
        target=lambda: outcomes.extend(on_cluster(cells, there, address=address))
    )
    work.start()
    deadline = time.monotonic() + 40
    while not is_underway(there, cells[0]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(worker_of(client, there, cells[0]), signal.SIGKILL)
    assert not (there.folder(cells[0]) / "result.json").exists()
    work.join()
    assert {outcome.cell for outcome in outcomes} == set(cells)
    assert [outcome.problem for outcome in outcomes] == ["", "", ""]
    list(completed(InProcess(), cells, here))
    for cell in cells:
        assert weights(here, cell) == weights(there, cell)


@pytest.mark.slow
def test_a_run_that_is_trained_elsewhere_is_waited_for(client: Any, tmp_path: Path) -> None:
    """A coordinator that is started again may meet what its workers have not ended yet."""
    workspace, cells, notes = workspace_in(tmp_path), [tiny(seed=0), tiny(seed=1)], list[str]()
    held = RunStore(workspace.folder(cells[0])).locked()
    held.__enter__()
    outcomes = on_cluster(cells, workspace, address=client.scheduler.address, note=notes.append)
    assert next(outcomes).cell == cells[1]
    held.__exit__(None, None, None)
    (last,) = outcomes
    assert (last.cell, last.problem) == (cells[0], "")
    assert notes == [
        "digits/cnn, 50 images, seed 0: another process is working on it; trying again later"
    ]


@pytest.mark.slow
def test_a_relative_path_to_data_is_found_by_workers_that_are_elsewhere(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 20, 20), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", images=pixels, labels=np.arange(60) % 3)
    monkeypatch.chdir(tmp_path)
    cell = tiny(size=30)
    cell = replace(cell, recipe=changed(cell.recipe, ["data.name=arrays:own.npz"]))
    workspace = replace(workspace_in(Path()), data_dir=Path())
    (outcome,) = on_cluster([cell], workspace, address=client.scheduler.address)
    assert outcome.problem == ""
    assert (tmp_path / workspace.folder(cell) / "result.json").exists()


@pytest.mark.slow
def test_what_fails_on_a_worker_is_its_outcome(client: Any, tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path)
    (outcome,) = on_cluster([tiny(size=5)], workspace, address=client.scheduler.address)
    assert "5 images cannot show 10 classes" in outcome.problem


@pytest.mark.slow
def test_a_cluster_of_its_own_offers_the_gpus_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers find no GPU, and use the CPU; but each run has asked for one."""
    asked_for: list[object] = []

    def heard(*arguments: Any) -> dict[str, float] | None:
        asked_for.append(resources(*arguments))
        return resources(*arguments)

    resources = pool._resources
    monkeypatch.setattr(pool, "_resources", heard)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    workspace = Workspace(runs=tmp_path / "runs", execution=Execution(threads=1))
    cells = [tiny(seed=0), tiny(seed=1)]
    outcomes = list(on_cluster(cells, workspace, jobs=2))
    assert {(outcome.cell, outcome.problem) for outcome in outcomes} == {(c, "") for c in cells}
    assert workspace.unfinished(cells) == []
    assert asked_for == [{"GPU": 1}]


class _Scheduler:
    """Answers what a scheduler with these workers would."""

    def __init__(self, *workers: dict[str, Any]) -> None:
        self.workers = dict(enumerate(workers))

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        assert n_workers == -1
        return {"workers": self.workers}


def asked(device: str | None, *workers: dict[str, Any]) -> tuple[dict[str, float] | None, str]:
    notes: list[str] = []
    workspace = Workspace(execution=Execution(device=device))
    resources = pool._resources(_Scheduler(*workers), workspace, notes.append)
    return resources, " ".join(notes)


def test_a_run_asks_for_a_gpu_where_the_cluster_offers_some() -> None:
    gpu = {"nthreads": 1, "resources": {"GPU": 1.0}}
    plain: dict[str, Any] = {"nthreads": 1, "resources": {}}
    assert asked("cuda", plain, gpu) == ({"GPU": 1}, "")
    assert asked(None, plain, gpu) == ({"GPU": 1}, "")
    assert asked("cpu", plain, gpu) == (None, "")
    assert asked("cuda", plain) == (
        None,
        "no worker offers GPUs: start it with --resources GPU=1, or runs share its GPU",
    )


def test_workers_that_are_missing_or_have_several_threads_are_spoken_of() -> None:
    assert asked(None) == (None, "the cluster has no worker yet: waiting for one")
    assert asked(None, {"nthreads": 4, "resources": {}}) == (
        None,
        "a worker with several threads makes one run at a time: start it with --nthreads 1",
    )


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nowhere"])
def test_a_scheduler_that_does_not_answer_is_one_line(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CONNECT", 0.3)
    with pytest.raises(ConfigError, match=f"--address {address}: no Dask scheduler answers there"):
        list(on_cluster([tiny()], workspace_in(tmp_path), address=address))


def test_missing_dask_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(ConfigError, match=r"--engine dask: needs distributed; pip install 'invint"):
        list(on_cluster([tiny()], workspace_in(tmp_path)))


class Killed(Executor):
    """Gives every call up, as Dask does when several workers were lost over it."""

    def submit(self, *_: Any) -> "Future[Any]":  # type: ignore[override]
        future: Future[Any] = Future()
        future.set_exception(distributed.KilledWorker("a run", "a worker", 3))
        return future


def test_a_run_that_loses_every_worker_is_given_up(tmp_path: Path) -> None:
    workspace, cell = workspace_in(tmp_path), tiny()
    (outcome,) = completed(Killed(), [cell], workspace)
    assert outcome.problem == (
        f"{workspace.folder(cell)}: several workers were lost over it; "
        "is there enough memory for it?"
    )


class _Worker:
    name = 1


def test_workers_of_a_cluster_on_this_machine_take_its_gpus_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    pool.dask_setup(_Worker())
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"


@pytest.mark.slow
def test_an_error_does_not_wait_for_the_calls_under_way(client: Any, tmp_path: Path) -> None:
    address, calls = client.scheduler.address, list[Future[None]]()

    def interrupted() -> None:
        with executor_for(workspace_in(tmp_path), engine="dask", address=address) as executor:
            calls.append(executor.submit(time.sleep, 600))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert calls[0].cancelled()
