r"""The groups of plane rotations and reflections, as data: order, elements, table of $g^{-1}h$.

An element $(\theta, f)$ first mirrors the plane, $y \to -y$, if $f$, then turns it by $\theta$
counter-clockwise, with $y$ pointing up. Layers know nothing else about a group.
"""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from invint.errors import ConfigError

MOST_ROTATIONS = 1024  # tables have a cell for each pair of elements


class Element(NamedTuple):
    """One symmetry: mirror `y → -y` if `flip`, then turn by `angle` (radians)."""

    angle: float
    flip: bool


class GridSymmetry(NamedTuple):
    """An element that permutes pixels: mirror `y → -y` if `flip`, then make quarter turns."""

    element: int
    quarter_turns: int
    flip: bool


@dataclass(frozen=True, repr=False)
class Group:
    """What `Cyclic` and `Dihedral` share; `n` is the number of rotations.

    Elements are numbered rotations first, by angle, then the mirrored ones in the same order.
    """

    n: int
    has_flips: ClassVar[bool]
    letter: ClassVar[str]

    def __post_init__(self) -> None:
        if type(self.n) is not int or not 1 <= self.n <= MOST_ROTATIONS:
            name = type(self).__name__
            raise ConfigError(
                f"{name}: n must be a whole number from 1 to {MOST_ROTATIONS:,}, got {self.n!r}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n})"

    def __str__(self) -> str:
        return f"{self.letter}{self.n}"

    @property
    def order(self) -> int:
        """Number of elements."""
        return 2 * self.n if self.has_flips else self.n

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        """Every element; the first is the identity."""
        flips = (False, True) if self.has_flips else (False,)
        return tuple(
            Element(2 * math.pi * i / self.n, flip) for flip in flips for i in range(self.n)
        )

    @cached_property
    def quotients(self) -> tuple[tuple[int, ...], ...]:
        """Table of the number of `g⁻¹h` in row `g`, column `h`."""
        elements = range(self.order)
        return tuple(tuple(self._quotient(g, h) for h in elements) for g in elements)

    @cached_property
    def grid_symmetries(self) -> tuple[GridSymmetry, ...]:
        """The elements that permute the pixels of a grid.

        These are the rotations by multiples of 90° that the group contains and, for a group with
        reflections, the mirror `y → -y` followed by them. Under these every layer is exact.
        """
        quarters = math.gcd(self.n, 4)
        return tuple(
            GridSymmetry(
                element=flip * self.n + turn * self.n // quarters,
                quarter_turns=turn * 4 // quarters,
                flip=bool(flip),
            )
            for flip in range(2 if self.has_flips else 1)
            for turn in range(quarters)
        )

    def _quotient(self, g: int, h: int) -> int:
        flip_g, turn_g = divmod(g, self.n)
        flip_h, turn_h = divmod(h, self.n)
        turn = turn_g - turn_h if flip_g else turn_h - turn_g  # a mirror reverses rotations
        return (flip_g ^ flip_h) * self.n + turn % self.n


class Cyclic(Group):
    """Rotations by multiples of 360°/n: `Cyclic(8)`, written C8."""

    has_flips = False
    letter = "C"


class Dihedral(Group):
    """Rotations by multiples of 360°/n and reflections: `Dihedral(4)`, written D4."""

    has_flips = True
    letter = "D"


def parse_group(text: str) -> Group:
    """Return the group written as `"C8"` or `"D4"`."""
    match = re.fullmatch(r"([CD])([1-9]\d*)", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise ConfigError(f"no group {text!r}; write C8 for 8 rotations, D4 for 4 and reflections")
    kind = Cyclic if match[1].upper() == "C" else Dihedral
    return kind(int(match[2]))
