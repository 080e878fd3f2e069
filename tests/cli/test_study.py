import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from support.tiny_runs import tiny, workspace_in
from typer.testing import CliRunner, Result

from invint.cli import main
from invint.cli.progress import StudyProgress
from invint.cli.study import Workers, chosen_seeds, duration, study, study_table, train_all
from invint.errors import InvintError
from invint.study.forecast import Speed
from invint.study.pool import InProcess, Outcome, Workspace, completed
from invint.study.records import find_runs, read_records, write_records

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path) -> Invoke:
    """Call the command with runs of two steps in a folder of the test."""
    app = typer.Typer()
    app.command()(study)
    fixed = ["--runs", str(tmp_path / "runs"), "--scale", "0.01", "--threads", "1"]

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, *fixed], env={"COLUMNS": "160"})

    return call


def line_of(result: Result) -> str:
    assert isinstance(result.exception, InvintError), result.output
    return str(result.exception)


@pytest.mark.slow
def test_a_study_ends_in_its_table_and_is_not_repeated(invoke: Invoke, tmp_path: Path) -> None:
    arguments = ["digits", "--seeds", "2", "--sizes", "50", "--only", "cnn"]
    first = invoke(*arguments)
    assert first.exit_code == 0, first.output
    assert "digits/cnn, 50 images, seed 0: " in first.stderr
    assert "% error" in first.stderr
    assert "2 of 2 runs" in first.stderr
    assert "digits/cnn, averaged over rotated copies" in first.stdout
    assert "scaled down: 0.01" in first.stdout
    records = tmp_path / "records.json"
    second = invoke(*arguments, "--format", "csv", "--records", str(records))
    assert "% error" not in second.stderr
    assert second.stdout.startswith("data,recipe,averaged")
    assert [run.seed for run in read_records(records)] == [0, 1]


@pytest.mark.slow
def test_runs_made_elsewhere_are_known_by_their_records(invoke: Invoke, tmp_path: Path) -> None:
    arguments = ["digits", "--sizes", "50", "--only", "cnn"]
    records, both = tmp_path / "records.json", tmp_path / "both.json"
    invoke(*arguments, "--seeds", "1", "--records", str(records))
    shutil.rmtree(tmp_path / "runs")
    result = invoke(*arguments, "--seeds", "2", "--known", str(records), "--records", str(both))
    assert "seed 0:" not in result.stderr
    assert "digits/cnn, 50 images, seed 1: " in result.stderr
    assert "2 of 2 runs" in result.stderr
    assert "(2)" in result.stdout
    assert [run.seed for run in read_records(both)] == [0, 1]
    assert read_records(both)[0] == read_records(records)[0]
    longer = invoke(*arguments[:2], "60", *arguments[3:], "--seeds", "1", "--known", str(both))
    assert "digits/cnn, 60 images, seed 0: " in longer.stderr  # not among the known


