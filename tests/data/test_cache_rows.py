"""Rows reach the disk while more are written, a bounded number at a time."""

import os
from pathlib import Path

import pytest

from invint.data import cache
from invint.data.cache import Shape, draft


def test_writing_to_the_disk_begins_while_more_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    flush = os.fsync

    def counting(descriptor: int) -> None:
        flushed.append(descriptor)
        flush(descriptor)

    monkeypatch.setattr(cache, "FLUSHED", 2 * 32 * 4 * 4 * 3)
    monkeypatch.setattr(os, "fsync", counting)
    with draft(tmp_path, Shape(4, 3, False), 100) as rows:
        for start in (0, 32, 64):
            rows.put(start, [bytes(rows.row_bytes)] * 32)
        assert len(rows.flushes) == 1
    assert len(flushed) == 2
    assert rows.path.stat().st_size == rows.begin + 100 * rows.row_bytes


@pytest.mark.parametrize(
    ("shape", "most"),
    [(Shape(96, 3, False), 32), (Shape(512, 3, False), 5), (Shape(1024, 3, True), 1)],
)
def test_no_more_is_decoded_at_once_than_four_megabytes_or_one_picture(
    tmp_path: Path, shape: Shape, most: int
) -> None:
    with draft(tmp_path, shape, 0) as rows:
        assert rows.at_once(32) == most
