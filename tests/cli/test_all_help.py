"""Help is quick, because a command imports what it needs when it runs and not before."""

import json
import subprocess
import sys
from typing import Any

import pytest
import typer
from support.commands import Command

from invint.cli import EXAMPLES, app

HEAVY = ("matplotlib", "numpy", "scipy", "sklearn", "torch")
ASK = """
import contextlib, io, json, runpy, sys
for path in json.loads(sys.argv[1]):
    sys.argv = ["invint", *path, "--help"]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        runpy.run_module("invint", run_name="__main__")
    print(json.dumps([path, "Usage: " in shown.getvalue(), sorted(sys.modules)]))
"""


def paths_of(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words that lead to a command, and to those below it."""
    below = getattr(command, "commands", {})
    found = [paths_of(each, (*path, name)) for name, each in below.items()]
    return [path, *(each for some in found for each in some)]


def test_no_help_imports_a_heavy_library() -> None:
    paths = paths_of(typer.main.get_command(app))
    assert {(), ("train",), ("data", "fetch"), ("recipes", "show")} <= set(paths)
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(paths)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [tuple(path) for path, _, _ in answers] == paths
    for path, helped, modules in answers:
        assert helped, f"invint {' '.join(path)} --help printed no help"
        heavy = set(HEAVY) & set(modules)
        assert not heavy, f"invint {' '.join(path)} --help imports {heavy}"


@pytest.mark.parametrize("name", [each.__name__ for each in EXAMPLES] + ["recipes"])
def test_help_ends_with_examples(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.status == 0
    assert done.out.count(f"invint {name}") >= 2
