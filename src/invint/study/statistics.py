"""Statistics over seeds: means, paired differences with their interval, excess confusions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, stdev
from typing import TypeVar

from invint.errors import ConfigError

Key = TypeVar("Key")
CONFIDENCE = 0.95
BETTER, WORSE = "better", "worse"
UNDECIDED, UNKNOWN = "no difference shown", "one pair: no interval"
FEW = "too few pairs: no interval"
ALIKE = "all pairs alike: no interval"  # errors come in steps of one image: no sign of certainty


@dataclass(frozen=True)
class Spread:
    """Mean over seeds.

    Attributes:
        mean: The mean.
        deviation: Sample standard deviation; `None` of one value.
        count: Number of values.
    """

    mean: float
    deviation: float | None
    count: int


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences; negative where the first of each pair makes fewer errors.

    Attributes:
        mean: Mean of first minus second.
        low: Lower end of the confidence interval; `None` of one pair, or too few.
        high: Upper end; `None` likewise.
        pairs: Number of pairs.
    """

    mean: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def verdict(self) -> str:
        """What may be said of errors: a direction only where the interval leaves zero out."""
        if self.low is None or self.high is None:
            return UNKNOWN if self.pairs == 1 else FEW
        if self.high - self.low < 1e-9:
            return ALIKE if abs(self.mean) > 1e-9 else UNDECIDED
        if self.high < 0:
            return BETTER
        return WORSE if self.low > 0 else UNDECIDED


def spread(values: Sequence[float]) -> Spread:
    """Return mean and sample deviation."""
    if not values:
        raise ConfigError("spread: expected at least one value, got none")
    return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def paired_difference(
    first: Mapping[Key, float], second: Mapping[Key, float], *, confidence: float = CONFIDENCE
) -> Difference | None:
    """Compare values that share a key, with the interval of Student's t.

    It holds for a number of pairs that was decided before; for one that depends on what was seen,
    there is `invint.study.power.difference_at_any_time`.

    Args:
        first: Value by what makes a pair: the seed and the subset of training images.
        second: The values to compare with.
        confidence: Fraction of such intervals that hold the true difference.

    Returns:
        The difference; `None` where no key is in both.
    """
    check_confidence("paired_difference", confidence)
    differences = paired(first, second)
    if not differences:
        return None
    centre = spread(differences)
    if centre.deviation is None:
        return Difference(centre.mean, None, None, 1)
    from scipy.stats import t  # slow to import

    quantile = float(t.ppf((1 + confidence) / 2, len(differences) - 1))
    half = quantile * centre.deviation / math.sqrt(len(differences))
    return Difference(centre.mean, centre.mean - half, centre.mean + half, len(differences))


def paired(first: Mapping[Key, float], second: Mapping[Key, float]) -> list[float]:
    """Return first minus second for each key that is in both."""
    return [first[key] - second[key] for key in first if key in second]


def check_confidence(owner: str, confidence: float) -> None:
    """Refuse a confidence that is none."""
    if not 0 < confidence < 1:
        raise ConfigError(f"{owner}: confidence must be within (0, 1), got {confidence}")


@dataclass(frozen=True)
class Excess:
    """Two classes that one network confuses more often than another.

    Attributes:
        classes: Indices of the two.
        count: Confusions of the network, either way round.
        other: Those of the network it is compared with.
        p_value: Of the one-sided test, corrected for the number of pairs tested.
    """

    classes: tuple[int, int]
    count: int
    other: int
    p_value: float


def confusion_excess(
    first: Sequence[Sequence[int]], second: Sequence[Sequence[int]], *, level: float = 0.05
) -> list[Excess]:
    """Find the pairs of classes the first network confuses significantly more often.

    Rows are true classes, columns predictions; both matrices must count the same test images. If
    both networks confused a pair equally often, the first would have half of all confusions but
    for chance: an exact one-sided binomial test for each pair, with Holm's correction. Networks
    tend to fail on the same images, which makes this test careful rather than bold.

    Args:
        first: Confusion matrix of the network in question.
        second: Confusion matrix of the one to compare with.
        level: Largest probability of naming any pair wrongly.
    """
    totals = [[sum(row) for row in matrix] for matrix in (first, second)]
    if totals[0] != totals[1]:
        raise ConfigError(
            "confusion_excess: the matrices must count the same test images, got "
            f"{totals[0]} and {totals[1]} images by class"
        )
    from scipy.stats import binom  # slow to import

    tested = []
    for j, i in combinations(range(len(first)), 2):
        count, other = (matrix[i][j] + matrix[j][i] for matrix in (first, second))
        chance = float(binom.sf(count - 1, count + other, 0.5)) if count + other else 1.0
        tested.append((chance, (j, i), count, other))
    tested.sort()
    found, corrected = [], 0.0
    for rank, (probability, classes, count, other) in enumerate(tested):
        corrected = max(corrected, min(1.0, probability * (len(tested) - rank)))
        if corrected < level:
            found.append(Excess(classes, count, other, corrected))
    return found
