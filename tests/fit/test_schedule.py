"""The promise of time, kept on a clock that the tests turn."""

from collections.abc import Callable, Iterator

import pytest

from invint.errors import Interrupted
from invint.fit.schedule import RESERVE, SLACK, Budget, OutOfTime, Stage, run_stages


class Clock:
    """Seconds that pass when somebody works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def working(
    clock: Clock, budget: Budget, seconds: float, done: list[str], name: str
) -> Callable[[], None]:
    """Return work that looks at the time every second."""

    def work() -> None:
        for _ in range(round(seconds)):
            clock.now += 1
            budget.check()
        done.append(name)

    return work


def test_what_fits_is_done_in_order_and_the_rest_is_named(clock: Clock) -> None:
    budget, done = Budget(100.0, clock), list[str]()
    lengths = {"first": 20.0, "second": 60.0, "long": 30.0, "short": 5.0}
    stages = [
        Stage(name, lambda seconds=seconds: seconds, working(clock, budget, seconds, done, name))  # type: ignore[misc]
        for name, seconds in lengths.items()
    ]
    skipped = run_stages(stages, budget)
    assert done == ["first", "second", "short"]
    (one,) = skipped
    assert (one.name, one.seconds, one.begun) == ("long", 30.0, False)
    assert one.left == pytest.approx(10)
    assert budget.spent == 85


def test_a_stage_that_takes_longer_than_measured_is_stopped(clock: Clock) -> None:
    budget, done = Budget(100.0, clock), list[str]()
    slow = Stage("slow", lambda: 50.0, working(clock, budget, 500, done, "slow"))
    quick = Stage("quick", lambda: 1.0, working(clock, budget, 1, done, "quick"))
    skipped = run_stages([slow, quick], budget)
    assert done == []
    assert [(each.name, each.begun) for each in skipped] == [("slow", True), ("quick", False)]
    assert budget.spent <= 100 * (1 - RESERVE) + 1  # what is left is enough to write the answer


def test_what_is_needed_is_done_however_long_it_takes(clock: Clock) -> None:
    budget, done = Budget(1.0, clock), list[str]()
    work = working(clock, budget, 50, done, "needed")
    more = Stage("more", lambda: 0.0, lambda: done.append("more"))
    skipped = run_stages([Stage("needed", lambda: 1e9, work, needed=True), more], budget)
    assert done == ["needed"]
    assert [each.name for each in skipped] == ["more"]


def test_stages_are_measured_when_it_is_their_turn(clock: Clock) -> None:
    budget, speed = Budget(100.0, clock), [1.0]

    def stages() -> Iterator[Stage]:
        def work() -> None:
            clock.now += 10
            speed[0] = 20.0  # somebody else needs the machine

        yield Stage("first", lambda: 10 * speed[0], work)
        yield Stage("second", lambda: 10 * speed[0], work)

    assert [each.name for each in run_stages(stages(), budget)] == ["second"]


def test_time_to_write_is_kept_as_measured(clock: Clock) -> None:
    budget = Budget(100.0, clock)
    assert budget.left == pytest.approx(100 * (1 - RESERVE))
    budget.writing_took(20.0)
    assert budget.left == pytest.approx(100 - 20 * SLACK)
    clock.now += 100 - 20 * SLACK + 1
    with pytest.raises(OutOfTime):
        budget.check()


def test_a_stop_that_is_asked_for_is_heard(clock: Clock) -> None:
    asked = [False]
    budget = Budget(100.0, clock, lambda: asked[0])
    budget.check()
    asked[0] = True
    with pytest.raises(Interrupted):
        budget.check()
