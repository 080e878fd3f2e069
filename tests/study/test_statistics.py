import math

import pytest
import scipy.stats

from invint.errors import ConfigError
from invint.study.statistics import (
    ALIKE,
    BETTER,
    UNDECIDED,
    UNKNOWN,
    WORSE,
    Difference,
    confusion_excess,
    paired_difference,
    spread,
)


def test_the_deviation_is_that_of_a_sample() -> None:
    result = spread([1.0, 2.0, 6.0])
    assert (result.mean, result.count) == (3.0, 3)
    assert result.deviation == pytest.approx(math.sqrt((4 + 1 + 9) / 2))
    assert spread([5.0]).deviation is None
    with pytest.raises(ConfigError, match="spread: expected at least one value, got none"):
        spread([])


def test_the_interval_is_the_one_computed_by_hand() -> None:
    # differences -1, -2, -3: mean -2, deviation 1, t(0.975, 2) = 4.302653
    result = paired_difference({1: 4.0, 2: 5.0, 3: 6.0}, {1: 5.0, 2: 7.0, 3: 9.0})
    assert result is not None
    assert (result.mean, result.pairs) == (-2.0, 3)
    assert result.low == pytest.approx(-2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert result.high == pytest.approx(-2 + 4.302653 / math.sqrt(3), abs=1e-6)
    assert result.verdict == UNDECIDED  # 2.48 each way: zero is just inside


@pytest.mark.parametrize("pairs", [2, 5, 11])
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_interval_is_that_of_scipy(pairs: int, confidence: float) -> None:
    first = {seed: 3 + math.sin(seed) for seed in range(pairs)}
    second = {seed: 3.4 + math.cos(3 * seed) for seed in range(pairs)}
    result = paired_difference(first, second, confidence=confidence)
    test = scipy.stats.ttest_rel(list(first.values()), list(second.values()))
    expected = test.confidence_interval(confidence)
    assert result is not None
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))


def test_two_pairs_give_a_wide_interval_and_one_gives_none() -> None:
    two = paired_difference({1: 1.0, 2: 2.0}, {1: 0.0, 2: 0.5})
    assert two is not None
    assert two.low == pytest.approx(1.25 - 12.7062047 * 0.25)
    assert two.verdict == UNDECIDED
    one = paired_difference({1: 1.0}, {1: 0.0})
    assert one == Difference(1.0, None, None, 1)
    assert one.verdict == UNKNOWN


def test_only_what_has_a_partner_is_compared() -> None:
    result = paired_difference({1: 1.0, 2: 2.0, 9: 100.0}, {1: 0.0, 2: 1.0, 7: -100.0})
    assert result is not None
    assert (result.mean, result.pairs) == (1.0, 2)
    assert paired_difference({1: 1.0}, {2: 1.0}) is None


def test_words_follow_the_interval() -> None:
    assert Difference(-1.0, -1.5, -0.5, 3).verdict == BETTER
    assert Difference(1.0, 0.5, 1.5, 3).verdict == WORSE
    assert Difference(-1.0, -2.5, 0.5, 3).verdict == UNDECIDED
    assert Difference(-1.0, -2.0, 0.0, 3).verdict == UNDECIDED


def test_pairs_that_are_all_alike_prove_nothing() -> None:
    same = paired_difference({1: 1.0, 2: 3.0}, {1: 2.0, 2: 4.0})
    assert same is not None
    assert same.verdict == ALIKE
    none = paired_difference({1: 1.0, 2: 3.0}, {1: 1.0, 2: 3.0})
    assert none is not None
    assert none.verdict == UNDECIDED


def test_a_confidence_is_a_share() -> None:
    with pytest.raises(ConfigError, match=r"confidence must be within \(0, 1\), got 95"):
        paired_difference({1: 1.0}, {1: 1.0}, confidence=95)


def test_excess_confusions_are_found_and_chance_is_not() -> None:
    first = [[70, 30, 0], [5, 90, 5], [0, 4, 96]]
    second = [[97, 3, 0], [2, 92, 6], [0, 3, 97]]
    found = confusion_excess(first, second)
    assert [(each.classes, each.count, each.other) for each in found] == [((0, 1), 35, 5)]
    plain = scipy.stats.binomtest(35, 40, alternative="greater").pvalue
    assert found[0].p_value == pytest.approx(3 * plain)
    assert confusion_excess(second, first) == []


def test_corrections_follow_holm() -> None:
    first = [[10, 20, 0, 0], [0, 30, 18, 0], [0, 0, 48, 0], [0, 0, 9, 0]]
    second = [[28, 2, 0, 0], [0, 45, 3, 0], [0, 0, 48, 0], [0, 0, 0, 9]]
    plain = [
        scipy.stats.binomtest(count, total, alternative="greater").pvalue
        for count, total in ((20, 22), (18, 21), (9, 9))
    ]
    ordered = sorted(plain)
    expected = [6 * ordered[0], 5 * ordered[1], 4 * ordered[2]]
    found = confusion_excess(first, second)
    assert [each.p_value for each in found] == pytest.approx(expected)
    assert found[0].p_value < found[1].p_value < found[2].p_value


def test_other_test_images_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="must count the same test images, got"):
        confusion_excess([[1, 0], [0, 1]], [[2, 0], [0, 1]])
