"""The trials of a tuning, and the file from which a tuning that was killed is resumed."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from invint.errors import RunError
from invint.files import write_atomically
from invint.study.search import Configuration


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A configuration, tried with a fraction of the iterations.

    Attributes:
        number: Its index among the proposals, from 0.
        configuration: The values tried, by their path in the recipe.
        fidelity: Fraction of the iterations.
        state: `proposed`, `done` or `failed`.
        validation_error: Of the last weights; `None` unless done.
        seconds: How long it took.
        folder: Of its run.
        problem: Why it failed.
        elapsed: Seconds of the tuning when it ended, over all its starts.
    """

    number: int
    configuration: Configuration
    fidelity: float
    state: str = "proposed"
    validation_error: float | None = None
    seconds: float = 0.0
    folder: str = ""
    problem: str = ""
    elapsed: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What came of a trial.

    Attributes:
        error: The validation error of the last weights; `None` if the trial failed.
        seconds: How long it took.
        folder: Of its run.
        problem: Why it failed.
    """

    error: float | None
    seconds: float = 0.0
    folder: str = ""
    problem: str = ""

    def of(self, trial: Trial, elapsed: float) -> Trial:
        """Return the trial with this as its end."""
        return replace(
            trial,
            state="failed" if self.error is None else "done",
            validation_error=self.error,
            seconds=round(self.seconds, 3),
            folder=self.folder,
            problem=self.problem,
            elapsed=round(elapsed, 3),
        )


class Journal:
    """Trials in the order in which they were proposed and ended, one JSON object a line.

    A line is added when a trial is proposed and another when it has ended, each flushed to the
    disk. Replayed in this order, an optimizer with the same seed is where it was.

    Args:
        path: The file; what a kill left of its last line is cut off.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self.entries = [self._read(line) for line in whole.splitlines()]
        if whole != text:
            write_atomically(path, whole)

    def _read(self, line: str) -> Trial:
        try:
            values: dict[str, Any] = json.loads(line)
            names = {field.name for field in fields(Trial)}
            return Trial(**{key: value for key, value in values.items() if key in names})
        except (ValueError, TypeError, AttributeError) as error:
            raise RunError(
                f"{self.path}: a line is not a trial ({line[:60]!r}); move the file away to "
                "start over: finished runs are not repeated"
            ) from error

    def add(self, trial: Trial) -> None:
        """Write a line and wait until it is on the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(trial)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.entries.append(trial)

    @property
    def elapsed(self) -> float:
        """Seconds of the tuning so far."""
        return max((entry.elapsed for entry in self.entries), default=0.0)

    @property
    def trials(self) -> list[Trial]:
        """Every trial as it is now, in the order of the proposals."""
        latest = {entry.number: entry for entry in self.entries}
        return [latest[number] for number in sorted(latest)]

    @property
    def ended(self) -> list[Trial]:
        """The trials that have ended, in this order."""
        return [entry for entry in self.entries if entry.state != "proposed"]


def best_trial(trials: Iterable[Trial]) -> Trial | None:
    """Return the trial with the lowest error among those with the most iterations."""
    done = [trial for trial in trials if trial.validation_error is not None]
    return min(done, key=lambda trial: (-trial.fidelity, trial.validation_error), default=None)


def cost(trials: Iterable[Trial]) -> float:
    """Return what trials cost together, in trials with all iterations."""
    return sum(trial.fidelity for trial in trials)


def incumbents(ended: Sequence[Trial], fidelity: float) -> list[tuple[float, float]]:
    """Return pairs of cost so far and lowest error so far, at each trial of a fidelity."""
    points, spent, lowest = list[tuple[float, float]](), 0.0, float("inf")
    for trial in ended:
        spent += trial.fidelity
        if trial.validation_error is not None and trial.fidelity == fidelity:
            lowest = min(lowest, trial.validation_error)
            points.append((spent, lowest))
    return points
