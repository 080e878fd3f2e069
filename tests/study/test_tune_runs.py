"""Trials as runs, with real training where it is named."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from invint.errors import ConfigError, Interrupted, RunError
from invint.recipes import find_recipe
from invint.recipes.registry import read_recipe, write_recipe
from invint.study.pool import Workspace
from invint.study.search import Configuration, search_space
from invint.study.tune import Trial, Tuning, tuned_recipe
from invint.train import Execution

CONFIGURATION: Configuration = {"train.lr": 0.012, "train.lr_decay_epochs": 3.5}


def tuning_in(runs: Path, *, keep: bool = False) -> Tuning:
    workspace = Workspace(runs=runs, execution=Execution(device="cpu", threads=1))
    recipe = find_recipe("digits/cnn")
    space, scales = search_space(recipe), (0.1, 1.0)
    return Tuning(
        recipe=recipe, space=space, seed=0, scales=scales, workspace=workspace, keep_weights=keep
    )


def test_a_trial_holds_a_fifth_out_and_does_a_share_of_the_iterations() -> None:
    recipe = tuning_in(Path("runs")).recipe_of(CONFIGURATION, 1 / 3)
    assert recipe.data.validation == 0.2
    assert recipe.data.test_turns == 1
    assert recipe.train.scale == 0.333333
    assert recipe.train.lr == 0.012
    assert recipe.train.lr_decay_epochs == (3.5,)
    assert recipe.name == "digits/cnn"


def test_a_trial_can_be_sent_to_another_process() -> None:
    tuning = tuning_in(Path("runs"))
    assert pickle.loads(pickle.dumps(tuning.evaluate)).__self__ == tuning


@pytest.mark.slow
def test_a_trial_returns_the_validation_error_of_the_last_weights_and_not_that_of_the_test(
    tmp_path: Path,
) -> None:
    evaluate = tuning_in(tmp_path).evaluate
    found = evaluate(CONFIGURATION, 0.05)
    folder = Path(found.folder)
    result = json.loads((folder / "result.json").read_text())
    assert found.error == result["validation_error"] != result["error"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert found.error == lines[-1]["validation_error"]
    assert not list(folder.glob("*l.safetensors"))
    assert not list(folder.glob("*t.safetensors"))

    changed = (folder / "result.json").stat().st_mtime_ns
    assert evaluate(CONFIGURATION, 0.05) == found
    assert (folder / "result.json").stat().st_mtime_ns == changed


@pytest.mark.slow
def test_weights_are_kept_where_asked(tmp_path: Path) -> None:
    folder = Path(tuning_in(tmp_path, keep=True).evaluate(CONFIGURATION, 0.02).folder)
    assert (folder / "model.safetensors").exists()


@pytest.mark.slow
def test_a_loss_that_is_no_number_fails_the_trial(tmp_path: Path) -> None:
    found = tuning_in(tmp_path).evaluate({"train.lr": 1e30}, 0.05)
    assert found.error is None
    assert "the loss is" in found.problem


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def train_run(*_: object, **__: object) -> Path:
        raise error

    monkeypatch.setattr("invint.study.pool.train_run", train_run)


def test_exhausted_memory_fails_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RunError("the step needs more memory")
    error.__cause__ = MemoryError()
    failing(monkeypatch, error)
    assert tuning_in(tmp_path).evaluate(CONFIGURATION, 0.1).problem == "the step needs more memory"


@pytest.mark.parametrize(
    "error", [ConfigError("no network 'x'"), Interrupted("stopped at step 3"), ValueError("a bug")]
)
def test_what_no_other_trial_would_survive_stops_the_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        tuning_in(tmp_path).evaluate(CONFIGURATION, 0.1)


def test_a_full_disk_stops_the_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RunError("the disk is full")
    error.__cause__ = OSError(28, "No space left on device")
    failing(monkeypatch, error)
    with pytest.raises(RunError, match="the disk is full"):
        tuning_in(tmp_path).evaluate(CONFIGURATION, 0.1)


def test_a_run_without_validation_error_is_named(tmp_path: Path) -> None:
    tuning = tuning_in(tmp_path)
    recipe = tuning.recipe_of(CONFIGURATION, 0.1)
    folder = tmp_path / recipe.name / recipe.hash / "0"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"error": 0.5}')
    with pytest.raises(RunError, match="no validation error; remove the folder"):
        tuning.evaluate(CONFIGURATION, 0.1)


def test_folders_of_tunings_differ_with_all_that_proposals_depend_on(tmp_path: Path) -> None:
    tuning = tuning_in(tmp_path)
    other = tuning.recipe.replace(data={"size": 100})
    tunings = [
        tuning,
        replace(tuning, seed=1),
        replace(tuning, scales=(0.2, 1.0)),
        replace(tuning, space=tuning.space[1:]),
        replace(tuning, recipe=other),
    ]
    folders = [each.store.path for each in tunings]
    assert len(set(folders)) == 5
    assert replace(tuning, keep_weights=True).store.path == folders[0]


@pytest.mark.parametrize("name", ["digits/cnn", "rotmnist/attention", "stl10/wrn"])
def test_the_recipe_found_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    recipe = find_recipe(name)
    configuration: Configuration = {
        each.path: each.values[-1] if not hasattr(each, "high") else each.rounded(each.high)
        for each in search_space(recipe)
    }
    trial = Trial(number=7, configuration=configuration, fidelity=1.0, validation_error=0.0123)
    found = tuned_recipe(recipe, trial, "BOHB", 22)
    assert found.data == recipe.data  # trained on all images, without validation
    assert found.train.scale == recipe.train.scale
    write_recipe(found, tmp_path / "mine.json", base=name)
    again = read_recipe(tmp_path / "mine.json")
    assert again == found
    assert again.name == f"{name}-tuned"
    assert "1.23% validation error" in again.about
