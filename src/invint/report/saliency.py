"""What an answer rests on: a picture of relevance that turns with the image, exactly.

Axes:  b image   c channel   h w pixel
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import avg_pool2d

from invint.errors import ShapeError, check_axes
from invint.ops.grids import permute_grid

QUARTERS = range(4)
GRAIN = 1 / 12  # of the side, over which relevance is averaged: single pixels are noise


def saliency(
    model: Callable[[Tensor], Tensor],
    images: Float[Tensor, "b c h w"],
    *,
    invariant: bool = False,
) -> Float[Tensor, "b h w"]:
    r"""Return how much each place of an image speaks for the answer, or against it.

    $$S(x) = \frac14 \sum_{k=0}^{3} R^{-k} \sum_c (R^k \tilde x)_c
      \left(\frac{\partial s_a}{\partial x_c}\right)(R^k x)$$

    Gradient times input, where $R$ is the quarter turn, $\tilde x$ the image less its mean colour,
    $s_a$ the logit of the answer less the mean of all logits, and the answer $a$ the one with the
    largest mean logit over the four turns. The result is averaged over a small square window.

    The saliency of a turned image is the turned saliency, exactly for quarter turns, whatever the
    model: the sum runs over all of them. Of a network that is invariant all four terms are equal.
    It is a linear estimate at the image itself: it does not say what another image would do.

    Args:
        model: Takes images to logits, and can be differentiated; in evaluation mode.
        images: Square ones, as the model takes them.
        invariant: Whether quarter turns leave the answers of the model alone, so that one term of
            the sum is enough.
    """
    check_axes(images, "b c h w", "saliency")
    height, width = images.shape[-2:]
    if height != width:
        raise ShapeError(
            f"saliency: expected square images, got {height} x {width}; crop or pad them"
        )
    quarters = QUARTERS[:1] if invariant else QUARTERS
    turns = [permute_grid(images, k, flip=False) for k in quarters]
    with torch.no_grad():
        answers = torch.stack([model(copy) for copy in turns]).mean(dim=0).argmax(dim=1)
    parts = [permute_grid(_relevance(model, turns[k], answers), -k, flip=False) for k in quarters]
    reach = round(GRAIN * height / 2)
    mean = torch.stack(parts).mean(dim=0)
    return avg_pool2d(mean, 2 * reach + 1, stride=1, padding=reach, count_include_pad=False)


def _relevance(
    model: Callable[[Tensor], Tensor], images: Tensor, answers: Tensor
) -> Float[Tensor, "b h w"]:
    """Return gradient times input for the given answers."""
    with torch.enable_grad():
        leaf = images.detach().clone().requires_grad_()
        logits = model(leaf)
        score = logits.gather(1, answers[:, None])[:, 0] - logits.mean(dim=1)
        (gradient,) = torch.autograd.grad(score.sum(), leaf)
    centred = images - images.mean(dim=(2, 3), keepdim=True)
    return (gradient * centred).sum(dim=1)
