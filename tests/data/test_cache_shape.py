"""The shape that suits the pictures of a folder."""

import pytest

from invint.data.cache import suggested_shape
from invint.data.splits import FileInfo


def info(width: int, height: int, mode: str = "RGB") -> FileInfo:
    return FileInfo("", 0, 0, "x", width, height, mode)


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ([(28, 28)] * 3, 28),
        ([(27, 27)] * 3, 28),
        ([(96, 64)] * 3, 96),
        ([(4000, 3000)] * 3, 96),
        ([(32, 32), (32, 20), (500, 500)], 32),
        ([(20, 20), (30, 30), (40, 40)], 32),
        ([(300, 20), (400, 30), (500, 40)], 96),
        ([(1, 1), (2, 2), (3, 3)], 16),
        ([(1, 1)] * 3, 2),
        ([], 16),
    ],
)
def test_the_side_is_the_common_one_or_the_next_above_the_median(
    sizes: list[tuple[int, int]], side: int
) -> None:
    assert suggested_shape([info(*size) for size in sizes], None).side == side
    assert suggested_shape([info(*size) for size in sizes], 40).side == 40
