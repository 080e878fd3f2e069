"""The errors invint raises, and the one check of axes that every layer makes at its door."""

from torch import Tensor


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


def check_axes(x: Tensor, axes: str, owner: str, **sizes: int) -> None:
    """Raise `ShapeError` unless `x` is a float tensor with the named axes of the stated sizes."""
    names = axes.split()
    if x.ndim != len(names):
        raise _misshapen(owner, axes, x, f"expected {len(names)} axes, got {x.ndim}")
    for name, length in zip(names, x.shape, strict=True):
        if name in sizes and sizes[name] != length:
            raise _misshapen(owner, axes, x, f"expected {name}={sizes[name]}, got {name}={length}")
    if not x.is_floating_point():
        raise ShapeError(f"{owner}: expected a float tensor, got {x.dtype}; convert with x.float()")


def _misshapen(owner: str, axes: str, x: Tensor, problem: str) -> ShapeError:
    return ShapeError(f"{owner}: {problem} (axes: {axes}; shape: {tuple(x.shape)})")
