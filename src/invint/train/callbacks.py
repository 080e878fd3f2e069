"""What a run tells whoever is looking on."""

from pathlib import Path
from typing import Any


class Watch:
    """Hears of the progress of a run; this one keeps silent."""

    def decoded(self, count: int, total: int) -> None:
        """So many pictures of all are decoded; only the first time that a folder is read."""

    def started(self, folder: Path, step: int, steps: int) -> None:
        """The run is at `step` of `steps`, at its start or where it is gone on with."""

    def stepped(self, step: int) -> None:
        """A step is done; `step` is the next one."""

    def logged(self, entry: dict[str, Any]) -> None:
        """A line was added to the log."""

    def noted(self, text: str) -> None:
        """Something happened that the user should know."""

    def finished(self, result: dict[str, Any]) -> None:
        """The result was written, now or by an earlier start."""

    def ended(self) -> None:
        """Nothing more will come, whether the run is complete, was stopped or failed."""
