"""Commands run in the process of a test, and a run that takes them seconds."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from invint.cli import main

TINY = (
    *("--size=40", "--scale=0.08", "--threads=1", "--set=train.batch_size=16"),
    *("--set=train.epochs=4", "--set=model.group=C4", "--set=model.n_fc=6"),
    "--set=model.widths=2,3,4",
)


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Done]


def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command in this process."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["invint", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(int(stop.value.code or 0), *capsys.readouterr())

    return run
