import json
from pathlib import Path
from typing import Any

import pytest

from invint.cli.progress import JsonLines, ProgressBar, callback_for
from invint.train import Callback


def test_a_bar_that_never_began_leaves_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressBar().on_end()
    assert capsys.readouterr().err == ""


def test_the_bar_shows_the_epoch_and_what_was_selected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    bar = ProgressBar()
    bar.on_start(tmp_path, 3, 10)
    entry = {"event": "selection", "epoch": 2.0, "step": 5, "kept": [0, 2], "scores": [3.0, 1, 2]}
    bar.on_log(entry)
    bar.on_log({**entry, "scores": [3.0, 1], "tried": 1200, "accepted": 7})
    bar.on_log({"event": "monomials", "epoch": 0, "start": {"distances": [[0, 1], [0, 2]]}})
    bar.on_step(10)
    bar.on_log({"epoch": 4.0, "error": 0.25, "lr": 1e-3, "validation_error": 0.5})
    bar.on_end()
    shown = capsys.readouterr().err
    assert shown.startswith(f"resuming {tmp_path}")
    assert "epoch 2: 2 of 3 monomials kept" in shown
    assert "epoch 2: 2 monomials by least squares, 7 of 1,200 exchanges made" in shown
    assert "epoch 0: 2 monomials, kept as drawn" in shown
    assert "10/10" in shown
    assert "error 25.0%" in shown
    assert "validation 50.0%" in shown


@pytest.mark.parametrize(("columns", "shown"), [("80", False), ("100", True)])
def test_the_learning_rate_is_shown_where_there_is_room(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    columns: str,
    shown: bool,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    bar = ProgressBar()
    bar.on_start(tmp_path, 0, 37_500)
    bar.on_step(37_500)
    bar.on_log({"epoch": 100.0, "error": 0.25, "lr": 1e-3, "validation_error": 0.5})
    bar.on_end()
    line = capsys.readouterr().err.splitlines()[-1]
    assert "37500/37500 epoch 100  error 25.0%  validation 50.0%" in line
    assert ("lr 1.0e-03" in line) == shown
    assert "…" not in line


def test_a_brief_bar_shows_the_error_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bar = ProgressBar(brief=True)
    bar.on_start(tmp_path, 0, 10)
    bar.on_step(10)
    bar.on_log({"event": "selection", "epoch": 2.0})
    bar.on_log({"epoch": 4.0, "error": 0.25, "lr": 1e-3, "validation_error": 0.5})
    bar.on_end()
    printed = capsys.readouterr().err
    assert str(tmp_path) not in printed
    assert "10/10 error 50.0%" in printed
    assert "epoch" not in printed


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = JsonLines()
    lines.on_start(tmp_path, 1, 2)
    lines.on_log({"epoch": 1.0})
    lines.on_log({"event": "selection", "kept": [1]})
    lines.on_note("a\nb")
    lines.on_finish({"error": 0.5})
    lines.on_end()
    printed: list[dict[str, Any]] = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert printed == [
        {"event": "started", "folder": str(tmp_path), "step": 1, "steps": 2},
        {"event": "epoch", "epoch": 1.0},
        {"event": "selection", "kept": [1]},
        {"event": "note", "text": "a\nb"},
        {"event": "finished", "error": 0.5},
    ]


def test_quiet_training_prints_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    callback = callback_for(quiet=True, as_json=False, mlflow=False)
    assert isinstance(callback, Callback)
    callback.on_start(tmp_path, 0, 1)
    callback.on_note("a note")
    callback.on_end()
    assert capsys.readouterr() == ("", "")


def test_a_bar_serves_one_run_after_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    bar = ProgressBar(brief=True)
    for run, steps in enumerate((10, 20)):
        bar.on_note(f"run {run} [/b]\nwith two lines")
        bar.on_start(tmp_path, 0, steps)
        bar.on_step(steps)
        bar.on_end()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["run 0 [/b]", "with two lines"]
    assert "10/10" in lines[2]
    assert lines[3:5] == ["run 1 [/b]", "with two lines"]
    assert "20/20" in lines[5]
