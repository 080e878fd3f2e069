from pathlib import Path

import pytest

from invint.errors import RunError
from invint.recipes import find_recipe
from invint.run.folder import RunFolder


def test_a_folder_is_named_by_recipe_choices_and_seed() -> None:
    recipe = find_recipe("digits/cnn")
    path = RunFolder.of(Path("runs"), recipe, 7).path
    assert path == Path("runs") / "digits" / "cnn" / recipe.hash / "7"


def test_a_log_is_cut_to_the_lines_a_checkpoint_knew(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.log_lines() == []
    for step in range(4):
        folder.log({"step": step})
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 4')  # killed while it was written
    assert len(folder.log_lines()) == 4
    folder.cut_log(2)
    folder.log({"step": 2})
    assert (tmp_path / "log.jsonl").read_text() == '{"step": 0}\n{"step": 1}\n{"step": 2}\n'


def test_a_locked_folder_is_left_alone_until_it_is_free(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with first.locked():
        draft = first.path / ".log.jsonl.abcdef"
        draft.touch()
        with pytest.raises(RunError, match="another process is at work on this run"):
            second.locked().__enter__()
        assert draft.exists()
    with second.locked():
        assert not draft.exists()


def test_what_is_not_there_is_nothing_and_what_is_no_json_is_explained(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read("recipe.json") is None
    assert folder.result is None
    folder.write("result.json", {"error": 0.5})
    assert folder.result == {"error": 0.5}
    (tmp_path / "recipe.json").write_text("{")
    with pytest.raises(RunError, match=r"recipe.json: not JSON; remove the file and start"):
        folder.read("recipe.json")
