r"""How many seeds a comparison needs, and intervals that hold however often they are looked at.

Differences between two recipes over the same seeds and images are taken for normal, with a mean
$\mu$ and a deviation $\sigma$ that nobody knows. The theory page derives what is computed here.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from invint.errors import ConfigError
from invint.study.statistics import CONFIDENCE, Difference, Key, check_confidence, paired, spread

POWER = 0.8  # how often a difference is to be seen that is there
BOUND = 0.8  # how often the true deviation lies below the bound that is planned with
PRECISION = 0.3  # of the effects (μ − μ₀) / σ that the sequence looks for: fixed before any data
MOST_SEEDS = 10_000  # more is not a number to plan with


def power(
    difference: float, deviation: float, seeds: int, *, confidence: float = CONFIDENCE
) -> float:
    r"""Return how often the interval of Student's t leaves zero out.

    Of $n$ differences with mean $\mu$ and deviation $\sigma$, the statistic is non-central t with
    $n - 1$ degrees of freedom and centre $\sqrt{n} \mu / \sigma$.
    """
    from scipy.stats import nct, t  # slow to import

    if deviation == 0:
        return 1.0
    quantile = t.ppf((1 + confidence) / 2, seeds - 1)
    centre = math.sqrt(seeds) * abs(difference) / deviation
    if centre > quantile + 10:  # where the series of the distribution no longer converges
        return 1.0
    both = nct.sf(quantile, seeds - 1, centre) + nct.cdf(-quantile, seeds - 1, centre)
    return float(both)


def seeds_to_see(
    difference: float, deviation: float, *, chance: float = POWER, confidence: float = CONFIDENCE
) -> int | None:
    """Return the fewest seeds that show a difference with a given chance; `None` beyond thousands.

    Args:
        difference: To be seen, in the unit of the deviation.
        deviation: Of the paired differences.
        chance: That the interval of Student's t leaves zero out.
        confidence: Of that interval.
    """
    check_points("--see", difference)
    return _fewest(lambda n: power(difference, deviation, n, confidence=confidence) >= chance)


def seeds_for_width(
    width: float, deviation: float, *, confidence: float = CONFIDENCE
) -> int | None:
    """Return after how many seeds the sequence is that narrow, if differences deviate like this."""
    return _fewest(lambda n: 2 * deviation * reach(n, confidence=confidence) <= width)


def deviation_bound(deviation: float, count: int, *, level: float = BOUND) -> float:
    r"""Return what the true deviation stays below with a given probability.

    $(n-1) s^2 / \sigma^2$ is $\chi^2$ with $n - 1$ degrees of freedom, so $\sigma$ is less than
    $s \sqrt{(n-1) / q}$, with $q$ the quantile of one minus the level. Of two differences it is
    nearly four times what was found, of ten 1.3 times.

    Args:
        deviation: Sample deviation $s$.
        count: Number of differences $n$ it is from, two or more.
        level: The probability.
    """
    from scipy.stats import chi2  # slow to import

    if count < 2:
        raise ConfigError(f"deviation_bound: expected two or more differences, got {count}")
    return deviation * math.sqrt((count - 1) / float(chi2.ppf(1 - level, count - 1)))


def evidence(differences: Sequence[float], mean: float) -> float:
    r"""Return how much better effects of any size explain some differences than a given mean.

    With $t$ Student's statistic of $n$ differences against the mean $\mu_0$ and $\kappa$ the
    precision of the effects,

    $$E_n = \sqrt{\tfrac{\kappa}{n + \kappa}} \left(
    \frac{1 + t^2 / (n-1)}{1 + \frac{\kappa}{n + \kappa} t^2 / (n-1)} \right)^{n/2}$$

    If $\mu_0$ is the mean, $E_n$ is a martingale that starts at 1: the chance that it ever gets to
    $1/\alpha$ is at most $\alpha$.
    """
    n = len(differences)
    moved = [each - mean for each in differences]
    squares, total = math.fsum(each * each for each in moved), math.fsum(moved)
    explained = total * total / ((n + PRECISION) * squares)
    return float(math.sqrt(PRECISION / (n + PRECISION)) * (1 - explained) ** (-n / 2))


def reach(count: int, *, confidence: float = CONFIDENCE) -> float:
    r"""Return how many sample deviations the sequence reaches to each side of the mean.

    The means with $E_n < 1/\alpha$ are those with
    $t^2 / (n-1) < (r - 1) / (1 - \frac{\kappa}{n + \kappa} r)$, where
    $r^n = (n + \kappa) / (\kappa \alpha^2)$; all of them where the denominator is not positive.
    """
    if count < 2:
        return math.inf
    share = PRECISION / (count + PRECISION)
    ratio = float((1 / (share * (1 - confidence) ** 2)) ** (1 / count))
    if share * ratio >= 1:
        return math.inf
    return math.sqrt((count - 1) * (ratio - 1) / (1 - share * ratio) / count)


def difference_at_any_time(
    first: Mapping[Key, float], second: Mapping[Key, float], *, confidence: float = CONFIDENCE
) -> Difference | None:
    """Compare values that share a key, with an interval that holds after any number of pairs.

    The chance that the true difference is outside *any* of the intervals after 1, 2, 3, … pairs is
    at most one minus the confidence, so one may look after every pair and stop when one likes. That
    is paid for in width: with ten pairs it is 1.7 times as wide as Student's. Up to three pairs
    there is no interval.

    Args:
        first: Value by what makes a pair: the seed and the subset of training images.
        second: The values to compare with.
        confidence: Fraction of such sequences that always hold the true difference.

    Returns:
        The difference; `None` where no key is in both.
    """
    check_confidence("difference_at_any_time", confidence)
    differences = paired(first, second)
    if not differences:
        return None
    centre = spread(differences)
    half = reach(centre.count, confidence=confidence) * (centre.deviation or 0.0)
    if centre.deviation is None or not math.isfinite(reach(centre.count, confidence=confidence)):
        return Difference(centre.mean, None, None, centre.count)
    return Difference(centre.mean, centre.mean - half, centre.mean + half, centre.count)


def check_points(owner: str, points: float) -> None:
    """Refuse a difference or width in percentage points that is not above zero."""
    if not points > 0:
        raise ConfigError(f"{owner} {points:g}: expected percentage points above 0, such as 0.3")


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number from 2 on that is enough, if it is below the most."""
    high = 2
    while not enough(high):
        high *= 2
        if high > MOST_SEEDS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
