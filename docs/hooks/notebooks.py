"""Makes a page of every notebook while the site is built: its text, its code, what came out.

What cells print and draw is kept in the notebook by `benchmarks/notebooks.py`. Pictures are put
into the page, so that it needs no other file.
"""

import json
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parents[2] / "notebooks"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages; the name and arguments are those mkdocs asks for."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        uri = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, uri, content=page_of(notebook)))
    return files


def page_of(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown."""
    return "\n\n".join(_block(cell) for cell in notebook["cells"]) + "\n"


def _block(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    commands = all(line.startswith("!") for line in source.splitlines())
    text = "\n".join(line.removeprefix("!") for line in source.splitlines()) if commands else source
    shown = [_output(output) for output in cell["outputs"]]
    return "\n\n".join([_fenced(text, "sh" if commands else "python"), *shown])


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fenced("".join(output["text"]).rstrip("\n"), "text")
    return f"![What the cell draws](data:image/png;base64,{output['data']['image/png']})"


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"