def test_known_runs_must_be_records(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text("[]")
    result = invoke("digits", "--only", "cnn", "--known", str(tmp_path / "known.json"))
    assert "known.json" in line_of(result)
    missing = invoke("digits", "--only", "cnn", "--known", str(tmp_path / "missing.json"))
    assert "missing.json" in line_of(missing)


def test_known_runs_must_be_of_this_version(invoke: Invoke, tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "results" / "digits-longer.json"
    older = tmp_path / "older.json"
    older.write_text(kept.read_text().replace('"version": "', '"version": "0.0.'))
    result = invoke("digits", "--only", "cnn", "--known", str(older))
    assert "has runs of invint 0.0." in line_of(result)
    assert not (tmp_path / "runs").exists()  # said before anything is run


@pytest.mark.slow
def test_failed_runs_are_named_at_the_end_while_others_finish(invoke: Invoke) -> None:
    result = invoke("digits", "--seeds", "1", "--sizes", "5,50", "--only", "cnn")
    assert line_of(result) == (
        "1 of 2 runs failed, first digits/cnn, 5 images, seed 0: subset of 'digits': 5 images "
        "cannot show 10 classes; ask for at least 10"
    )
    row = next(line for line in result.stdout.splitlines() if "digits/cnn " in line)
    assert "not run" in row
    assert "(1)" in row


@pytest.mark.slow
def test_a_page_is_written_where_asked(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("invint.report.measure.IMAGES", 6)
    page = tmp_path / "page.html"
    arguments = ["--report", str(page), "--title", "Two steps"]
    result = invoke("digits", "--seeds", "1", "--sizes", "50", "--only", "cnn", *arguments)
    assert result.exit_code == 0, result.output
    assert "<title>Two steps</title>" in page.read_text()
    assert f"open {page.as_uri()}" in result.stderr


def test_a_dry_run_shows_the_plan_and_trains_nothing(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(step=10.0, image=0.0, tests=0)
    monkeypatch.setattr("invint.study.forecast.measure", lambda *_, **__: speed)
    arguments = ["digits", "--seed", "0", "--seed", "4"]
    arguments += ["--sizes", "50,1000", "--only", "cnn", "--dry-run"]
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    heading, *rows, total = result.stdout.splitlines()
    assert heading.split() == ["run", "images", "seed", "steps", "state", "time", "left"]
    assert [row.split() for row in rows] == [
        ["digits/cnn", size, seed, "3", "to", "do", "30", "s"]
        for seed in ("0", "4")
        for size in ("50", "1,000")
    ]
    assert total == "4 of 4 runs left: about 2 min on this machine"
    assert not (tmp_path / "runs").exists()
    beside = invoke(*arguments, "--jobs", "2")
    assert "about 1 min on this machine, 2 side by side" in beside.stdout


def test_a_plan_needs_no_data(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed = Speed(step=10.0, image=0.0, tests=0)
    monkeypatch.setattr("invint.study.forecast.measure", lambda *_, **__: speed)
    arguments = ["table2", "--seeds", "1", "--sizes", "500,all", "--only", "pooling"]
    nowhere = ["--data-dir", str(tmp_path / "nowhere")]
    result = invoke(*arguments, *nowhere, "--dry-run")
    assert result.exit_code == 0, result.output
    rows = [line.split()[:4] for line in result.stdout.splitlines()[1:3]]
    assert rows == [["rotmnist/pooling", size, "0", "187"] for size in ("500", "12,000")]
    assert "rotmnist: " in line_of(invoke(*arguments, *nowhere))  # to train, it does


def test_how_long_runs_on_an_unknown_number_of_images_are_is_said_to_be_unknown(
    invoke: Invoke, tmp_path: Path
) -> None:
    arguments = ["settled-svhn", "--data", "svhn-recropped", "--seeds", "1", "--only", "pooling"]
    result = invoke(*arguments, "--sizes", "1000,all", "--dry-run", "--data-dir", str(tmp_path))
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()[1:3]]
    assert rows == [
        ["svhn/settled-pooling", size, "0", "unknown", "to", "do", "unknown"]
        for size in ("1,000", "all")
    ]
    assert "svhn-recropped is not here and may have any number of images" in result.stdout


HEADS_RECORD = Path(__file__).parents[2] / "results" / "digits-heads.json"
PAIR = ["digits", "--only", "local-ws,pooling", "--seeds", "3"]


@pytest.fixture
def whole(tmp_path: Path) -> Invoke:
    """Call the command with whole runs, which are in records."""
    app = typer.Typer()
    app.command()(study)
    fixed = ["--runs", str(tmp_path / "runs"), "--threads", "1", "--tables-only"]
    return lambda *more: CliRunner().invoke(app, [*PAIR, *fixed, *more], env={"COLUMNS": "160"})


def test_tables_are_made_from_any_number_of_records(whole: Invoke, tmp_path: Path) -> None:
    runs = read_records(HEADS_RECORD)
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    write_records([run for run in runs if run.seed < 2], files[0])
    write_records([run for run in runs if run.seed > 0], files[1])
    known = [argument for file in files for argument in ("--known", str(file))]
    both = whole("--sizes", "100,all", "--format", "csv", *known)
    assert both.exit_code == 0, both.output
    alone = ["--sizes", "100,all", "--format", "csv", "--known", str(HEADS_RECORD)]
    assert both.stdout == whole(*alone).stdout
    assert "12.21" in whole(*alone[:2], *alone[4:]).stdout
    assert line_of(whole()) == (
        "--tables-only: none of these runs is finished; give --known or --runs"
    )
    assert not (tmp_path / "runs").exists()


def test_records_that_contradict_each_other_are_named(whole: Invoke, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    changed = [replace(run, error=0.5) for run in read_records(HEADS_RECORD)[:1]]
    write_records(changed, other)
    line = line_of(whole("--known", str(HEADS_RECORD), "--known", str(other)))
    assert "two runs that should be the same differ, error is " in line


def test_the_seeds_a_difference_needs_are_said_first(whole: Invoke) -> None:
    known = ["--known", str(HEADS_RECORD)]
    result = whole("--sizes", "50,all", "--see", "0.5", *known)
    lines = result.stdout.splitlines()
    assert lines[0] == "seeds that show 0.5 points with a chance of 80%:"
    assert lines[2].split() == ["local-ws", "−", "pooling", "50", "0", "unknown", "unknown"]
    assert lines[3].split() == ["local-ws", "−", "pooling", "1,000", "3", "0.26", "5", "12"]
    goal = ["--compare", "local-ws,pooling", "--width", "1", "--max-seeds", "20", "--sizes", "all"]
    result = whole(*goal, *known)
    assert "seeds after which the interval is 1 points wide:" in result.stdout
    last = result.stdout.splitlines()[-1]
    assert last == (
        "local-ws − pooling at 1,000 images, looked at after 3 seeds: +0.21 too few pairs: no "
        "interval"
    )


@pytest.mark.slow
def test_seeds_are_added_until_the_interval_is_narrow(invoke: Invoke, tmp_path: Path) -> None:
    arguments = ["digits", "--seeds", "3", "--sizes", "50", "--only", "cnn,pooling"]
    records = tmp_path / "records.json"
    goal = ["--compare", "cnn,pooling", "--records", str(records), "--max-seeds"]
    result = invoke(*arguments, *goal, "9", "--width", "1000")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].endswith("; narrow enough")
    assert [run.seed for run in read_records(records)] == [0, 1, 2, 3] * 2  # four have an interval
    result = invoke(*arguments, *goal, "4", "--width", "0.001")
    assert result.stdout.splitlines()[-1].endswith("; all of 4 seeds are used")
    assert [run.seed for run in read_records(records)] == [0, 1, 2, 3] * 2


def test_what_was_asked_for_and_not_run_is_in_the_table(tmp_path: Path) -> None:
    workspace, cell = workspace_in(tmp_path), tiny()
    list(completed(InProcess(), [cell], workspace))
    cells = [cell, tiny(size=200), tiny("digits/pooling")]
    found = find_runs([tmp_path])
    assert [run.steps for run in found] == [cell.steps]
    table = study_table(cells, found)
    assert table.sizes == (50, 200)
    errors = {row.recipe: [each.ours is None for each in row.cells] for row in table.rows}
    assert errors == {"digits/cnn": [False, True], "digits/pooling": [True, True]}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["digit"], "no study 'digit'; did you mean 'digits'? there are digits, "),
        (["digits", "--only", "foo"], "--only foo: no such recipe; the study has cnn, pooling, "),
        (["digits", "--sizes", "2000"], "--sizes 2000: digits has 1,000 training images; "),
        (["digits", "--sizes", "few"], "--sizes few: expected numbers or all, like 100,1000,all"),
        (["digits", "--seeds", "x"], "--seeds x: expected how many, 1 or more; "),
        (
            ["digits", "--seeds", "0"],
            "--seeds 0: expected how many, 1 or more; --seed 0 asks for the seed 0 alone",
        ),
        (
            ["digits", "--seeds", "0,2,4"],
            "--seeds 0,2,4: expected how many; for these seeds write --seed 0 --seed 2 --seed 4",
        ),
        (["digits", "--seeds", "2,"], "--seeds 2,: expected how many; for these seeds write --s"),
        (
            ["digits", "--seeds", "2", "--seed", "4"],
            "--seeds says how many, --seed which: give one of them",
        ),
        (["digits", "--seed", "-1"], "--seed: expected seeds of 0 or more, got [-1]"),
        (["digits", "--jobs", "0"], "--jobs 0: expected 1 or more processes"),
        (["digits", "--engine", "ray"], "--engine ray: there are local, dask, slurm"),
        (["digits", "--address", "tcp://a"], "--address tcp://a: goes with --engine dask"),
        (["digits", "--slurm", "time=9"], "--slurm time=9: goes with --engine slurm"),
        (["digits", "--format", "html"], "--format html: there are terminal, markdown, csv, latex"),
        (
            ["digits", "--max-seeds", "9"],
            "--max-seeds and --minutes end what --width begins: give it too",
        ),
        (["digits", "--width", "1", "--minutes", "1"], "--width is of one comparison at one size:"),
        (["digits", "--compare", "cnn"], "--compare cnn: expected two recipes of the study, as "),
        (
            ["digits", "--compare", "cnn,pooling"],
            "--compare cnn,pooling: goes with --see or --width",
        ),
        (["digits", "--see", "0"], "--see 0: expected percentage points above 0, such as 0.3"),
        (["digits", "--data", "digis"], "no data set 'digis'; did you mean 'digits'?"),
    ],
)
def test_wrong_use_is_one_line_before_anything_is_trained(
    invoke: Invoke, tmp_path: Path, arguments: list[str], line: str
) -> None:
    assert line_of(invoke(*arguments)).startswith(line)
    assert not (tmp_path / "runs").exists()


def test_a_stopped_study_says_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any, **__: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("invint.study.pool.completed", stopped)
    arguments = ["invint", "study", "digits", "--seeds", "1", "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == ("invint: stopped with 0 of 40 runs complete; the same command resumes")


@pytest.mark.slow
def test_a_stopped_study_shows_what_is_done(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: Any, **options: Any) -> Iterator[Outcome]:
        yield next(completed(*arguments, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr("invint.study.pool.completed", stopped)
    records = tmp_path / "records.json"
    result = invoke(
        *["digits", "--seeds", "2", "--sizes", "50", "--only", "cnn", "--records", str(records)]
    )
    assert line_of(result).startswith("stopped with 1 of 2 runs complete")
    assert "digits/cnn" in result.stdout
    assert [run.seed for run in read_records(records)] == [0]


def test_the_bar_follows_the_logs_of_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("invint.cli.progress.LOOK", 0.01)
    looked = threading.Event()
    workspace, cells = workspace_in(tmp_path), [tiny(seed=0), tiny(seed=1)]
    workspace.folder(cells[0]).mkdir(parents=True)
    log = workspace.folder(cells[0]) / "log.jsonl"
    log.write_text('{"epoch": 1.0, "step": 1}\n')
    bar = StudyProgress(cells, workspace)
    task = bar.progress.tasks[0]
    assert (task.completed, task.total) == (1, 12)
    with log.open("a") as file:
        file.write('{"epoch": 2.0, "step": 3}\n')
    read_logs = bar.read_logs

    def look() -> None:
        read_logs()
        looked.set()

    monkeypatch.setattr(bar, "read_logs", look)
    with bar.shown():
        assert looked.wait(60)
        assert task.completed == 3
        bar.finish(Outcome(cells[0], workspace.folder(cells[0]), error=0.125))
        assert (task.completed, task.description) == (6, "1 of 2 runs")
    assert "digits/cnn, 50 images, seed 0: 12.50% error" in capsys.readouterr().err


def test_the_bar_counts_the_steps_of_runs_in_this_process(tmp_path: Path) -> None:
    bar = StudyProgress([tiny(seed=0), tiny(seed=1)], workspace_in(tmp_path))
    callback, task = bar.callback(tiny(seed=1)), bar.progress.tasks[0]
    callback.on_start(tmp_path, 2, 6)
    callback.on_step(3)
    assert task.completed == 3


def test_a_line_above_the_bar_keeps_the_brackets_of_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = StudyProgress([tiny()], workspace_in(tmp_path))
    bar.say("runs[old]/a[/b]: locked")
    assert "runs[old]/a[/b]: locked" in capsys.readouterr().err


def test_where_every_run_is_known_no_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "unfinished", lambda *_: [])
    workers = Workers(engine="dask", address="nowhere")
    assert train_all([tiny()], workspace_in(tmp_path), workers) == []


@pytest.mark.parametrize(
    ("count", "given", "seeds"),
    [
        (None, None, None),
        (None, [], None),
        ("1", None, [0]),
        ("3", None, [0, 1, 2]),
        (None, [4], [4]),
        (None, [0, 4], [0, 4]),
    ],
)
def test_seeds_are_how_many_or_which(
    count: str | None, given: list[int] | None, seeds: list[int] | None
) -> None:
    assert chosen_seeds(count, given) == seeds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59, "59 s"),
        (119, "2 min"),
        (3599, "1 h 00 min"),
        (9000, "2 h 30 min"),
        (500_000, "5.8 days"),
    ],
)
def test_times_are_said_in_the_units_that_matter(seconds: float, text: str) -> None:
    assert duration(seconds) == text
