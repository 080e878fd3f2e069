"""The comparison of the benchmarks with what people do instead, shortened."""

from typing import Any

import folders
import numpy as np
import pytest
from folders import Labels, Pictures, Task

SIDE = 12


def some(count: int = 60) -> tuple[Pictures, Labels]:
    """Return pictures of two classes: bright ones, and bright ones in the first corner."""
    labels = np.arange(count) % 2
    pictures = np.random.default_rng(0).integers(0, 50, (count, SIDE, SIDE, 3), dtype=np.uint8)
    pictures[labels == 1] += 100
    pictures[labels == 0, 0, 0] = 200
    return pictures, labels


def by_brightness(pictures: Pictures) -> Labels:
    return np.asarray(pictures.mean(axis=(1, 2, 3)) > 75, dtype=np.int64)


def by_corner(pictures: Pictures) -> Labels:
    return np.asarray(pictures[:, 0, 0].mean(axis=-1) < 180, dtype=np.int64)


def test_what_turns_with_the_picture_is_found_out() -> None:
    pictures, labels = some()
    found = folders.scores(by_brightness, pictures, labels, 0)
    assert found == {"upright": 0.0, "quarter_turns": 0.0, "any_angle": 0.0, "changed": 0.0}
    found = folders.scores(by_corner, pictures, labels, 0)
    assert (found["upright"], found["changed"]) == (0.0, 0.5)
    assert 0.2 < found["quarter_turns"] < 0.5  # three of four turns of every second picture


def test_nothing_is_learnt_from_that_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "everything", lambda _: some(700))
    pools, tested = folders.split("some", 0)
    assert [len(pool) for pool in pools] == [100, 100]
    assert len(tested) == 500
    assert len(np.unique(np.concatenate([*pools, tested]))) == 700
    assert (some(700)[1][pools[1]] == 1).all()


def test_a_case_becomes_a_row_and_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []

    def method(task: Task) -> folders.Predict:
        seen.append(task)
        return by_brightness

    monkeypatch.setattr(folders, "everything", lambda _: some(700))
    monkeypatch.setitem(folders.METHODS, "invint fit", method)
    case: dict[str, Any] = {"set": "some", "per_class": 20, "seed": 0, "method": "invint fit"}
    row = folders.measured(case, 3.0)
    assert len(seen[0].pictures) == 40
    assert row["upright"] == 0
    assert folders.is_known(case, 3.0, [row])
    assert not folders.is_known(case, 5.0, [row])
    assert not folders.is_known(case | {"per_class": 50}, 3.0, [row])
    table = folders.table([row, row | {"seed": 1, "upright": 0.5}])
    assert "| invint fit, 3 minutes |    25.0 |" in table
