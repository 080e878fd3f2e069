import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import TINY, Command, in_process


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run commands in this process."""
    return in_process(monkeypatch, capsys)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that is complete."""
    runs = tmp_path_factory.mktemp("runs")
    command = [sys.executable, "-m", "invint", "train", *TINY, "--quiet"]
    done = subprocess.run([*command, "--runs", str(runs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "error on 797 test images of digits, from 40, scaled to 0.08" in done.stdout
    (result,) = runs.glob("*/*/*/*/result.json")
    return result.parent
