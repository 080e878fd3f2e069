"""Folders of runs whose files were damaged, by themselves and as they are resumed."""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock
from support.attack import Judge, cut, damaged, replaced

from invint.data import official
from invint.study.records import read_run
from invint.study.tables import tables_by_data

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

FOLDERS = Path(__file__).parents[1] / "golden" / "folders"
RECIPES = json.loads((FOLDERS / "recipes.json").read_text())
JSON = ("recipe.json", "environment.json", "subset.json", "result.json")
RUINED: dict[str, bytes] = {
    "empty": b"",
    "nothing": b"null",
    "a list": b"[]",
    "a number": b"7",
    "an empty object": b"{}",
    "half": b'{"format": 1, "choi',
    "deep": b"[" * 100_000,
    "not text": b"\xff\xfe\0",
}


@pytest.fixture(autouse=True)
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the data set once."""
    monkeypatch.setattr(official, "load_digits", prepared)


prepared = cache(official.load_digits)


@pytest.fixture
def complete(at_home: Path) -> Path:
    """A complete run, with monomials."""
    return Path(shutil.copytree(FOLDERS / "monomials" / "complete", at_home / "run"))


def store(name: str, state: str, runs: Path) -> tuple[Path, tuple[str, ...]]:
    """Put a run where a command finds it; return the folder and the command."""
    recipe = RECIPES[name]
    values = json.loads((FOLDERS / name / state / "recipe.json").read_text())
    folder = runs / recipe["name"] / values["hash"] / str(recipe["seed"])
    shutil.copytree(FOLDERS / name / state, folder)
    (folder / "lock").touch()  # as every run has
    changes = tuple(f"--set={each}" for each in recipe["set"])
    seed = f"--seed={recipe['seed']}"
    return folder, ("train", recipe["name"], seed, *changes, "--quiet", f"--runs={runs}")


# Complete ones


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("kind", RUINED)
def test_ruined_files(judge: Judge, complete: Path, name: str, kind: str) -> None:
    (complete / name).write_bytes(RUINED[kind])
    empty = name == "environment.json" and kind == "an empty object"  # says nothing wrong
    judge.raised(lambda: tables_by_data([read_run(complete)]), may_pass=empty)


@pytest.mark.parametrize("name", JSON)
@pytest.mark.parametrize("seed", range(8))
def test_files_with_a_value_of_another_kind(
    judge: Judge, complete: Path, name: str, seed: int
) -> None:
    values = json.loads((complete / name).read_text())
    (complete / name).write_text(json.dumps(replaced(values, seed)))
    judge.raised(lambda: tables_by_data([read_run(complete)]), may_pass=True)


@pytest.mark.parametrize("kind", RUINED)
@pytest.mark.parametrize("command", ["evaluate", "audit", "serve"])
def test_ruined_recipes(judge: Judge, complete: Path, kind: str, command: str) -> None:
    (complete / "recipe.json").write_bytes(RUINED[kind])
    judge.refused(command, str(complete))


@pytest.mark.parametrize("seed", range(10))
def test_recipes_with_a_value_of_another_kind(judge: Judge, complete: Path, seed: int) -> None:
    values = json.loads((complete / "recipe.json").read_text())
    values["choices"]["data"] = replaced(values["choices"]["data"], seed)
    (complete / "recipe.json").write_text(json.dumps(values))
    judge.refused_or_taken("evaluate", str(complete))


@pytest.mark.parametrize("kind", sorted(RUINED.keys() - {"empty", "an empty object"}))
def test_ruined_logs(judge: Judge, complete: Path, kind: str) -> None:
    (complete / "log.jsonl").write_bytes(RUINED[kind] + b"\n")
    judge.refused("monomials", str(complete))


@pytest.mark.parametrize("seed", range(15))
def test_logs_with_a_value_of_another_kind(judge: Judge, complete: Path, seed: int) -> None:
    lines = [json.loads(line) for line in (complete / "log.jsonl").read_text().splitlines()]
    chosen = [number for number, line in enumerate(lines) if line.get("event") == "selection"]
    number = chosen[seed % len(chosen)]
    lines[number] = replaced(lines[number], seed)
    (complete / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judge.refused_or_taken("monomials", str(complete))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("damage", [cut, damaged])
def test_damaged_weights(
    judge: Judge, complete: Path, seed: int, damage: Callable[[bytes, int], bytes]
) -> None:
    path = complete / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()[:3000], seed))
    judge.refused("export", str(complete), "--format=safetensors", "--out=new.safetensors")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_predictions(judge: Judge, complete: Path, seed: int) -> None:
    path = complete / "predictions.safetensors"
    content = path.read_bytes()
    path.write_bytes(cut(content, seed) if seed < 2 else damaged(content[:200], seed))
    judge.raised(lambda: read_run(complete))


@pytest.mark.parametrize("kind", RUINED)
def test_a_ruined_result_of_a_run_that_is_asked_for_again(
    judge: Judge, at_home: Path, kind: str
) -> None:
    folder, command = store("monomials", "complete", at_home)
    (folder / "result.json").write_bytes(RUINED[kind])
    judge.refused(*command)


@pytest.mark.parametrize("seed", range(8))
def test_a_result_with_a_value_of_another_kind(judge: Judge, at_home: Path, seed: int) -> None:
    folder, command = store("monomials", "complete", at_home)
    values = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(replaced(values, seed)))
    judge.refused_or_taken(*command)


# Those that are resumed


@pytest.mark.parametrize("name", ["recipe.json", "subset.json", "environment.json"])
@pytest.mark.parametrize("kind", ["a list", "half", "not text"])
def test_stopped_runs_with_ruined_files(judge: Judge, at_home: Path, name: str, kind: str) -> None:
    folder, command = store("local-ws", "stopped", at_home)
    (folder / name).write_bytes(RUINED[kind])
    judge.refused(*command)


@pytest.mark.parametrize("seed", range(8))
def test_stopped_runs_with_another_environment(judge: Judge, at_home: Path, seed: int) -> None:
    folder, command = store("local-ws", "stopped", at_home)
    key = ("device", "precision", "threads", "compile")[seed % 4]
    values = json.loads((folder / "environment.json").read_text())
    values[key] = ("\x1b[2J", [], {"a": 1}, -1, 10**30)[seed % 5]
    (folder / "environment.json").write_text(json.dumps(values))
    judge.refused(*command)


@pytest.mark.parametrize("damage", [cut, damaged])
def test_checkpoints_that_are_all_damaged(
    judge: Judge, at_home: Path, damage: Callable[[bytes, int], bytes]
) -> None:
    """The run starts over, says so, and ends complete."""
    folder, command = store("local-ws", "stopped", at_home)
    for seed, name in enumerate(("last.safetensors", "previous.safetensors")):
        (folder / name).write_bytes(damage((folder / name).read_bytes(), seed))
    judge.refused_or_taken(*command)
    assert json.loads((folder / "result.json").read_text())["steps"] == 20


def test_a_run_on_which_another_process_is_at_work(judge: Judge, at_home: Path) -> None:
    folder, command = store("local-ws", "stopped", at_home)
    with FileLock(folder / "lock"):
        assert "another process is working on this run" in judge.refused(*command)
