import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import psutil
import pytest
from support.tiny_runs import tiny, weights, workspace_in

from invint.study import pool
from invint.study.pool import InProcess, Outcome, WorkerProcesses, completed, executor_for
from invint.train.store import RunStore


@pytest.mark.slow
def test_processes_side_by_side_end_in_the_same_bits(tmp_path: Path) -> None:
    here, there = workspace_in(tmp_path / "here"), workspace_in(tmp_path / "there")
    cells = [tiny(seed=0), tiny(seed=1), tiny("digits/pooling"), tiny(size=5)]
    alone = {outcome.cell: outcome for outcome in completed(InProcess(), cells, here)}
    with WorkerProcesses(2) as executor:
        outcomes = completed(executor, cells, there, at_once=2)
        beside = {outcome.cell: outcome for outcome in outcomes}
    assert alone.keys() == beside.keys() == set(cells)
    for cell in cells[:3]:
        assert weights(here, cell) == weights(there, cell)
        assert alone[cell].error == beside[cell].error
    assert "5 images cannot show 10 classes" in beside[cells[3]].problem
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_process_that_is_lost_costs_no_run(tmp_path: Path) -> None:
    here, there = workspace_in(tmp_path / "here"), workspace_in(tmp_path / "there")
    cells = [tiny(seed=seed, scale=1.0) for seed in (0, 1)]
    notes, outcomes = list[str](), list[Outcome]()

    def train_all() -> None:
        with WorkerProcesses(2) as executor:
            outcomes.extend(completed(executor, cells, there, at_once=2, note=notes.append))

    work = threading.Thread(target=train_all)
    work.start()
    while not any(map(there.steps_done, cells)):
        time.sleep(0.02)
    victim = multiprocessing.active_children()[0]
    os.kill(victim.pid or 0, signal.SIGKILL)
    work.join()
    assert [outcome.problem for outcome in outcomes] == ["", ""]
    assert len(notes) == 1
    assert notes[0].endswith("its process was lost; resuming from its last checkpoint")
    list(completed(InProcess(), cells, here))
    assert [weights(here, cell) for cell in cells] == [weights(there, cell) for cell in cells]


def pause(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.mark.slow
def test_a_lost_process_leaves_the_others_alone() -> None:
    with WorkerProcesses(2) as executor:
        lost, kept = executor.submit(os._exit, 1), executor.submit(pause, 0.5)
        with pytest.raises(BrokenProcessPool):
            lost.result()
        other = kept.result()
        again = [executor.submit(pause, 0.5) for _ in range(2)]
        assert other in {each.result() for each in again}
        assert len({each.result() for each in again}) == 2
    assert multiprocessing.active_children() == []


PROGRAM = """
import sys
from pathlib import Path
from support.tiny_runs import tiny, workspace_in
from invint.study.pool import completed, executor_for

if __name__ == "__main__":
    workspace = workspace_in(Path(sys.argv[1]))
    cells = [tiny(seed=seed, scale=1.0, epochs=100) for seed in (0, 1)]
    with executor_for(workspace, jobs=2) as executor:
        for outcome in completed(executor, cells, workspace, at_once=2):
            print(outcome, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_processes_that_are_stopped_save_their_runs(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C reaches the workers too, SIGTERM the parent alone."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores Ctrl-C, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    workspace = workspace_in(tmp_path)
    cells = [tiny(seed=seed, scale=1.0, epochs=100) for seed in (0, 1)]
    while not all(map(workspace.steps_done, cells)):
        assert parent.poll() is None
        time.sleep(0.02)
    children = psutil.Process(parent.pid).children()
    (os.killpg if number == signal.SIGINT else os.kill)(parent.pid, number)
    _, errors = parent.communicate(timeout=40)
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert "BrokenProcessPool" not in errors
    assert not psutil.wait_procs(children, timeout=10)[1]
    for cell in cells:
        store = RunStore(workspace.folder(cell))
        checkpoint, problems = store.latest_checkpoint()
        assert checkpoint is not None
        assert not problems
        assert 0 < checkpoint.facts["step"] < cell.steps
        with store.locked():  # nobody else works on it
            pass


def test_one_job_stays_in_this_process(tmp_path: Path) -> None:
    with executor_for(workspace_in(tmp_path)) as executor:
        assert executor.submit(os.getpid).result() == os.getpid()


def test_several_processes_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert [pool.threads_each(jobs) for jobs in (1, 2, 3, 16)] == [8, 4, 2, 1]


def test_several_processes_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    pool.choose_gpu(3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
