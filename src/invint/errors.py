"""The errors invint raises, and the checks that raise them everywhere: names, axes, extras."""

import difflib
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known name, to go into a message; empty if none is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def brief(value: object, most: int = 200) -> str:
    """Return a value as it is written, cut where it is too long for a message."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}…"


class InvintError(Exception):
    """Anything invint can explain in one line; the command line prints it without a traceback."""


class ShapeError(InvintError, ValueError):
    """A tensor has the wrong axes, sizes or type for the layer it was given to."""


class ConfigError(InvintError, ValueError):
    """An argument or a combination of arguments makes no sense."""


class DataError(InvintError, ValueError):
    """A file or folder of images is missing, damaged or not what it claims to be."""


class RunError(InvintError, RuntimeError):
    """A run cannot continue; what it had done so far is kept."""


class RunLockedError(RunError):
    """Another process is at work on the run: it can be tried again when that one is done."""


class Interrupted(InvintError):  # noqa: N818
    """The user stopped a run; it can be resumed."""


@runtime_checkable
class Shaped(Protocol):
    """A tensor, as far as its axes go: this module must not import torch, for a quick `--help`."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def shape(self) -> Sequence[int]:
        """Size of each."""

    @property
    def dtype(self) -> Any:
        """Type of the elements."""

    def is_floating_point(self) -> bool:
        """Whether the elements are floats."""


def check_axes(x: Shaped, axes: str, owner: str, **sizes: int) -> None:
    """Raise `ShapeError` unless `x` is a float tensor with the named axes of the stated sizes."""
    names = axes.split()
    if x.ndim != len(names):
        raise _misshapen(owner, axes, x, f"expected {len(names)} axes, got {x.ndim}")
    for name, length in zip(names, x.shape, strict=True):
        if name in sizes and sizes[name] != length:
            raise _misshapen(owner, axes, x, f"expected {name}={sizes[name]}, got {name}={length}")
    if not x.is_floating_point():
        raise ShapeError(f"{owner}: expected a float tensor, got {x.dtype}; convert with x.float()")


def _misshapen(owner: str, axes: str, x: Shaped, problem: str) -> ShapeError:
    return ShapeError(f"{owner}: {problem} (axes: {axes}; shape: {tuple(x.shape)})")


def require_extra(module: str, owner: str, extra: str) -> Any:
    """Import a module, or raise `ConfigError` naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ConfigError(f"{owner}: needs {library}; pip install 'invint[{extra}]'") from error
