r"""Invariants along the group axis: what is left of a signal on $C_n$ or $D_n$ when it moves.

A signal on a group is moved by an element $a$ to $f(a^{-1}g)$. Its *triple correlation*

$$T(a, b) = \frac{1}{|G|} \sum_g f(g)\,f(ga)\,f(gb)$$

does not change, and says everything about the signal but how it was moved. Its Fourier transform
is the *bispectrum*, of which a few entries say the same: the *selective* bispectrum (Mataigne and
others, 2024).

Axes   b batch   c channel   g group element   h w pixels   k invariant
       e half of the elements: rotations, mirrored ones   n rotation   f frequency
       p part of a complex number: real, imaginary
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from invint.groups import Group
from invint.ops.tensors import constant

FLOOR = 1e-3  # the deviation along the group below which a signal counts as flat


def bispectrum_size(group: Group) -> int:
    """Return the number of invariants of `group_bispectrum`."""
    triples = (group.n - 1) // 2
    if group.n == 1:
        return 2
    return 6 + 4 * triples if group.has_flips else 3 + 2 * triples


@constant
def group_waves(n: int) -> Float[Tensor, "p f n"]:
    r"""Return $e^{-2\pi ifj/n} / n$ for the frequencies $f = 0, …, ⌈n/2⌉$ (for n = 1 just 0)."""
    highest = (n + 1) // 2 if n > 1 else 0
    frequencies = torch.arange(highest + 1, dtype=torch.float64)
    phases = torch.outer(frequencies, torch.arange(n, dtype=torch.float64)) * (2 * math.pi / n)
    return torch.stack((phases.cos(), -phases.sin())) / n


def group_bispectrum(
    x: Float[Tensor, "b c g h w"], waves: Float[Tensor, "p f n"]
) -> Float[Tensor, "b c k h w"]:
    r"""Replace the responses at each pixel by numbers that do not change as they move.

    These are the mean $\mu$, the deviation $\sigma = \sqrt{\mathrm{var} + \varepsilon^2}$, less
    $\varepsilon = 10^{-3}$, and $\sigma$ times entries of the bispectrum of
    $(x - \mu) / \sigma$. For $C_n$, with $F$ the Fourier transform, the mean of
    $f(j)\,e^{-2\pi ikj/n}$,

    $$|F_1|^2, \qquad F_1 F_k \overline{F_{k+1}}, \quad 1 \le k \le \lfloor (n-1)/2 \rfloor.$$

    For $D_n$, with $A$ and $B$ the transforms of the responses to rotations and to mirrored ones,

    $$|A_1|^2 + |B_1|^2, \quad A_1 \overline{B_1}, \quad
      A_1 A_k \overline{A_{k+1}} + \overline{B_1 B_k \overline{B_{k+1}}}, \quad
      A_1 A_k \overline{B_{k+1}} + \overline{B_1 B_k \overline{A_{k+1}}},$$

    the first of the triples from $k = 0$ on, the second from 1. Real parts come before imaginary
    ones; those that are always zero are left out.

    Complete for signals in general position: where $F_1, F_2, …$ are not zero (for $D_n$: nor
    $|A_1| = |B_1|$ or $|A_1 A_k| = |B_1 B_k|$), signals with the same numbers are moved copies of
    each other.

    Dividing by $\sigma$ before multiplying three values keeps all numbers as large as the signal:
    twice the signal gives twice the numbers, and their gradients are bounded, also where the
    signal is flat, which a root of the products would not do.

    Args:
        x: Feature map on a group.
        waves: `group_waves(n)`, where n is the number of rotations.
    """
    mean = x.mean(dim=2, keepdim=True)
    centred = x - mean
    deviation = (centred.square().mean(dim=2, keepdim=True) + FLOOR**2).sqrt()
    signals = rearrange(centred / deviation, "b c (e n) h w -> e n b c h w", n=waves.shape[-1])
    spectra = einsum(waves, signals, "p f n, e n b c h w -> e p f b c h w")
    entries = _cyclic(spectra[0]) if len(spectra) == 1 else _dihedral(spectra[0], spectra[1])
    invariants = deviation * rearrange(entries, "k b c h w -> b c k h w")
    return torch.cat((mean, deviation - FLOOR, invariants), dim=2)


def _cyclic(spectrum: Tensor) -> Tensor:
    first = spectrum[:, 1:2]
    triples = _times(_times(first, spectrum[:, 1:-1]), _conjugate(spectrum[:, 2:]))
    return torch.cat((_times(first, _conjugate(first))[0], triples[0], triples[1]))


def _dihedral(upright: Tensor, mirrored: Tensor) -> Tensor:
    a, b = upright[:, 1:2], mirrored[:, 1:2]
    power = _times(a, _conjugate(a))[0] + _times(b, _conjugate(b))[0]
    cross = _times(a, _conjugate(b))
    products = _times(a, upright[:, :-1]), _times(b, mirrored[:, :-1])
    same = _mirror_sum(*products, upright[:, 1:], mirrored[:, 1:])
    other = _mirror_sum(*products, mirrored[:, 1:], upright[:, 1:])
    return torch.cat((power, *cross, same[0], same[1, 1:], *other[:, 1:]))


def _mirror_sum(first: Tensor, second: Tensor, by: Tensor, by_mirrored: Tensor) -> Tensor:
    """Add what the mirror exchanges, which comes back conjugated."""
    return _times(first, _conjugate(by)) + _conjugate(_times(second, _conjugate(by_mirrored)))


def _times(x: Float[Tensor, "p ..."], y: Float[Tensor, "p ..."]) -> Float[Tensor, "p ..."]:
    """Multiply complex numbers in parts: exported files know real ones only."""
    return torch.stack((x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]))


def _conjugate(x: Float[Tensor, "p ..."]) -> Float[Tensor, "p ..."]:
    return torch.stack((x[0], -x[1]))
