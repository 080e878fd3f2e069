"""Which steps over a pixel grid keep its symmetry."""

from torch import Tensor

from invint.errors import ShapeError


def check_steps(
    x: Tensor, owner: str, *, kernel_size: int, stride: int, padding: int, cure: str
) -> None:
    """Raise `ShapeError` unless windows of `x` lie symmetrically about the centre of the grid.

    They do when the last window ends where the padded grid ends, on both axes; otherwise the
    output of a turned image samples other pixels than the turned output does.
    """
    height, width = x.shape[-2:]
    if min(height, width) + 2 * padding < kernel_size:
        raise ShapeError(
            f"{owner}: {height} x {width} pixels with padding {padding} are too few for a kernel "
            f"of {kernel_size}; use a smaller kernel or more padding"
        )
    if any((side + 2 * padding - kernel_size) % stride for side in (height, width)):
        raise ShapeError(
            f"{owner}: stride {stride} with kernel {kernel_size} and padding {padding} on "
            f"{height} x {width} pixels breaks the symmetry of the grid; {cure}"
        )
