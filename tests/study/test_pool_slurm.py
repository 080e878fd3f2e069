import signal
import threading
import time
from concurrent.futures import BrokenExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from support.tiny_runs import tiny, weights, workspace_in

from invint.errors import ConfigError, RunError
from invint.study import pool
from invint.study.grid import Cell
from invint.study.pool import (
    LATE,
    InProcess,
    JobQueue,
    Outcome,
    QueuedCall,
    Workspace,
    completed,
    executor_for,
    sbatch_parameters,
    slurm_jobs,
)


class Job:
    """A job that ends when it is told to."""

    def __init__(self, id: str, folder: Path) -> None:
        self.job_id, self.cancelled = id, False
        self.paths = SimpleNamespace(
            result_pickle=folder / f"{id}.pkl", stderr=folder / f"{id}.err"
        )

    def end(self, result: object) -> None:
        self.end_result = result
        self.paths.result_pickle.touch()

    def result(self) -> object:
        if isinstance(self.end_result, Exception):
            raise self.end_result
        return self.end_result

    def cancel(self, check: bool) -> None:
        self.cancelled = not check


class Queue:
    """Takes jobs, and makes no call."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder, list[Job]()

    def submit(self, *_: Any) -> Job:
        self.jobs.append(Job(str(len(self.jobs)), self.folder))
        return self.jobs[-1]


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(pool, "LOOK", 1e6)  # tests look themselves
    return Queue(tmp_path)


def test_a_call_has_the_result_of_its_job(queue: Queue) -> None:
    with JobQueue(queue, lambda: {"0", "1"}) as executor:
        first, second = executor.submit(int), executor.submit(int)
        queue.jobs[1].end(5)
        executor.look()
        assert (first.done(), second.result()) == (False, 5)
        queue.jobs[0].end(ValueError("a long trace"))
        executor.look()
        with pytest.raises(RunError, match=r"^job 0 failed; its log is .*0\.err$"):
            first.result()
    assert not any(job.cancelled for job in queue.jobs)


def test_a_job_that_is_gone_is_waited_for_a_little_then_lost(queue: Queue) -> None:
    answers: list[set[str] | None] = [None] * (LATE + 1) + [{"0"}] * (LATE + 1) + [set()] * LATE
    executor = JobQueue(queue, lambda: answers.pop(0) if answers else set())
    future = executor.submit(int)
    while answers:
        executor.look()
    assert not future.done()
    executor.look()
    with pytest.raises(BrokenExecutor, match="job 0 is gone"):
        future.result()
    executor.shutdown()


def test_an_error_cancels_the_jobs(queue: Queue) -> None:
    def failing() -> None:
        with JobQueue(queue, set) as executor:
            executor.submit(int)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing()
    assert queue.jobs[0].cancelled


def test_what_was_cancelled_is_settled_without_a_word(queue: Queue) -> None:
    with JobQueue(queue, set) as executor:
        executor.submit(int).cancel()
        queue.jobs[0].end(5)
        executor.look()
        assert executor.jobs == {}


def test_a_job_that_is_refused_is_one_line() -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("sbatch: error\ninvalid partition specified: nowhere\n")

    executor = JobQueue(SimpleNamespace(submit=refuse), set)
    with pytest.raises(RunError, match=r"refused \(invalid partition specified: nowhere\)$"):
        executor.submit(int)
    executor.shutdown()


def test_a_locked_run_is_waited_for_in_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    cell = tiny()
    ends = iter([Outcome(cell, Path(), locked=True), Outcome(cell, Path(), error=0.5)])
    assert QueuedCall()(lambda: next(ends)).error == 0.5
    assert threads == [3]


def test_a_job_without_time_left_asks_for_the_same_call_again() -> None:
    pytest.importorskip("submitit")
    call = QueuedCall()
    again = call.checkpoint(divmod, 7, 2)
    assert (again.function, again.args, again.kwargs) == (call, (divmod, 7, 2), {})
    assert again.result() == (3, 1)


def test_options_of_sbatch_are_handed_on() -> None:
    assert sbatch_parameters(["partition=gpu", "cpus_per_task=8", "time=480"]) == {
        "job_name": "invint",
        "time": 480,
        "srun_args": ["--cpus-per-task=8"],
        "additional_parameters": {"partition": "gpu", "cpus-per-task": "8"},
    }
    assert sbatch_parameters([])["time"] == 60


@pytest.mark.parametrize("wrong", ["fast", "=fast", "qos=", "--qos=fast"])
def test_other_words_are_no_options_of_sbatch(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"--slurm {wrong}: expected an option of sbatch, like"):
        sbatch_parameters([wrong])


@pytest.mark.parametrize("minutes", ["0", "1:00:00"])
def test_the_time_of_a_job_is_in_minutes(minutes: str) -> None:
    with pytest.raises(ConfigError, match=f"--slurm time={minutes}: expected minutes"):
        sbatch_parameters([f"time={minutes}"])


def test_without_slurm_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm_jobs() is None
    with (
        pytest.raises(ConfigError, match="--engine slurm: there is no sbatch here"),
        executor_for(workspace_in(tmp_path), engine="slurm"),
    ):
        pass


def test_the_queue_of_slurm_is_asked_for_the_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\necho 7\necho 12\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert slurm_jobs() == {"7", "12"}
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert slurm_jobs() is None


def kill_underway(workspace: Workspace, cell: Cell) -> None:
    """Kill the process that trains a run as soon as it has a checkpoint."""
    lock = workspace.folder(cell) / "lock"
    while not (workspace.folder(cell) / "last.safetensors").exists():
        time.sleep(0.05)
    (process,) = [
        each
        for each in psutil.Process().children(recursive=True)
        if str(lock) in {file.path for file in each.open_files()}
    ]
    process.send_signal(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_job_killed_in_the_middle_of_a_run_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitit = pytest.importorskip("submitit")
    monkeypatch.setattr(pool, "LOOK", 0.2)
    here, there = workspace_in(tmp_path / "here"), workspace_in(tmp_path / "there")
    cell, notes = tiny(scale=1.0), list[str]()
    list(completed(InProcess(), [cell], here))
    queue = submitit.LocalExecutor(tmp_path / "jobs" / "%j")

    def unfinished() -> set[str]:
        return {job.job_id for job in list(executor.jobs.values()) if not job.done()}

    killer = threading.Thread(target=kill_underway, args=(there, cell), daemon=True)
    killer.start()
    with JobQueue(queue, unfinished) as executor:
        (outcome,) = completed(executor, [cell], there, note=notes.append)
    killer.join()
    assert outcome.problem == ""
    assert notes == [f"{cell.label}: its process was lost; resuming from its last checkpoint"]
    assert weights(here, cell) == weights(there, cell)
