from pathlib import Path

import pytest
import typer
from support.written_runs import tiny_dataset, write_run
from typer.testing import CliRunner

from invint.cli.report import report
from invint.errors import ConfigError
from invint.study.records import read_records


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setattr("invint.report.page.load_data", lambda *_, **__: tiny_dataset())
    monkeypatch.setattr("invint.report.page.IMAGES", 6)
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
    assert "not finished, there is no result.json" in " ".join(result.stderr.split())
    (kept,) = read_records(records)
    assert kept.seed == 0
    assert len(kept.turns) == 24


def test_nothing_to_report_on_is_one_line(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("no finished run to report on")
