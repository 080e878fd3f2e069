"""Runs that take a second, and checkpoints after every step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stopped_runs import TinyRun


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TinyRun]:
    """Make runs below separate folders."""

    def make(name: str = "digits/local-ws", *assignments: str, place: str = "runs") -> TinyRun:
        return TinyRun(tmp_path / place, name, *assignments)

    return make


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run leaves that nobody stopped."""
    run = TinyRun(tmp_path_factory.mktemp("undisturbed"), "digits/local-ws")
    run.train()
    return run.outcome()


@pytest.fixture
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after every step."""
    from invint.train import run as training

    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    monkeypatch.setattr(training, "SECONDS_WITHOUT_CHECKPOINT", -1.0)
