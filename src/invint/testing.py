"""Checks for layers and networks, your own too: exact where it can be, measured elsewhere."""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor

from invint.errors import ConfigError, ShapeError
from invint.groups import GridSymmetry, Group
from invint.ops.grids import inscribed_disc, permute_grid, rotate

Function = Callable[[Tensor], Tensor]


def move(x: Tensor, group: Group, symmetry: GridSymmetry) -> Tensor:
    """Move an image `(b, c, h, w)` or a feature map on the group `(b, c, g, h, w)`, exactly.

    Pixels are permuted; on the group, the response to element h comes from $a^{-1}h$.
    """
    if x.ndim not in (4, 5):
        raise ShapeError(f"move: expected axes b c h w or b c g h w, got shape {tuple(x.shape)}")
    moved = permute_grid(x, symmetry.quarter_turns, symmetry.flip)
    return moved[:, :, list(group.quotients[symmetry.element])] if x.ndim == 5 else moved


def assert_equivariant(
    function: Function, x: Tensor, group: Group, *, rounding: float = 1000.0
) -> None:
    """Assert that moving the input moves the output, by every symmetry of the pixel grid.

    These are the quarter turns in the group and, for a dihedral group, its mirrors. They permute
    pixels, so the tolerance is rounding alone: a failure is a bug, never the price of
    interpolation.

    Args:
        function: Takes `(b, c, h, w)` or `(b, c, g, h, w)` to either of them.
        x: An input without symmetry of its own, such as random numbers.
        group: The symmetries.
        rounding: Allowed error, in units of the precision of the output times its largest value.

    Example:
        >>> from invint import Cyclic
        >>> from invint.nn import LiftConv2d
        >>> layer = LiftConv2d(1, 4, kernel_size=5, group=Cyclic(8))
        >>> assert_equivariant(layer, torch.randn(2, 1, 9, 9), Cyclic(8))
    """
    __tracebackhide__ = True
    _assert_moves(function, x, group, lambda out, symmetry: move(out, group, symmetry), rounding)


def assert_invariant(
    function: Function, x: Tensor, group: Group, *, rounding: float = 1000.0
) -> None:
    """Assert that moving the input leaves the output alone, by every symmetry of the pixel grid.

    Arguments are those of `assert_equivariant`; the output may have any shape.
    """
    __tracebackhide__ = True
    _assert_moves(function, x, group, lambda out, _: out, rounding)


def _assert_moves(
    function: Function,
    x: Tensor,
    group: Group,
    moved: Callable[[Tensor, GridSymmetry], Tensor],
    rounding: float,
) -> None:
    __tracebackhide__ = True
    still = function(x)
    for symmetry in group.grid_symmetries:
        turned = move(x, group, symmetry)
        if symmetry.element and turned.shape == x.shape and torch.equal(turned, x):
            raise ConfigError(
                f"the input does not change under {_name(symmetry)}; use random numbers"
            )
        actual, expected = function(turned), moved(still, symmetry)
        if actual.shape != expected.shape:
            raise AssertionError(
                f"under {_name(symmetry)} the output has shape {tuple(actual.shape)}, "
                f"expected {tuple(expected.shape)}"
            )
        error, scale = (actual - expected).abs().max().item(), expected.abs().max().item()
        allowed = rounding * torch.finfo(expected.dtype).eps * scale
        if not error <= allowed:  # NaN must fail
            raise AssertionError(
                f"off by {error:.2g} under {_name(symmetry)}, at values up to {scale:.2g}: "
                f"rounding allows {allowed:.2g}"
            )


def _name(symmetry: GridSymmetry) -> str:
    turn = f"a turn by {90 * symmetry.quarter_turns}°"
    return f"a mirror and {turn}" if symmetry.flip else turn


def rotate_features(x: Tensor, angle: float, group: Group) -> Tensor:
    """Turn features by any angle: in the plane by bicubic, along `g` by Fourier interpolation.

    Features `(b, n)` do not turn, `(b, c, h, w)` turn in the plane, `(b, c, g, h, w)` in both.
    Fourier interpolation is exact for angles of the group, and for the others as long as the
    responses are band-limited in the angle, as those of steerable filters are.
    """
    if x.ndim == 2:
        return x
    if x.ndim == 4:
        return rotate(x, angle, mode="bicubic")
    flat = rotate(rearrange(x, "b c g h w -> b (c g) h w"), angle, mode="bicubic")
    turned = rearrange(flat, "b (c f n) h w -> b c f n h w", c=x.shape[1], n=group.n)
    spectrum = torch.fft.rfft(turned, dim=3)
    frequencies = torch.arange(spectrum.shape[3], device=x.device, dtype=x.dtype)
    phases = torch.polar(torch.ones_like(frequencies), -angle * frequencies)
    shifted: Tensor = torch.fft.irfft(spectrum * phases[:, None, None], n=group.n, dim=3)
    return rearrange(shifted, "b c f n h w -> b c (f n) h w")


def equivariance_error(
    function: Function,
    x: Tensor,
    group: Group,
    angle: float,
    *,
    turned: Tensor | None = None,
    margin: float = 1.0,
) -> float:
    r"""Measure how far a function is from turning with its input, at any angle.

    $$\frac{\lVert f(R x) - R f(x) \rVert}{\lVert R f(x) \rVert}$$

    over the disc that stays inside a turning image: what leaves the corners is not the function's
    fault. Outputs `(b, n)` are compared as they are. The interpolation that turns images and
    features is part of the error; with `turned` from a better source than bicubic interpolation,
    measuring `lambda x: x` shows its share.

    Args:
        function: Takes `(b, c, h, w)` to any of the shapes `rotate_features` knows.
        x: Images.
        group: The symmetries of the features.
        angle: Counter-clockwise rotation in radians.
        turned: The images turned by `angle`, where you have better ones than bicubic ones.
        margin: Pixels by which the disc is smaller than the output.
    """
    if turned is None:
        turned = rotate(x, angle, mode="bicubic")
    with torch.no_grad():
        actual, expected = function(turned), rotate_features(function(x), angle, group)
    if expected.ndim > 2:
        disc = inscribed_disc(expected, margin)
        actual, expected = actual * disc, expected * disc
    error: Tensor = (actual - expected).norm() / expected.norm()
    return error.item()
