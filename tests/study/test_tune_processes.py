"""Trials in processes, which end with their parent, and on Dask's executor."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from invint.study.pool import WorkerProcesses
from invint.study.search import Configuration, RandomSearch, Range
from invint.study.tune import Budget, Journal, Measured, tune

SPACE = (Range("model.dropout", 0.0, 0.8),)
PARENT = """
import os, sys, time
from invint.study.pool import WorkerProcesses

if __name__ == "__main__":
    with WorkerProcesses(2) as pool:
        found = [pool.submit(os.getpid) for _ in range(8)]
        print(*{each.result() for each in found}, flush=True)
        pool.submit(time.sleep, 600).result()
"""


def dropout(configuration: Configuration, fidelity: float) -> Measured:
    return Measured(configuration["model.dropout"] * fidelity, 0.0, str(os.getpid()))


@pytest.mark.slow
def test_processes_of_a_killed_parent_end(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    numbers = [int(each) for each in parent.stdout.readline().split()]
    children = [psutil.Process(number) for number in numbers]
    assert children
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive


@pytest.mark.slow
def test_trials_are_made_in_other_processes(tmp_path: Path) -> None:
    with WorkerProcesses(2) as pool:
        journal = Journal(tmp_path / "trials")
        search = RandomSearch(SPACE, (1.0, 1.0), 0)
        trials = tune(search, dropout, journal, Budget(trials=6), executor=pool, jobs=2)
    assert str(os.getpid()) not in {trial.folder for trial in trials}
    assert [trial.validation_error for trial in trials] == [
        trial.configuration["model.dropout"] for trial in trials
    ]


@pytest.mark.slow
def test_dasks_executor_makes_trials_too(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    with distributed.Client(**options, dashboard_address=None) as client:
        journal, search = Journal(tmp_path / "trials"), RandomSearch(SPACE, (1.0, 1.0), 0)
        pool = client.get_executor()
        trials = tune(search, dropout, journal, Budget(trials=5), executor=pool, jobs=2)
        pool.shutdown()
    assert [trial.state for trial in trials] == ["done"] * 5
