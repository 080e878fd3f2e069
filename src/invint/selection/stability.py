"""Whether several runs choose the same monomials."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import mean

from invint.nn.monomials import Monomials
from invint.selection.history import History

Combination = tuple[float, ...]


def combinations_of(monomials: Monomials) -> list[Combination]:
    """Return the distances of each monomial regardless of their order."""
    return [tuple(sorted(row)) for row in monomials.distances]


def overlap(first: Monomials, second: Monomials) -> float:
    """Return the share of common combinations of distances: |A ∩ B| / |A ∪ B|, repeats counted."""
    return _overlap(combinations_of(first), combinations_of(second))


def chance_overlap(first: History, second: History, *, draws: int = 200) -> float:
    """Return the overlap of as many monomials drawn blindly from what each run started with."""
    generator = random.Random(0)
    pools = [combinations_of(each.start) for each in (first, second)]
    counts = [len(each.survivors) for each in (first, second)]
    return mean(
        _overlap(generator.sample(pools[0], counts[0]), generator.sample(pools[1], counts[1]))
        for _ in range(draws)
    )


def rank_correlation(first: History, second: History) -> float | None:
    """Return Spearman's rank correlation of the scores at the first step of two runs.

    Compared are combinations of distances that both started with; one that occurs more than once
    counts with the mean of its scores. None with fewer than three in common, or if all are equal.
    """
    scores = [_score_by_combination(each) for each in (first, second)]
    common = sorted(scores[0].keys() & scores[1].keys())
    if len(common) < 3:
        return None
    from scipy.stats import rankdata  # slow to import

    ranks = [rankdata([each[combination] for combination in common]) for each in scores]
    centred = [each - each.mean() for each in ranks]
    scale = float(((centred[0] ** 2).sum() * (centred[1] ** 2).sum()) ** 0.5)
    return float((centred[0] * centred[1]).sum()) / scale if scale else None


def pairs(histories: Sequence[History]) -> list[tuple[History, History]]:
    """Return every two of several runs."""
    return list(combinations(histories, 2))


def _overlap(first: Sequence[Combination], second: Sequence[Combination]) -> float:
    counted = Counter(first), Counter(second)
    return (counted[0] & counted[1]).total() / (counted[0] | counted[1]).total()


def _score_by_combination(history: History) -> dict[Combination, float]:
    if not history.steps:
        return {}
    found: defaultdict[Combination, list[float]] = defaultdict(list)
    for combination, score in zip(
        combinations_of(history.first), history.steps[0].scores, strict=True
    ):
        found[combination].append(score)
    return {combination: mean(values) for combination, values in found.items()}
