import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from invint.errors import RunError
from invint.recipes import find_recipe
from invint.train.store import RunStore


def test_a_folder_is_named_by_recipe_choices_and_seed() -> None:
    recipe = find_recipe("digits/cnn")
    path = RunStore.at(Path("runs"), recipe, 7).path
    assert path == Path("runs") / "digits" / "cnn" / recipe.hash / "7"


def test_a_log_is_cut_to_the_lines_a_checkpoint_knew(tmp_path: Path) -> None:
    folder = RunStore(tmp_path)
    assert folder.log() == []
    for step in range(4):
        folder.append({"step": step})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 4')  # killed while it was written
    assert folder.count_log_lines() == 4
    assert folder.log()[-1] == {"step": 3}
    folder.cut_log(2)
    folder.append({"step": 2})
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 0}\n{"step": 1}\n{"step": 2}\n'


def test_a_locked_folder_is_left_alone_until_it_is_free(tmp_path: Path) -> None:
    first, second = RunStore(tmp_path / "run"), RunStore(tmp_path / "run")
    with first.locked():
        draft = first.path / ".log.jsonl.abcdef"
        draft.touch()
        with pytest.raises(RunError, match="another process is working on this run"):
            second.locked().__enter__()
        assert draft.exists()
    with second.locked():
        assert not draft.exists()


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_lock_under_which_nothing_was_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with RunStore(tmp_path / "runs" / "a" / "b").locked():
        assert everything_below(tmp_path) == ["runs", "runs/a", "runs/a/b", "runs/a/b/lock"]
    assert everything_below(tmp_path) == ["runs"]
    with RunStore(tmp_path / "runs" / "a" / "b").locked():
        (tmp_path / "runs" / "a" / "c").mkdir()
    assert everything_below(tmp_path) == ["runs", "runs/a", "runs/a/c"]


def test_a_lock_under_which_something_was_written_stays(tmp_path: Path) -> None:
    folder = RunStore(tmp_path / "run")
    for _ in range(2):
        with folder.locked():
            folder.write("recipe.json", {})
        assert everything_below(folder.path) == ["lock", "recipe.json"]


def test_a_lock_that_is_removed_before_it_is_got_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that had it was refused; both are at the same moment between two calls."""
    fcntl = pytest.importorskip("fcntl")
    folder, lock = RunStore(tmp_path / "run"), fcntl.flock
    before = folder.locked()
    before.__enter__()

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        before.__exit__(None, None, None)
        assert not folder.path.exists()
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", late)
    with folder.locked():
        assert everything_below(tmp_path) == ["run", "run/lock"]
        with pytest.raises(RunError, match="another process is working"):
            RunStore(folder.path).locked().__enter__()


def test_only_one_at_a_time_has_a_lock_that_comes_and_goes(tmp_path: Path) -> None:
    """Each thread opens the file for itself, so that they keep one another out as processes do."""
    inside, most, entered = threading.Semaphore(1), 4, list[int]()

    def come_and_go(number: int) -> None:
        for _ in range(150):
            try:
                with RunStore(tmp_path / "some" / "run").locked():
                    assert inside.acquire(blocking=False)
                    entered.append(number)
                    inside.release()
            except RunError:
                continue

    with ThreadPoolExecutor(most) as pool:
        list(pool.map(come_and_go, range(most)))
    assert entered
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_made_is_not_tried_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError):
        RunStore(Path("runs")).locked().__enter__()


def test_what_is_not_there_is_nothing_and_what_is_no_json_is_explained(tmp_path: Path) -> None:
    folder = RunStore(tmp_path)
    assert folder.read("recipe.json") is None
    assert folder.result is None
    folder.write("result.json", {"error": 0.5})
    assert folder.result == {"error": 0.5}
    (tmp_path / "log.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(RunError, match=r"log.jsonl: line 1 is damaged"):
        folder.log()
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(RunError, match=r"recipe.json: damaged, it is not JSON; remove the file"):
        folder.read("recipe.json")
