import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support.tiny_runs import place_in, tiny

from invint.errors import Interrupted, RunError
from invint.study import pool
from invint.study.pool import Outcome, carry_out, one_by_one
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
    place, cell = place_in(tmp_path), tiny()
    assert place.steps_done(cell) == 0
    write_log(place.folder(cell), {"step": 4})
    assert place.steps_done(cell) == 4
    assert place.unfinished([cell]) == [cell]
    (place.folder(cell) / "result.json").write_text("{}")
    assert place.steps_done(cell) == cell.steps == 6
    assert place.unfinished([cell]) == []


def test_what_goes_wrong_with_a_run_is_its_outcome(tmp_path: Path) -> None:
    place, bad = place_in(tmp_path), tiny(size=5)
    outcome = carry_out(bad, place)
    assert outcome.problem.startswith("subset of 'digits': 5 images cannot show 10 classes")
    assert outcome.error is None
    assert not outcome.at_work


def test_an_error_that_is_not_ours_is_kept_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(pool, "train_run", broken)
    place, cell = place_in(tmp_path), tiny()
    kept = place.folder(cell) / "problem.txt"
    outcome = carry_out(cell, place)
    assert outcome.problem == f"ZeroDivisionError: by nothing (the traceback is in {kept})"
    assert "in broken" in kept.read_text()


def test_a_stopped_run_stops_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Interrupted("stopped")

    monkeypatch.setattr(pool, "train_run", stopped)
    with pytest.raises(Interrupted):
        list(one_by_one([tiny()], place_in(tmp_path)))


def test_only_a_locked_folder_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PAUSE", 0.0)
    place, cell = place_in(tmp_path), tiny()
    with RunStore(place.folder(cell)).locked():
        outcome = carry_out(cell, place)
    assert outcome.at_work

    def failed(*_: Any, **__: Any) -> None:
        raise RunError(outcome.problem)  # the same words, for another reason

    monkeypatch.setattr(pool, "train_run", failed)
    assert carry_out(cell, place) == Outcome(cell, place.folder(cell), problem=outcome.problem)


@pytest.mark.slow
def test_a_run_another_process_works_at_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PAUSE", 0.05)
    place, cells, notes = place_in(tmp_path), [tiny(seed=0), tiny(seed=1)], list[str]()
    held = RunStore(place.folder(cells[0])).locked()
    held.__enter__()
    release = threading.Timer(0.6, held.__exit__, (None, None, None))
    release.start()
    outcomes = list(one_by_one(cells, place, note=notes.append))
    release.join()
    assert [outcome.cell.seed for outcome in outcomes] == [1, 0]
    assert all(outcome.error is not None for outcome in outcomes)
    assert notes == [
        "digits/cnn, 50 images, seed 0: another process is at work on it; trying again later"
    ]


def test_a_run_that_loses_every_process_is_given_up(tmp_path: Path) -> None:
    place, cell, notes = place_in(tmp_path), tiny(), list[str]()
    waiting = pool.Waiting([], notes.append)
    folder = place.folder(cell)
    assert waiting.lost(cell, folder) is None
    assert waiting.lost(cell, folder) is None
    assert list(waiting.cells) == [cell, cell]
    outcome = waiting.lost(cell, folder)
    assert outcome is not None
    assert outcome.problem.endswith("its process was lost 3 times; is there enough memory for it?")
