"""What is evaluated in the place of the last weights: their average, with statistics of its own."""

import copy
from collections.abc import Callable, Iterable

import torch
from torch import nn

from invint.nn import GroupBatchNorm
from invint.train.loop import NORMS, Batch


class WeightAverage:
    r"""Exponential average of the weights of a network, kept in a network of its own.

    After step $t$, counted from 1,

    $$\bar w \leftarrow d_t \bar w + (1 - d_t)\,w, \qquad d_t = \min\Big(d, \frac{t}{t + 9}\Big),$$

    so that the first weights, which are random, are soon forgotten. Running statistics of batch
    normalisation are not averaged: find them anew with `with_statistics`.

    Args:
        network: Whose weights are averaged; the average starts with a copy of it.
        decay: The share d of the old in each new average.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network, self.decay = copy.deepcopy(network).requires_grad_(False), decay

    def update(self, network: nn.Module, step: int) -> None:
        """Take the weights after a step into the average; nothing is waited for."""
        decay = min(self.decay, step / (step + 9))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.network.parameters()), list(network.parameters()), 1 - decay
            )


def with_statistics(
    network: nn.Module, batches: Iterable[Batch], autocast: Callable[[], torch.autocast]
) -> nn.Module:
    """Return a copy of a network with batch-norm statistics found anew, in evaluation mode.

    They are the means over these batches, with dropout off: dropout before a normalisation raises
    the variance that it sees in training, and never meets again.

    Args:
        network: Is left alone.
        batches: Images, augmented as in training, and labels, which are not looked at.
        autocast: Makes the context in which the network is called.
    """
    settled = copy.deepcopy(network).eval()
    norms = [module for module in settled.modules() if isinstance(module, NORMS)]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
        if isinstance(norm, GroupBatchNorm):  # other processes are not asked
            norm.synchronized = False
    with torch.no_grad():
        for count, (images, _) in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / count  # a running mean, in which every batch counts alike
            with autocast():
                settled(images)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    return settled.eval()
