"""What the files of a folder turned out to be, and the shape that suits all of them."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from invint.data.picture_files import DEEP, GREY

LADDER = (16, 24, 32, 48, 64, 96)  # sides for folders in which no size prevails


class Seen(NamedTuple):
    """What one file turned out to be.

    Attributes:
        path: Relative to the folder.
        size: In bytes.
        modified: When it was last written, in nanoseconds.
        digest: Hash of its bytes; empty if it could not be read.
        width: Of the picture, as stored.
        height: Of the picture, as stored.
        mode: Pillow's name for its kind of pixels.
        reduced: Whether sixteen bits a channel became eight.
        problem: Why it cannot be used; empty for a good picture.
    """

    path: str
    size: int
    modified: int
    digest: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    reduced: bool = False
    problem: str = ""


UNSEEN = Seen("", 0, 0)


class Shape(NamedTuple):
    """What all pictures of a folder are made into."""

    side: int
    channels: int
    sixteen_bit: bool

    @property
    def row(self) -> tuple[int, int, int]:
        """Height, width and channels of a picture, as it is stored."""
        return self.side, self.side, self.channels


def suggested_shape(seen: Sequence[Seen], side: int | None) -> Shape:
    """Choose what all pictures are made into.

    The side is the longer one of the pictures, if more than half of them agree on it; otherwise
    the first of 16, 24, 32, 48, 64 and 96 that reaches their median. It is even and at most 96.
    Pictures are grey if all are, and keep sixteen bits if any has them.
    """
    good = [one for one in seen if not one.problem] or [Seen("", 0, 0, "", LADDER[0], LADDER[0])]
    channels = 1 if all(one.mode in GREY for one in good) else 3
    return Shape(side or _side(good), channels, any(one.mode in DEEP for one in good))


def _side(good: Sequence[Seen]) -> int:
    longer = sorted(max(one.width, one.height) for one in good)
    common, times = Counter(longer).most_common(1)[0]
    if 2 * times > len(longer):
        return max(2, min(common + common % 2, LADDER[-1]))
    median = longer[len(longer) // 2]
    return next((side for side in LADDER if side >= median), LADDER[-1])
