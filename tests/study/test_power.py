import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from invint.errors import ConfigError
from invint.study.power import (
    PRECISION,
    deviation_bound,
    difference_at_any_time,
    evidence,
    power,
    reach,
    seeds_for_width,
    seeds_to_see,
)
from invint.study.statistics import BETTER, FEW, UNKNOWN

LOOKS = 100
SEQUENCES = 4000


def mean_and_deviation_at_every_look() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many values were seen at each look, their means and their deviations."""
    values = np.random.default_rng(0).normal(0.7, 2.0, (SEQUENCES, LOOKS))
    counts = np.arange(1, LOOKS + 1)
    means = values.cumsum(axis=1) / counts
    squares = (values**2).cumsum(axis=1) - counts * means**2
    deviations = np.sqrt(squares.clip(0) / np.maximum(counts - 1, 1))
    return counts, means, deviations


def share_ever_outside(reaches: np.ndarray) -> float:
    """Return the fraction of sequences of which any interval misses the true mean, from 2 on."""
    _, means, deviations = mean_and_deviation_at_every_look()
    outside = np.abs(means - 0.7)[:, 1:] > reaches[1:] * deviations[:, 1:]
    return float(outside.any(axis=1).mean())


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_sequence_holds_the_truth_at_all_looks_together(confidence: float) -> None:
    reaches = np.array([reach(n, confidence=confidence) for n in range(1, LOOKS + 1)])
    missed = share_ever_outside(reaches)
    assert missed <= 1 - confidence
    assert missed > (1 - confidence) / 10  # and does so without being infinitely careful


def test_students_interval_does_not_when_it_is_looked_at_again_and_again() -> None:
    counts = np.arange(2, LOOKS + 1)
    quantiles = scipy.stats.t.ppf(0.975, counts - 1) / np.sqrt(counts)
    assert share_ever_outside(np.array([np.inf, *quantiles])) > 0.25
    _, means, deviations = mean_and_deviation_at_every_look()
    last = np.abs(means[:, -1] - 0.7) > quantiles[-1] * deviations[:, -1]
    assert last.mean() == pytest.approx(0.05, abs=0.012)  # looked at once, it holds


def marginal(values: list[float], mean: float, *, mixed: bool) -> float:
    """Sum the likelihood over a grid of log deviations, and one of effects if mixed."""
    logs, effects = np.linspace(-5, 9, 1401), np.linspace(-12, 12, 601) if mixed else np.zeros(1)
    deviation, effect = np.exp(logs)[:, None, None], effects[:, None]
    moved = np.array(values) - mean
    likelihood = scipy.stats.norm.pdf(moved, effect * deviation, deviation).prod(axis=2)
    width = effects[1] - effects[0] if mixed else 1.0
    prior = scipy.stats.norm.pdf(effects, 0, PRECISION**-0.5) * width if mixed else np.ones(1)
    return float((likelihood * prior).sum() * (logs[1] - logs[0]))


@pytest.mark.parametrize("mean", [0.0, 0.4])
def test_the_evidence_is_the_ratio_of_two_integrals(mean: float) -> None:
    values = [0.9, 1.4, -0.3, 1.1]
    ratio = marginal(values, mean, mixed=True) / marginal(values, mean, mixed=False)
    assert evidence(values, mean) == pytest.approx(ratio, rel=1e-4)


def test_the_evidence_starts_at_one_and_is_a_function_of_students_statistic() -> None:
    assert evidence([0.7], 0.0) == pytest.approx(1.0)
    values = [0.9, 1.4, -0.3, 1.1, 0.2]
    n, share = len(values), PRECISION / (len(values) + PRECISION)
    t = scipy.stats.ttest_1samp(values, 0.1).statistic
    inner = (1 + t**2 / (n - 1)) / (1 + share * t**2 / (n - 1))
    assert evidence(values, 0.1) == pytest.approx(math.sqrt(share) * inner ** (n / 2))


@pytest.mark.parametrize("pairs", [4, 7, 30])
def test_at_the_ends_of_the_interval_the_evidence_is_one_in_twenty(pairs: int) -> None:
    values = [math.sin(seed * seed) for seed in range(pairs)]
    found = difference_at_any_time(dict(enumerate(values)), dict.fromkeys(range(pairs), 0.0))
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert [evidence(values, end) for end in (found.low, found.high)] == pytest.approx([20, 20])
    assert evidence(values, found.mean) < 1


def test_the_page_of_the_theory_has_these_widths() -> None:
    page = (Path(__file__).parents[2] / "docs" / "theory" / "seeds.md").read_text()
    rows = {
        cells[1].strip(): [float(each) for each in cells[2:-1]]
        for line in page.splitlines()
        if len(cells := line.split("|")) > 4 and "---" not in line
    }
    pairs = [int(each) for each in rows["pairs"]]
    student = [scipy.stats.t.ppf(0.975, n - 1) / math.sqrt(n) for n in pairs]
    assert rows["sequence"] == pytest.approx([reach(n) for n in pairs], abs=0.0051)
    assert rows["Student's t, looked at once"] == pytest.approx(student, abs=0.0051)


def test_too_few_pairs_have_no_interval_and_say_so() -> None:
    values = {0: 1.0, 1: 1.2, 2: 1.1}
    zeros = dict.fromkeys(range(9), 0.0)
    three = difference_at_any_time(values, zeros)
    assert three is not None
    assert (three.low, three.pairs, three.verdict) == (None, 3, FEW)
    one = difference_at_any_time({0: 1.0}, zeros)
    assert one is not None
    assert one.verdict == UNKNOWN
    assert difference_at_any_time({99: 1.0}, zeros) is None
    many = difference_at_any_time({seed: -1 - seed / 50 for seed in range(9)}, zeros)
    assert many is not None
    assert many.verdict == BETTER


@pytest.mark.parametrize(("difference", "deviation"), [(0.3, 0.25), (0.5, 0.9)])
def test_the_power_is_that_of_simulated_studies(difference: float, deviation: float) -> None:
    draws = np.random.default_rng(1).normal(difference, deviation, (40_000, 6))
    found = (scipy.stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).mean()
    assert power(difference, deviation, 6) == pytest.approx(found, abs=0.01)


def test_the_seeds_are_the_fewest_that_have_the_power() -> None:
    for difference, deviation in ((0.3, 0.25), (0.1, 0.5), (5.0, 0.1)):
        seeds = seeds_to_see(difference, deviation)
        assert seeds is not None
        assert power(difference, deviation, seeds) >= 0.8
        assert seeds == 2 or power(difference, deviation, seeds - 1) < 0.8
    assert seeds_to_see(0.3, 0.0) == 2
    assert seeds_to_see(0.001, 1.0) is None
    assert power(5.0, 0.001, 3) == 1.0
    with pytest.raises(ConfigError, match=r"--see 0: expected percentage points above 0, such as"):
        seeds_to_see(0.0, 1.0)


def test_the_seeds_for_a_width_are_the_fewest_that_reach_it() -> None:
    seeds = seeds_for_width(0.4, 0.25)
    assert seeds is not None
    assert 2 * 0.25 * reach(seeds) <= 0.4 < 2 * 0.25 * reach(seeds - 1)


def test_the_bound_of_the_deviation_holds_as_often_as_it_says() -> None:
    draws = np.random.default_rng(2).normal(0, 1.5, (20_000, 3))
    bounds = [deviation_bound(each, 3) for each in draws.std(axis=1, ddof=1)[:4000]]
    assert np.mean(np.array(bounds) > 1.5) == pytest.approx(0.8, abs=0.02)
    assert deviation_bound(1.0, 200) == pytest.approx(1.0, abs=0.06)
    with pytest.raises(ConfigError, match=r"deviation_bound: expected two or more diff.*, got 1"):
        deviation_bound(1.0, 1)
