import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from notebooks import FOLDER, as_python, code_cells, execute  # of benchmarks/

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return notebook


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_showed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = os.environ.get("PYTHONPATH")  # for commands where the package is not installed
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT / "src"), before])))
    kept, again = code_cells(read(path)), code_cells(execute(path))
    for old, new in zip(kept, again, strict=True):  # numbers may differ in their last digits
        assert [each["output_type"] for each in old["outputs"]] == [
            each["output_type"] for each in new["outputs"]
        ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_of_no_machine(path: Path) -> None:
    text, notebook = path.read_text(encoding="utf-8"), read(path)
    assert len(text) < 100_000
    assert not any(place in text for place in ("/tmp", "/home", "/work", "Traceback"))
    assert notebook["nbformat"] == 4
    assert any(cell["outputs"] for cell in code_cells(notebook)), "run benchmarks/notebooks.py"
    assert all(cell["execution_count"] is None for cell in code_cells(notebook))


def test_there_are_four_and_each_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 4
    assert all(f"notebooks/{path.stem}.md" in navigation for path in NOTEBOOKS)


def test_lines_of_the_shell_become_calls() -> None:
    assert as_python("a = 1\n!ls 'b'\nc") == "a = 1\n_command(\"ls 'b'\")\nc"


@pytest.mark.slow
def test_a_command_that_fails_fails_the_notebook(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "source": ["!invint train nothing"], "outputs": []}
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": [cell]}))
    with pytest.raises(RuntimeError, match="no recipe 'nothing'"):
        execute(path)


@pytest.fixture
def hook() -> ModuleType:
    """The hook of the site, which is no package."""
    spec = importlib.util.spec_from_file_location("hook", ROOT / "docs/hooks/notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_has_text_code_and_what_came_out(hook: ModuleType) -> None:
    outputs = [
        {"output_type": "stream", "text": ["1\n", "2\n"]},
        {"output_type": "display_data", "data": {"image/png": "QUJD"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "source": ["print(1)\n", "print(2)"], "outputs": outputs},
        {"cell_type": "code", "source": ["!invint models"], "outputs": []},
    ]
    assert hook.page_of({"cells": cells}) == (
        "# Title\ntext\n\n```python\nprint(1)\nprint(2)\n```\n\n```text\n1\n2\n```\n\n"
        "![What the cell draws](data:image/png;base64,QUJD)\n\n```sh\ninvint models\n```\n"
    )
