"""`invint tune` from its options to its files, with real training."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from invint.cli.tune import tune
from invint.errors import ConfigError, DataError, RunError
from invint.recipes import find_recipe
from invint.study.pool import Workspace
from invint.study.search import search_space
from invint.study.tune import Tuning

app = typer.Typer(pretty_exceptions_enable=False)
app.command()(tune)


@app.callback()
def group() -> None:
    """Keep `tune` a command by name."""


def invoke(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tune", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_a_tiny_tuning_ends_in_a_recipe_a_table_and_a_figure_and_resumes(tmp_path: Path) -> None:
    out, runs = tmp_path / "mine.json", tmp_path / "tuning"
    arguments: list[object] = ["digits/cnn", "--min-scale", 0.05, "--max-scale", 0.15]
    arguments += ["--size", 100, "--set", "train.epochs=4", "--threads", 1]
    arguments += ["--runs", runs, "--out", out]
    text = invoke(*arguments, "--trials", 4, "--compare", "random")
    assert "BOHB: " in text
    assert "random search: " in text
    assert "the recipe's own values: " in text
    assert f"invint train {out}" in text.replace("\n", "")

    recipe = find_recipe(str(out))
    assert recipe.data.size == 100
    assert recipe.data.validation == 0
    assert recipe.train.scale == 1
    (folder,) = runs.glob("digits/cnn/tuning-*")
    assert {"bohb.jsonl", "random.jsonl", "trials.csv", "tuning.png", "tuning.svg"} <= {
        path.name for path in folder.iterdir()
    }
    lines = [json.loads(line) for line in (folder / "bohb.jsonl").read_text().splitlines()]
    assert [line["state"] for line in lines] == ["proposed", "done"] * 4
    assert [line["fidelity"] for line in lines[1::2]] == pytest.approx([0.05, 0.05, 0.05, 0.15])
    best = min(lines[1:6:2], key=lambda line: line["validation_error"])
    assert lines[7]["configuration"] == best["configuration"]  # promoted
    result = json.loads((Path(lines[7]["folder"]) / "result.json").read_text())
    assert lines[7]["validation_error"] == result["validation_error"]

    assert "own values" not in invoke(*arguments, "--trials", 5, "--no-reference")
    again = [json.loads(line) for line in (folder / "bohb.jsonl").read_text().splitlines()]
    assert again[:8] == lines
    assert len(again) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("digits/cn",), "no recipe 'digits/cn'; did you mean 'digits/cnn'"),
        (("--trials", "3", "--hours", "1"), "either --trials or --hours"),
        (("--trials", "0"), "must be positive, got --trials 0"),
        (("--min-scale", "0"), "0 < --min-scale ≤ --max-scale ≤ 1, got 0 and 1"),
        (("--compare", "grid"), "--compare grid: there is random"),
        (("--jobs", "0"), "--jobs 0: expected 1 or more"),
        (("--out", "mine.yaml"), "--out mine.yaml: expected a .json file"),
        (("--out", "nowhere/mine.json"), "there is no folder nowhere"),
        (("--set", "train.lr"), "expected PART.NAME=VALUE"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if not arguments[0].startswith("digits"):
        arguments = ("digits/cnn", *arguments)
    with pytest.raises(ConfigError, match=message):
        invoke(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "blackboxopt", None)
    with pytest.raises(ConfigError, match=r"invint tune: needs blackboxopt; .*invint\[tune\]"):
        invoke("digits/cnn")


def test_a_wrong_data_set_stops_before_there_are_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, DataError), match="digit"):
        invoke("digits/cnn", "--data", "digit", "--trials", 3)
    assert not list(tmp_path.iterdir())


class Stop(Exception):
    pass


def test_processes_that_are_elsewhere_find_runs_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found: list[Tuning] = []

    def stop(tuning: Tuning, *_: object, **__: object) -> None:
        found.append(tuning)
        raise Stop

    monkeypatch.setattr(sys.modules[tune.__module__], "search", stop)
    np.savez("own.npz", images=np.zeros((30, 20, 20), np.uint8), labels=np.arange(30) % 3)
    with pytest.raises(Stop):
        invoke("digits/cnn", "--data", "arrays:own.npz", "--data-dir", "sets", "--runs", "trials")
    (tuning,) = found
    assert tuning.recipe.data.name == f"arrays:{tmp_path / 'own.npz'}"
    assert (tuning.workspace.data_dir, tuning.workspace.runs) == (
        tmp_path / "sets",
        tmp_path / "trials",
    )


def test_two_tunings_of_the_same_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = find_recipe("digits/cnn")
    tuning = Tuning(
        recipe=recipe,
        space=search_space(recipe),
        seed=0,
        scales=(0.02, 1.0),
        workspace=Workspace(runs=Path("tuning")),
    )
    with tuning.store.locked(), pytest.raises(RunError, match="another process is working on"):
        invoke("digits/cnn")
