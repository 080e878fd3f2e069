"""What a run tells whoever is looking on."""

from pathlib import Path
from typing import Any


class Callback:
    """Hears of the progress of a run; this one keeps silent."""

    def on_decode(self, count: int, total: int) -> None:
        """So many pictures of all are decoded; only the first time that a folder is read."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """The run is at `step` of `steps`, at its start or where it is gone on with."""

    def on_step(self, step: int) -> None:
        """A step is done; `step` is the next one."""

    def on_log(self, entry: dict[str, Any]) -> None:
        """A line was added to the log."""

    def on_note(self, text: str) -> None:
        """Something happened that the user should know."""

    def on_finish(self, result: dict[str, Any]) -> None:
        """The result was written, now or by an earlier start."""

    def on_end(self) -> None:
        """Nothing more will come, whether the run is complete, was stopped or failed."""
