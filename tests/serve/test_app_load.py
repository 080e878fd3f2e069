"""The load test of the benchmarks, shortened."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.unchecked
def test_a_hundred_clients_get_answers_without_an_error_and_without_growth() -> None:
    options = ["--clients", "100", "--requests", "100", "--angles", "12"]
    command = [sys.executable, "benchmarks/serve_load.py", *options]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = [line.strip("| ").split("|") for line in output.splitlines() if "/api/" in line]
    predict, turns = ([cell.strip() for cell in row] for row in rows[2:])
    assert predict[:3] == ["/api/predict", "100", "100"]
    assert turns[:3] == ["/api/turns?angles=12", "100", "100"]
    assert int(turns[3]) > 0  # busy answers: the queue is shorter than the crowd
    for row in (predict, turns):
        assert int(row[4]) == 0  # errors
        assert int(row[10]) < int(row[8]) + 40  # MB after and before
