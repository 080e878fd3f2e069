"""The one check of axes that every layer makes at its door."""

from torch import Tensor

from invint.errors import ShapeError


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
