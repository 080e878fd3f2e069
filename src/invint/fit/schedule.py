"""The time that was promised: what still fits into it is done, cheapest first, and no more."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from invint.errors import Interrupted

RESERVE = 0.1  # of all time, kept to write the answer until its writing has been measured
SLACK = 1.4  # times what writing took before: other work may come in between


class OutOfTime(Exception):  # noqa: N818
    """A stage took longer than was measured, so that what was promised would not be kept."""


@dataclass
class Budget:
    """The time that is left of a promise.

    Args:
        seconds: What was promised.
        clock: Tells the seconds since whenever.
        asked: Says whether somebody wants to stop.

    Attributes:
        patient: Whether what is done is done to its end, however long that takes.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    asked: Callable[[], bool] = lambda: False
    reserve: float = field(init=False)
    began: float = field(init=False)
    patient: bool = False

    def __post_init__(self) -> None:
        self.reserve, self.began = RESERVE * self.seconds, self.clock()

    @property
    def spent(self) -> float:
        """Seconds since the promise."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Seconds until the answer must be written."""
        return self.seconds - self.spent - self.reserve

    def writing_took(self, seconds: float) -> None:
        """Learn how long it takes to write an answer."""
        self.reserve = SLACK * seconds

    def check(self) -> None:
        """Raise `Interrupted` where a stop was asked for, `OutOfTime` where no time is left."""
        if self.asked():
            raise Interrupted("stopped")
        if self.left < 0 and not self.patient:
            raise OutOfTime


@dataclass(frozen=True)
class Stage:
    """One thing that may be done.

    Attributes:
        name: What it is, for people.
        seconds: Measures how long it will take.
        work: Does it; calls `Budget.check` on the way.
        needed: Whether it is done however long it takes, because nothing comes out without it.
    """

    name: str
    seconds: Callable[[], float]
    work: Callable[[], None]
    needed: bool = False


@dataclass(frozen=True)
class Skipped:
    """A stage that there was no time for.

    Attributes:
        name: What it is.
        seconds: What it would have taken, as measured.
        left: What was left.
        begun: Whether it was begun, and took longer than that.
    """

    name: str
    seconds: float
    left: float
    begun: bool = False


def run_stages(stages: Iterable[Stage], budget: Budget) -> list[Skipped]:
    """Do what fits the time, in this order, and return what did not.

    Stages may be made as they are asked for: a later one then depends on what earlier ones found,
    and measures the machine as it is by then.
    """
    skipped = []
    for stage in stages:
        if stage.needed:
            budget.patient = True
            stage.work()
            budget.patient = False
            continue
        seconds, left = stage.seconds(), budget.left
        if seconds > left:
            skipped.append(Skipped(stage.name, seconds, left))
            continue
        try:
            stage.work()
        except OutOfTime:
            skipped.append(Skipped(stage.name, seconds, left, begun=True))
    return skipped
