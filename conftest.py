"""Examples in docstrings run in a folder of their own, where they may write files."""

from pathlib import Path

import pytest

collect_ignore = ["src/invint/timm.py"]  # importing it needs timm, and registers with it


@pytest.fixture(autouse=True)
def elsewhere(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave the folder of the project alone."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)
