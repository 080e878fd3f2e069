"""Means between the plain mean and the maximum.

Axes   b batch   o output channel   n value
"""

import torch
from jaxtyping import Float
from torch import Tensor


def power_mean(x: Float[Tensor, "b o n"], power: Float[Tensor, " o"]) -> Float[Tensor, "b o"]:
    r"""Return the power mean of the positive parts.

    $$A_p(x) = \Bigl(\frac{1}{N} \sum_n \max(x_n, 0)^p\Bigr)^{1/p}
      = M \Bigl(\frac{1}{N} \sum_n (\max(x_n, 0) / M)^p\Bigr)^{1/p}$$

    For p = 1 it is the mean; it lies between $N^{-1/p} M$ and the maximum $M$, by which values are
    divided first, so that no power is too large for a number and their mean is never below $1/N$.

    Args:
        x: Values; negative ones count as zero.
        power: $p \ge 1$ of every channel.
    """
    positive, tiny = x.relu(), torch.finfo(x.dtype).tiny
    largest = positive.detach().amax(dim=-1).clamp_min(tiny)  # what is divided by comes back
    shares = positive / largest[..., None]
    # Only where nothing is positive is the mean less than the tiny number.
    means = (shares ** power[:, None]).mean(dim=-1).clamp_min(tiny)
    return largest * means ** (1 / power)


def exp_mean(x: Float[Tensor, "b o n"], sharpness: Float[Tensor, " o"]) -> Float[Tensor, "b o"]:
    r"""Return the logarithm of the mean of exponentials.

    $$A_\beta(x) = \frac{1}{\beta} \log \frac{1}{N} \sum_n e^{\beta x_n}
      = M + \frac{1}{\beta} \log \frac{1}{N} \sum_n e^{\beta (x_n - M)}$$

    For small $\beta$ it is the mean; it lies between $M - \log(N) / \beta$ and the maximum $M$.
    Exponentials and logarithm are taken relative to 1, which loses no digits where $\beta$ is
    small.

    Args:
        x: Values.
        sharpness: $\beta > 0$ of every channel.
    """
    largest = x.detach().amax(dim=-1)  # what is taken away comes back
    falls = torch.expm1(sharpness[:, None] * (x - largest[..., None])).mean(dim=-1)
    return largest + torch.log1p(falls) / sharpness
