import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from support.tiny_runs import place_in, tiny, weights

from invint.study import pool
from invint.study.pool import Outcome, one_by_one, side_by_side


@pytest.mark.slow
def test_processes_side_by_side_end_in_the_same_bits(tmp_path: Path) -> None:
    here, there = place_in(tmp_path / "here"), place_in(tmp_path / "there")
    cells = [tiny(seed=0), tiny(seed=1), tiny("digits/pooling"), tiny(size=5)]
    alone = {outcome.cell: outcome for outcome in one_by_one(cells, here)}
    beside = {outcome.cell: outcome for outcome in side_by_side(cells, there, 2)}
    assert alone.keys() == beside.keys() == set(cells)
    for cell in cells[:3]:
        assert weights(here, cell) == weights(there, cell)
        assert alone[cell].error == beside[cell].error
    assert "5 images cannot show 10 classes" in beside[cells[3]].problem
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_process_that_is_lost_costs_no_run(tmp_path: Path) -> None:
    here, there = place_in(tmp_path / "here"), place_in(tmp_path / "there")
    cells = [tiny(seed=seed, scale=1.0) for seed in (0, 1)]
    notes, outcomes = list[str](), list[Outcome]()
    work = threading.Thread(
        target=lambda: outcomes.extend(side_by_side(cells, there, 2, notes.append))
    )
    work.start()
    while not any(map(there.steps_done, cells)):
        time.sleep(0.02)
    victim = multiprocessing.active_children()[0]
    os.kill(victim.pid or 0, signal.SIGKILL)
    work.join()
    assert [outcome.problem for outcome in outcomes] == ["", ""]
    assert len(notes) == 1
    assert notes[0].endswith("its process was lost; going on from its last checkpoint")
    list(one_by_one(cells, here))
    assert [weights(here, cell) for cell in cells] == [weights(there, cell) for cell in cells]


def test_several_processes_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    assert [pool.threads_each(jobs) for jobs in (1, 2, 3, 16)] == [8, 4, 2, 1]


def test_several_processes_take_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    pool.choose_gpu(3)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
