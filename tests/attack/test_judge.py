"""The judge notices what it is there to notice."""

import sys
import time
from pathlib import Path

import httpx
import pytest
from support import attack
from support.attack import HangError, Judge, patience
from support.commands import Done

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]

LINE = "invint: that is wrong; do this\n"


def judged(done: Done, folder: Path, leaves: str = "") -> list[str]:
    """Return what is counted of a command that ends like this and leaves a file."""
    counted: list[str] = []

    def command(*_: str) -> Done:
        if leaves:
            (folder / leaves).touch()
        return done

    Judge(command, folder, counted.append).refused_or_taken()
    return counted


def test_one_line_and_an_answer_are_counted(tmp_path: Path) -> None:
    assert judged(Done(2, "", LINE), tmp_path) == ["refused"]
    assert judged(Done(0, "an answer", ""), tmp_path, "answer.csv") == ["taken"]


@pytest.mark.parametrize(
    ("done", "leaves"),
    [
        (Done(1, "", LINE), ""),
        (Done(2, "", ""), ""),
        (Done(2, "", LINE * 2), ""),
        (Done(2, "", "ValueError: that is wrong"), ""),
        (Done(2, "", "invint: \x1b[2J"), ""),
        (Done(2, "", f"invint: {'a' * 2000}"), ""),
        (Done(2, "Traceback (most recent call last):", LINE), ""),
        (Done(2, "", LINE), "half"),
        (Done(0, "an answer", ""), ".draft"),
    ],
)
def test_anything_else_fails(tmp_path: Path, done: Done, leaves: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        judged(done, tmp_path, leaves)


def test_errors_that_are_not_ours_come_through(tmp_path: Path) -> None:
    judge = Judge(lambda: Done(0, "", ""), tmp_path, lambda _: None)
    with pytest.raises(ZeroDivisionError):
        judge.raised(lambda: 1 // 0)
    with pytest.raises(AssertionError):
        judge.raised(lambda: None)


@pytest.mark.parametrize(
    ("status", "content"), [(500, '{"error": "no"}'), (422, '{"detail": []}'), (422, "no")]
)
def test_answers_that_are_no_refusals_fail(tmp_path: Path, status: int, content: str) -> None:
    judge = Judge(lambda: Done(0, "", ""), tmp_path, lambda _: None)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        judge.answered(httpx.Response(status, content=content), 422)


def test_what_hangs_is_ended() -> None:
    with pytest.raises(HangError), patience(0.05):
        time.sleep(30)


def test_what_takes_the_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter((0, sys.maxsize))
    monkeypatch.setattr(attack, "peak_memory", lambda: next(peaks))
    with pytest.raises(AssertionError), attack.bounded():
        pass
