"""What can go wrong in a run, in one line each, and how it is stopped in good order."""

import errno
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from invint.errors import Interrupted, RunError


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full disk, exhausted memory and the like into one line that says what to do."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped at once; the same command goes on from the last checkpoint ({folder})"
        ) from error
    except torch.OutOfMemoryError as error:
        raise _no_memory(folder, "the GPU has") from error
    except MemoryError as error:
        raise _no_memory(folder, "this machine has") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{folder}: the disk is full; the last checkpoint is kept: make room and run the "
                "same command again"
            ) from error
        raise RunError(f"{folder}: {error}; the last checkpoint is kept") from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "allocate memory" in str(error):
            raise _no_memory(folder, "this machine has") from error
        raise


def _no_memory(folder: Path, owner: str) -> RunError:
    return RunError(
        f"{folder}: the step needs more memory than {owner}; the last checkpoint is kept: go on "
        "with --set train.accumulate=2 (or more), which starts a run of its own, or free memory"
    )


def check_finite(loss: float, epoch: float, folder: Path) -> None:
    """Raise `RunError` if the loss is no number any more."""
    if loss != loss or loss in (float("inf"), float("-inf")):
        raise RunError(
            f"{folder}: the loss is {loss} in epoch {epoch:.4g}; the last good checkpoint is "
            "kept; try a smaller learning rate, for instance --set train.lr=1e-4"
        )


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM ask for a stop; the same one again stops at once."""
    asked, seen = threading.Event(), set[int]()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if number in seen:  # torchrun sends a SIGTERM of its own after a Ctrl-C
            raise KeyboardInterrupt
        seen.add(number)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
