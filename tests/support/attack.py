"""A judge of what becomes of hostile input, and damage that is drawn from seeds."""

import copy
import hashlib
import os
import random
import resource
import signal
import stat
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from support.commands import Command, Done

from invint.errors import InvintError

PATIENCE = 60.0  # seconds, on a busy machine too; what hangs would hang for ever
MEMORY = 2**29  # bytes that one input may add to the most that the process has ever held
WHOLE = 2**24  # bytes of a file that is compared byte by byte, not by its size alone
OPEN_ENDED = "Traceback (most recent call last)"


class HangError(BaseException):
    """Not an `Exception`, so that no reader of damaged bytes takes it for one of its own."""


class Judge:
    """Sees to it that input is refused in one clear line and leaves nothing behind.

    Args:
        command: Runs a command in this process.
        watched: A folder in which nothing may change.
        count: Receives "refused" or "taken" for each input.
    """

    def __init__(self, command: Command, watched: Path, count: Callable[[str], None]) -> None:
        self.command, self.watched, self.count = command, watched, count

    def refused(self, *arguments: str) -> str:
        """Return the line with which the command line refuses its arguments."""
        done = self._done(*arguments)
        assert done.status == 2, f"status {done.status} with {done.err or done.out}"
        self.count("refused")
        return done.err

    def refused_or_taken(self, *arguments: str) -> None:
        """Check what was damaged at random, which may have left it as good as it was."""
        done = self._done(*arguments)
        assert done.status in (0, 2), f"status {done.status} with {done.err or done.out}"
        self.count("refused" if done.status else "taken")

    def _done(self, *arguments: str) -> Done:
        before = listed(self.watched)
        with bounded():
            done = self.command(*arguments)
        after = listed(self.watched)
        assert OPEN_ENDED not in done.out
        if done.status:
            check_line(done.err)
            assert after == before
        drafts = [path for path in after.keys() - before.keys() if Path(path).name[0] == "."]
        assert not drafts
        return done

    def raised(self, call: Callable[[], object], *, may_pass: bool = False) -> None:
        """Check that a call raises one of our errors, of one line; or, perhaps, nothing."""
        before, message = listed(self.watched), ""
        with bounded():
            try:
                call()
            except InvintError as error:
                message = str(error)
                check_line(f"invint: {message}")
        assert message or may_pass
        assert listed(self.watched) == before
        self.count("refused" if message else "taken")

    def answered(self, answer: httpx.Response, *statuses: int) -> str:
        """Return the sentence with which the server refuses a request, with one of the statuses."""
        assert answer.status_code in statuses, f"{answer.status_code}: {answer.text}"
        sentence = answer.json()["error"]
        assert list(answer.json()) == ["error"]
        assert isinstance(sentence, str)
        assert sentence.isprintable()
        assert OPEN_ENDED not in sentence
        self.count("refused")
        return sentence


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if something hangs or fills the memory."""
    peak = peak_memory()
    with patience():
        yield
    assert peak_memory() - peak < MEMORY


def check_line(text: str) -> None:
    """Fail unless this is one line that a terminal can show, and that invint has written."""
    (line,) = text.splitlines()
    assert line.startswith("invint: "), line
    assert line.isprintable(), line
    assert len(line) < 1500, line
    assert OPEN_ENDED not in line


def listed(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return kind, size and hash of everything below a folder; links are not followed."""
    found: dict[str, tuple[int, int, str]] = {}
    waiting = [folder]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                waiting.append(Path(entry.path))
            small = stat.S_ISREG(status.st_mode) and status.st_size <= WHOLE
            digest = hashlib.sha256(Path(entry.path).read_bytes()).hexdigest() if small else ""
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            found[entry.path] = (status.st_mode, size, digest)
    return found


def peak_memory() -> int:
    """Return the most bytes this process has ever held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Raise `HangError` after a time."""

    def stop(_: int, __: FrameType | None) -> None:
        raise HangError(f"it hangs: nothing within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Damage


def cut(content: bytes, seed: int) -> bytes:
    """Return the beginning of a file, drawn from a seed."""
    return content[: random.Random(seed).randrange(1, len(content))]


def damaged(content: bytes, seed: int) -> bytes:
    """Return a file with bytes altered, ruled out, doubled or filled in, as a seed decides."""
    draw = random.Random(seed)
    place, length = draw.randrange(len(content)), draw.randrange(1, 40)
    start, end = content[:place], content[place + length :]
    return (
        start + draw.randbytes(length) + end,
        start + end,
        start + content[place : place + length] * draw.randrange(2, 50) + end,
        start + b"\xff" * length + end,
        start + bytes(length) + end,
    )[seed % 5]


def replaced(values: Any, seed: int) -> Any:
    """Return plain data with one value, at a place drawn from a seed, of another kind."""
    draw, values = random.Random(seed), copy.deepcopy(values)
    parent, key = draw.choice(list(_places(values)))
    others: list[Any] = [
        None,
        [],
        {},
        "",
        "\x1b[2J",
        -1,
        10**30,
        1e308,
        True,
        [[]],
        [None],
        {"a": 1},
    ]
    parent[key] = draw.choice([each for each in others if each != parent[key]])
    return values


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in plain data that holds a value; of long lists only the first few."""
    items = values.items() if isinstance(values, dict) else list(enumerate(values))[:3]
    for key, value in items:
        yield values, key
        if isinstance(value, dict | list):
            yield from _places(value)


def hostile_text(seed: int) -> str:
    """Return a text of brackets, line breaks, escape sequences, numbers and letters."""
    draw = random.Random(seed)
    parts = [
        *("\n", "\r", "\t", "\x1b[2J", "\u202e", "[bold]", "[/]", "{", "}", "%s", "%n", "../"),
        *("'", '"', "$(id)", "`", "\\", ";", "|", "~", "é", "😀", "1e999", "-1", "NaN", "0x10"),
        *string.ascii_letters,
    ]
    return "".join(draw.choices(parts, k=draw.randrange(1, 12)))
