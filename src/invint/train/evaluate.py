"""Logits of many images, and what they say: error, per class, calibration and its cure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint.nn.modes import evaluating
from invint.ops.grids import rotate

BINS = 15  # of confidence, for the calibration
TEMPERATURES = 0.05, 20.0  # the least and the greatest
HALVINGS = 60  # of the logarithm of the interval: down to rounding


@dataclass(frozen=True)
class Scores:
    """How good logits are.

    Attributes:
        error: Fraction of wrong answers.
        cross_entropy: Mean over the images.
        per_class: Fraction of wrong answers for the images of each class; NaN where it has none.
        images: Number of images of each class.
    """

    error: float
    cross_entropy: float
    per_class: tuple[float, ...]
    images: tuple[int, ...]

    def to_dict(self, class_names: tuple[str, ...]) -> dict[str, Any]:
        """Return this as plain data; a class without images has no error."""
        rows = zip(class_names, self.images, self.per_class, strict=True)
        return {
            "error": self.error,
            "cross_entropy": self.cross_entropy,
            "per_class": [
                {"name": name, "images": images, "error": error if images else None}
                for name, images, error in rows
            ],
        }


@dataclass(frozen=True)
class Bin:
    """Images that were answered with similar confidence.

    Attributes:
        count: Number of images.
        confidence: Their mean confidence; 0 of none.
        accuracy: Fraction with the right answer; 0 of none.
    """

    count: int
    confidence: float
    accuracy: float


def logits_of(
    network: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    autocast: Callable[[], torch.autocast] | None = None,
    turns: int = 1,
    background: Tensor | float = 0.0,
) -> tuple[Float[Tensor, "n k"], Int[Tensor, " n"]]:
    """Return logits and labels of all images, in evaluation mode, on the CPU.

    Args:
        network: Takes images to logits; each of its modules gets its own mode back.
        batches: Images and labels.
        autocast: Makes the context in which the network is called.
        turns: Above 1, return the logarithm of the probabilities averaged over this many rotated
            copies of each image.
        background: Value of the pixels that come from outside a rotated image.
    """
    found: list[Tensor] = []
    labels = []
    with evaluating(network), torch.no_grad():
        for images, answers in batches:
            filled = _filled(images, len(found[0])) if images.is_cuda and found else images
            with autocast() if autocast else torch.autocast(images.device.type, enabled=False):
                logits = _averaged(network, filled, turns, background)
            found.append(logits[: len(images)])
            labels.append(answers)
    return torch.cat(found).cpu(), torch.cat(labels).cpu()


def _filled(images: Tensor, size: int) -> Tensor:
    """Repeat the first image of a short batch: for another shape cuDNN would try all it has."""
    spare = max(size - len(images), 0)
    return torch.cat([images, images[:1].expand(spare, -1, -1, -1)]) if spare else images


def _averaged(network: nn.Module, images: Tensor, turns: int, background: Tensor | float) -> Tensor:
    if turns == 1:
        logits: Tensor = network(images).float()
        return logits
    angles = (2 * math.pi * number / turns for number in range(turns))
    copies = (rotate(images - background, angle) + background for angle in angles)
    probabilities = [network(copy).float().softmax(dim=1) for copy in copies]
    return torch.stack(probabilities).mean(dim=0).clamp_min(1e-30).log()


def scores_of(logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> Scores:
    """Count wrong answers, in all and class by class."""
    wrong = logits.argmax(dim=1) != labels
    classes = range(logits.shape[1])
    return Scores(
        error=wrong.double().mean().item(),
        cross_entropy=cross_entropy(logits.double(), labels).item(),
        per_class=tuple(wrong[labels == each].double().mean().item() for each in classes),
        images=tuple(int((labels == each).sum()) for each in classes),
    )


def calibration_bins(
    logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"], *, bins: int = BINS
) -> tuple[Bin, ...]:
    """Sort images by confidence, the probability of the answer, into equal intervals."""
    confidence, found = logits.double().softmax(dim=1).max(dim=1)
    confidence = confidence.nan_to_num(nan=0.0)  # of a network that has diverged
    right = (found == labels).double()
    place = (confidence * bins).long().clamp(max=bins - 1)
    counts = torch.bincount(place, minlength=bins)
    sums = (torch.bincount(place, weights, minlength=bins) for weights in (confidence, right))
    means = [(total / counts.clamp(min=1)).tolist() for total in sums]
    return tuple(Bin(*values) for values in zip(counts.tolist(), *means, strict=True))


def calibration_error(bins: Sequence[Bin]) -> float | None:
    r"""Return the expected calibration error (ECE); `None` without images.

    $$\mathrm{ECE} = \sum_k \frac{n_k}{n} \, |\mathrm{accuracy}_k - \mathrm{confidence}_k|$$

    Args:
        bins: What `calibration_bins` returned.
    """
    total = sum(each.count for each in bins)
    if not total:
        return None
    return sum(each.count * abs(each.confidence - each.accuracy) for each in bins) / total


def temperature_of(logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"]) -> float:
    r"""Return the temperature at which the logits fit the labels best.

    $$\min_T \; -\frac{1}{n} \sum_i \log p_{y_i}(z_i / T), \qquad p = \mathrm{softmax}$$

    The sum is convex in $1/T$, so its slope there changes sign once at most, which is found by
    halving. Where the logits get every label right, or are no better than chance, it has no
    minimum: the result stays between 0.05 and 20. Dividing logits by a temperature changes no
    answer, only how sure it is. The labels must not be those that were trained on.

    Args:
        logits: Before the softmax. Where one is not finite, or there are none, the result is 1.
        labels: The right answers.
    """
    if not len(logits) or not logits.isfinite().all():
        return 1.0
    values = logits.double() - logits.double().amax(dim=1, keepdim=True)
    right = values.gather(1, labels[:, None]).mean()
    low, high = map(math.log, TEMPERATURES)
    middle = 0.0
    for _ in range(HALVINGS):
        expected = ((values / math.exp(middle)).softmax(dim=1) * values).sum(dim=1).mean()
        if expected == right:  # the slope in 1/T is zero
            break
        low, high = (middle, high) if expected > right else (low, middle)
        middle = (low + high) / 2
    return math.exp(middle)
