import subprocess
import sys

import pytest

from invint.models.summary import PAPER, summaries, summarize


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "invint", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": ""},
    )


@pytest.mark.slow
def test_models_prints_parameters_beside_the_papers() -> None:
    done = run("models", "sf-wrn16-4", "cnn7", "--head", "local-ws")
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header.split()[:5] == ["network", "head", "group", "widths", "n_F"]
    assert [line.split()[0] for line in lines] == ["cnn7", "sf-wrn16-4"]
    assert "9-14-28-49" in lines[1]
    assert "2,735,865" in lines[1]
    assert "-1.2%" in lines[1]


@pytest.mark.slow
def test_wrong_names_get_one_line_and_status_2() -> None:
    done = run("models", "sfcn")
    assert done.returncode == 2
    assert done.stderr.startswith("invint: no network 'sfcn'; there are cnn7, sfcnn")
    assert len(done.stderr.splitlines()) == 1


def test_every_figure_of_the_paper_belongs_to_a_network() -> None:
    assert set(PAPER) <= set(summaries())


def test_operations_are_those_of_the_convolutions() -> None:
    """Count the multiplications of the small plain network by hand."""
    convolutions = 25 * (20 * 20 * 16 + 10 * 10 * 16 * 24 + 5 * 5 * 24 * 40)
    dense = 40 * 32 + 32 * 32 + 32 * 10
    assert summarize("cnn-small").operations == convolutions + dense
