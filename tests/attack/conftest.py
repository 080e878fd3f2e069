"""The standing attack: hostile files, arguments and requests, each of them judged and counted."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.attack import Judge
from support.commands import in_process
from support.serving import write_network


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start in an empty folder, with caches elsewhere."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def judge(
    at_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record_property: Callable[[str, object], None],
) -> Judge:
    """The judge of one input, whose verdict is counted."""
    command = in_process(monkeypatch, capsys)
    return Judge(command, at_home, partial(record_property, "attack"))


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a network with random weights, for grey images of 20 x 20."""
    return write_network(tmp_path_factory.mktemp("networks") / "good.safetensors", "cnn-small")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many inputs were tried, and what became of them."""
    passed = terminalreporter.getreports("passed")
    verdicts = Counter(
        value for each in passed for name, value in each.user_properties if name == "attack"
    )
    if verdicts:
        terminalreporter.write_line(
            f"attack: {verdicts.total()} hostile files, arguments and requests: "
            f"{verdicts['refused']} refused in one line or with a 4xx, {verdicts['taken']} taken, "
            "since their damage left them whole"
        )
