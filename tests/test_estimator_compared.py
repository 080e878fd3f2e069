"""The comparison of the benchmarks with support vector machines, shortened."""

from typing import Any

import estimator as benchmark
import numpy as np
import pytest


def test_all_methods_get_the_same_images(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[benchmark.Images] = []

    def method(images: benchmark.Images, labels: Any, seed: int) -> benchmark.Predict:
        seen.append(images)
        assert (len(labels), seed) == (480, 1)
        return lambda others: np.full(len(others), 3)

    monkeypatch.setattr(benchmark, "METHODS", {"one": method, "other": method})
    cases = [case for case in benchmark.places(["one", "other"], 2) if case["repetition"] == 1]
    rows = [benchmark.measured(case) for case in cases if case["fold"] == 2]
    upright, turned, *others = seen
    assert [case["turned"] for case in cases[:10]] == [False] * 5 + [True] * 5
    assert np.array_equal(upright, others[0])
    assert np.array_equal(turned, others[1])
    assert not np.array_equal(upright, turned)
    assert all(0.05 < row["right"] < 0.15 for row in rows)  # a tenth are threes
    assert "| one " in benchmark.table(rows)


def test_the_interval_is_that_of_nadeau_and_bengio() -> None:
    rights = (0.9, 0.92, 0.97, 0.95, 0.96)
    spread = np.std(rights, ddof=1) * np.sqrt(1 / 5 + 120 / 480)
    found = benchmark.interval([{"right": right} for right in rights])
    assert found == f"94.0 ± {100 * 2.7764 * spread:.1f}"  # the quantile of four degrees of freedom
    assert benchmark.interval([{"right": 0.5}]) == "50.0"
    assert benchmark.interval([]) == "–"
