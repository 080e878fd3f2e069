import json
import threading
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import tiny, workspace_in

from invint.errors import Interrupted, RunError
from invint.study import pool
from invint.study.grid import Cell
from invint.study.pool import InProcess, Outcome, Workspace, completed, run_cell
from invint.train.store import TAIL, RunStore


def write_log(folder: Path, *lines: object) -> None:
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_the_last_line_of_a_log_says_how_far_a_run_is(tmp_path: Path) -> None:
    assert RunStore(tmp_path / "nowhere").steps_logged() == 0
    write_log(tmp_path / "run", {"epoch": 1.0, "step": 15}, {"event": "selection", "step": 30})
    assert RunStore(tmp_path / "run").steps_logged() == 30
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"epoch": 3.0, "step": 4')
    assert RunStore(tmp_path / "run").steps_logged() == 30


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    long = [{"step": step, "scores": [0.5] * 1000} for step in range(50)]
    write_log(tmp_path / "run", *long)
    assert (tmp_path / "run" / "log.jsonl").stat().st_size > TAIL
    assert RunStore(tmp_path / "run").steps_logged() == 49


def test_a_finished_run_has_made_all_its_steps(tmp_path: Path) -> None:
    workspace, cell = workspace_in(tmp_path), tiny()
    assert workspace.steps_done(cell) == 0
    write_log(workspace.folder(cell), {"step": 4})
    assert workspace.steps_done(cell) == 4
    assert workspace.unfinished([cell]) == [cell]
    (workspace.folder(cell) / "result.json").write_text("{}")
    assert workspace.steps_done(cell) == cell.steps == 6
    assert workspace.unfinished([cell]) == []


def test_what_goes_wrong_with_a_run_is_its_outcome(tmp_path: Path) -> None:
    workspace, bad = workspace_in(tmp_path), tiny(size=5)
    outcome = run_cell(bad, workspace)
    assert outcome.problem.startswith("subset of 'digits': 5 images cannot show 10 classes")
    assert outcome.error is None
    assert not outcome.locked


def test_an_error_that_is_not_ours_is_kept_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(pool, "train_run", broken)
    workspace, cell = workspace_in(tmp_path), tiny()
    kept = workspace.folder(cell) / "problem.txt"
    outcome = run_cell(cell, workspace)
    assert outcome.problem == f"ZeroDivisionError: by nothing (the traceback is in {kept})"
    assert "in broken" in kept.read_text()


def test_a_stopped_run_stops_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Interrupted("stopped")

    monkeypatch.setattr(pool, "train_run", stopped)
    with pytest.raises(Interrupted):
        list(completed(InProcess(), [tiny()], workspace_in(tmp_path)))


def test_only_a_locked_folder_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PAUSE", 0.0)
    workspace, cell = workspace_in(tmp_path), tiny()
    with RunStore(workspace.folder(cell)).locked():
        outcome = run_cell(cell, workspace)
    assert outcome.locked

    def failed(*_: Any, **__: Any) -> None:
        raise RunError(outcome.problem)  # the same words, for another reason

    monkeypatch.setattr(pool, "train_run", failed)
    assert run_cell(cell, workspace) == Outcome(
        cell, workspace.folder(cell), problem=outcome.problem
    )


@pytest.mark.slow
def test_a_run_that_is_locked_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "PAUSE", 0.05)
    workspace, cells, notes = workspace_in(tmp_path), [tiny(seed=0), tiny(seed=1)], list[str]()
    held = RunStore(workspace.folder(cells[0])).locked()
    held.__enter__()
    release = threading.Timer(0.6, held.__exit__, (None, None, None))
    release.start()
    outcomes = list(completed(InProcess(), cells, workspace, note=notes.append))
    release.join()
    assert [outcome.cell.seed for outcome in outcomes] == [1, 0]
    assert all(outcome.error is not None for outcome in outcomes)
    assert notes == [
        "digits/cnn, 50 images, seed 0: another process is working on it; trying again later"
    ]


class Scripted(Executor):
    """Makes no call: its futures end as they are told to."""

    def __init__(self, *ends: object) -> None:
        self.ends, self.submitted = iter(ends), list[Cell]()

    def submit(self, *arguments: Any) -> "Future[Any]":  # type: ignore[override]
        _, cell, workspace, *_ = arguments
        self.submitted.append(cell)
        future: Future[Any] = Future()
        end = next(self.ends)
        if end is CANCELLED:
            future.cancel()
            future.set_running_or_notify_cancel()
        elif isinstance(end, Exception):
            future.set_exception(end)
        else:
            future.set_result(Outcome(cell, workspace.folder(cell), error=0.5))
        return future


DONE, CANCELLED = object(), object()


def test_a_run_that_loses_every_process_is_given_up(tmp_path: Path) -> None:
    workspace, cells, notes = workspace_in(tmp_path), [tiny(seed=0), tiny(seed=1)], list[str]()
    broken = BrokenProcessPool()
    executor = Scripted(broken, broken, broken, DONE)
    given_up, done = completed(executor, cells, workspace, note=notes.append)
    assert [cell.seed for cell in executor.submitted] == [0, 0, 0, 1]
    assert (
        notes
        == [
            "digits/cnn, 50 images, seed 0: its process was lost; resuming from its last checkpoint"
        ]
        * 2
    )
    assert (given_up.cell, given_up.error) == (cells[0], None)
    assert given_up.problem.endswith("its process was lost 3 times; is there enough memory for it?")
    assert (done.cell, done.problem) == (cells[1], "")


def test_no_more_runs_are_handed_over_than_asked_for(tmp_path: Path) -> None:
    cells = [tiny(seed=seed) for seed in range(5)]

    def submitted_at_first(at_once: int | None) -> int:
        executor = Scripted(*[DONE] * 5)
        outcomes = completed(executor, cells, workspace_in(tmp_path), at_once=at_once)
        next(outcomes)
        outcomes.close()
        return len(executor.submitted)

    assert [submitted_at_first(at_once) for at_once in (1, 2, None)] == [1, 2, 5]


def test_a_lost_scheduler_is_one_line(tmp_path: Path) -> None:
    outcomes = completed(Scripted(CANCELLED), [tiny()], workspace_in(tmp_path))
    with pytest.raises(RunError, match="the Dask scheduler was lost; finished runs are kept"):
        next(outcomes)


def test_what_a_worker_cannot_do_is_an_outcome(tmp_path: Path) -> None:
    workspace, cell = workspace_in(tmp_path), tiny()
    (outcome,) = completed(Scripted(ImportError("no invint here")), [cell], workspace)
    assert outcome.problem == f"{workspace.folder(cell)}: ImportError: no invint here"


def test_elsewhere_paths_are_absolute_and_here_they_are_as_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "run_cell", as_asked)
    workspace = Workspace(runs=Path("runs"), data_dir=Path())
    (here,) = completed(InProcess(), [tiny()], workspace)
    (there,) = completed(Scripted(DONE), [tiny()], workspace)
    assert there.folder == tmp_path / here.folder
    assert not here.folder.is_absolute()


def as_asked(cell: Cell, workspace: Workspace) -> Outcome:
    return Outcome(cell, workspace.folder(cell), error=0.0)
