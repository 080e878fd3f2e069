from pathlib import Path

import pytest
import typer
from support.commands import Command
from support.written_runs import tiny_dataset, write_run
from typer.testing import CliRunner

from invint.cli.show import report
from invint.errors import ConfigError
from invint.models.registry import summaries
from invint.study.records import read_records


@pytest.mark.slow
def test_models_prints_parameters_beside_the_papers(command: Command) -> None:
    done = command("models", "sf-wrn16-4", "cnn7", "--head", "local-ws")
    assert done.status == 0, done.err
    header, *lines = done.out.splitlines()
    assert header.split()[:5] == ["network", "head", "group", "widths", "n_F"]
    assert [line.split()[0] for line in lines] == ["cnn7", "sf-wrn16-4"]
    assert "9-14-28-49" in lines[1]
    assert "2,735,865" in lines[1]
    assert "-1.2%" in lines[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "left_out"), [(80, "widths"), (60, "widths, difference, paper")]
)
def test_every_name_is_whole_on_a_narrow_terminal(
    command: Command, monkeypatch: pytest.MonkeyPatch, columns: int, left_out: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = command("models")
    assert done.status == 0, done.err
    lines = done.out.splitlines()
    shown = [tuple(line.split()[:2]) for line in lines[1:]]
    listed = summaries()
    assert len(shown) == len(listed)
    for (name, head), (shown_name, shown_head) in zip(listed, shown, strict=True):
        assert name == shown_name
        assert head in (shown_head, None)
    assert max(map(len, lines)) <= columns
    assert "…" not in done.out
    assert done.err == f"left out to fit {columns} columns: {left_out}\n"


def test_a_pipe_gets_whole_lines(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.delenv("COLUMNS")
    done = command("models", "cnn-small")
    titles = "network head group widths n_F parameters paper difference MACs"
    assert done.out.splitlines()[0].split() == titles.split()
    assert done.err == ""


@pytest.mark.slow
def test_wrong_names_get_one_line_and_status_2(command: Command) -> None:
    done = command("models", "sfcn")
    assert done.status == 2
    assert done.err.startswith("invint: no network 'sfcn'; there are cnn7, sfcnn")
    assert len(done.err.splitlines()) == 1


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr("invint.report.page.load_data", lambda *_, **__: tiny_dataset())
    monkeypatch.setattr("invint.report.measure.IMAGES", 6)
    app = typer.Typer()
    app.command()(report)
    return app


def test_the_command_writes_the_page_and_prints_the_table(app: typer.Typer, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", seed=0)
    (write_run(tmp_path / "runs", seed=1) / "result.json").unlink()
    page, records = tmp_path / "page.html", tmp_path / "records.json"
    arguments = [str(tmp_path / "runs"), "--out", str(page), "--records", str(records)]
    result = CliRunner().invoke(app, [*arguments, "--title", "Bars"])
    assert result.exit_code == 0, result.output
    assert "<title>Bars</title>" in page.read_text()
    assert "left out" in page.read_text()
    assert "10.00 (1)" in result.stdout
    assert f"open {page.as_uri()}" in result.stdout
    assert "not complete, there is no result.json" in " ".join(result.stderr.split())
    (kept,) = read_records(records)
    assert kept.seed == 0
    assert len(kept.turns) == 24


def test_nothing_to_report_on_is_one_line(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("no finished run to report on")
