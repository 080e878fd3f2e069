"""The errors invint raises, and a hint for those about names."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, to go into a message; empty if none is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


class InvintError(Exception):
    """Anything invint can explain in one line; the command line prints it without a traceback."""


class ShapeError(InvintError, ValueError):
    """A tensor has the wrong axes, sizes or type for the layer it was given to."""


class ConfigError(InvintError, ValueError):
    """An argument or a combination of arguments makes no sense."""


class DataError(InvintError, ValueError):
    """A file or folder of images is missing, damaged or not what it claims to be."""


class RunError(InvintError, RuntimeError):
    """A run cannot go on; what it had done so far is kept."""


class RunLockedError(RunError):
    """Another process is at work on the run: it can be tried again when that one is done."""


class Interrupted(InvintError):  # noqa: N818
    """The user stopped a run; it can be gone on with."""
