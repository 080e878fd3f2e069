"""Execute the notebooks and keep what they print and draw, so that the site can show it.

usage: python benchmarks/notebooks.py [NOTEBOOK …]       (all of `notebooks/` by default)

A cell is Python, or lines that begin with `!` are commands; the last line is not printed by itself.
"""

import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

FOLDER = Path(__file__).parent.parent / "notebooks"
Cell = dict[str, Any]


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    """Return the cells that are executed."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(path: Path) -> dict[str, Any]:
    """Execute a notebook in the present folder, and return it with its outputs."""
    mpl.use("Agg")
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__", "_command": command}
    for cell in code_cells(notebook):
        source = as_python("".join(cell["source"]))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(source, path.name, "exec"), names)
        text = out.getvalue()
        printed = {"output_type": "stream", "name": "stdout", "text": text.splitlines(True)}
        cell["outputs"] = [*([printed] if text else []), *pictures()]
    return notebook


def as_python(source: str) -> str:
    """Return the code of a cell with its commands as calls."""
    lines = source.split("\n")
    return "\n".join(f"_command({line[1:]!r})" if line.startswith("!") else line for line in lines)


def command(line: str) -> None:
    """Run a command of the shell; `invint` is that of this Python. Its bars are not kept."""
    if line.startswith("invint "):
        line = f'"{sys.executable}" -m {line}'
    environment = os.environ | {"COLUMNS": "100"}
    done = subprocess.run(line, shell=True, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{line}: {done.stderr}")
    print(done.stdout.replace(str(Path.cwd()), "…"), end="")


def pictures() -> Iterator[Cell]:
    """Yield the figures that are open as outputs, and close them."""
    from matplotlib import pyplot

    for number in pyplot.get_fignums():
        file = io.BytesIO()
        pyplot.figure(number).savefig(file, format="png", dpi=80, metadata={"Software": None})
        pyplot.close(number)
        content = base64.b64encode(file.getvalue()).decode()
        yield {"output_type": "display_data", "data": {"image/png": content}, "metadata": {}}


def main() -> None:
    """Execute notebooks, each in a folder of its own, and write them again."""
    given = [Path(each) for each in sys.argv[1:]]
    for path in given or sorted(FOLDER.glob("*.ipynb")):
        whole = path.resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            notebook = execute(whole)
        whole.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(path)


if __name__ == "__main__":
    main()
