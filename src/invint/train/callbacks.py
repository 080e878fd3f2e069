"""What a run reports while it is under way."""

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from invint.errors import require_extra


class Callback:
    """Progress hooks of a run; all optional."""

    def on_decode(self, count: int, total: int) -> None:
        """`count` of `total` pictures are decoded; only the first time that a folder is read."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """The run in `folder` starts, or resumes where `step` of `steps` are done."""

    def on_step(self, step: int) -> None:
        """`step` steps are done."""

    def on_log(self, entry: dict[str, Any]) -> None:
        """A line was added to the log: of an epoch, or of an `event`."""

    def on_note(self, text: str) -> None:
        """Something happened that the user should know."""

    def on_finish(self, result: dict[str, Any]) -> None:
        """The run is complete, with this result, now or since an earlier start."""

    def on_end(self) -> None:
        """Nothing more will come: the run is complete, was stopped or failed."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class Callbacks(Callback):
    """Several callbacks as one: every hook is forwarded to each of them in turn.

    Args:
        callbacks: What to forward to.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        for hook in HOOKS:  # so that none is forgotten when a hook is added
            setattr(self, hook, partial(self._forward, hook))

    def _forward(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(*arguments)


class TensorBoard(Callback):
    """Writes the numbers of the log into the run's folder, where TensorBoard finds them."""

    def __init__(self) -> None:
        require_extra("tensorboard", "TensorBoard", "tensorboard")
        self.writer: Any = None

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        """Open the file; what an interrupted run wrote after its checkpoint no longer counts."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step)

    def on_log(self, entry: dict[str, Any]) -> None:
        """Write every number."""
        for name, value in entry.items():
            if isinstance(value, float):
                self.writer.add_scalar(name, value, entry["step"], time.time())

    def on_end(self) -> None:
        """Close the file."""
        if self.writer is not None:
            self.writer.close()
