import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_runs import place_in, tiny, weights

from invint.errors import ConfigError, RunError
from invint.recipes import changed
from invint.study import pool
from invint.study.grid import Cell
from invint.study.pool import Outcome, Place, on_cluster, one_by_one
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


def is_underway(place: Place, cell: Cell) -> bool:
    saved = (place.folder(cell) / "last.safetensors").exists()
    return saved and 0 < place.steps_done(cell) < cell.steps / 2


def worker_of(client: Any, cell: Cell) -> int:
    """Return the process that works at a run."""
    pids = client.run(os.getpid)
    (address,) = [
        address
        for address, keys in client.processing().items()
        if any(
            key.startswith(f"{cell.recipe.name}-{cell.recipe.hash}-{cell.seed}-") for key in keys
        )
    ]
    return int(pids[address])


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_run_changes_no_bit(client: Any, tmp_path: Path) -> None:
    here, there = place_in(tmp_path / "here"), place_in(tmp_path / "there")
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
    os.kill(worker_of(client, cells[0]), signal.SIGKILL)
    assert not (there.folder(cells[0]) / "result.json").exists()
    work.join()
    assert {outcome.cell for outcome in outcomes} == set(cells)
    assert [outcome.problem for outcome in outcomes] == ["", "", ""]
    list(one_by_one(cells, here))
    for cell in cells:
        assert weights(here, cell) == weights(there, cell)


@pytest.mark.slow
def test_a_run_that_goes_on_elsewhere_is_waited_for(client: Any, tmp_path: Path) -> None:
    """A coordinator that is started again may meet what its workers have not ended yet."""
    place, cells, notes = place_in(tmp_path), [tiny(seed=0), tiny(seed=1)], list[str]()
    held = RunStore(place.folder(cells[0])).locked()
    held.__enter__()
    outcomes = on_cluster(cells, place, address=client.scheduler.address, note=notes.append)
    assert next(outcomes).cell == cells[1]
    held.__exit__(None, None, None)
    (last,) = outcomes
    assert (last.cell, last.problem) == (cells[0], "")
    assert notes == [
        "digits/cnn, 50 images, seed 0: another process is at work on it; trying again later"
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
    place = replace(place_in(Path()), data_dir=Path())
    (outcome,) = on_cluster([cell], place, address=client.scheduler.address)
    assert outcome.problem == ""
    assert (tmp_path / place.folder(cell) / "result.json").exists()


@pytest.mark.slow
def test_what_fails_on_a_worker_is_its_outcome(client: Any, tmp_path: Path) -> None:
    place = place_in(tmp_path)
    (outcome,) = on_cluster([tiny(size=5)], place, address=client.scheduler.address)
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
    place = Place(runs=tmp_path / "runs", execution=Execution(threads=1))
    cells = [tiny(seed=0), tiny(seed=1)]
    outcomes = list(on_cluster(cells, place, jobs=2))
    assert {(outcome.cell, outcome.problem) for outcome in outcomes} == {(c, "") for c in cells}
    assert place.unfinished(cells) == []
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
    place = Place(execution=Execution(device=device))
    resources = pool._resources(_Scheduler(*workers), place, notes.append)
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
        list(on_cluster([tiny()], place_in(tmp_path), address=address))


def test_missing_dask_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", without)
    with pytest.raises(ConfigError, match=r"--engine dask: needs distributed; pip install 'invint"):
        list(on_cluster([tiny()], place_in(tmp_path)))


class _Future:
    """Ends as a run does whose workers or scheduler are gone."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def cancelled(self) -> bool:
        return self.error is None

    def result(self) -> None:
        raise self.error or RuntimeError


def test_a_run_that_loses_every_worker_is_given_up(tmp_path: Path) -> None:
    place, cell = place_in(tmp_path), tiny()
    killed = distributed.KilledWorker("a run", "a worker", 3)
    outcome = pool._outcome(_Future(killed), cell, place)
    folder = place.folder(cell)
    assert outcome.problem == (
        f"{folder}: several workers were lost over it; is there enough memory for it?"
    )
    broken = pool._outcome(_Future(ImportError("no invint here")), cell, place)
    assert broken.problem == f"{folder}: ImportError: no invint here"


def test_a_lost_scheduler_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="the Dask scheduler was lost; finished runs are kept"):
        pool._outcome(_Future(None), tiny(), place_in(tmp_path))


def test_nothing_to_do_needs_no_cluster(tmp_path: Path) -> None:
    assert list(on_cluster([], place_in(tmp_path), address="nowhere")) == []
