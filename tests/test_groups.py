import itertools
import math
import pickle

import numpy as np
import pytest

from invint import ConfigError, Cyclic, Dihedral, Group, parse_group
from invint.groups import Element

NUMBERS = [1, 2, 3, 4, 6, 8, 12, 16]
GROUPS = [kind(n) for kind in (Cyclic, Dihedral) for n in NUMBERS]


def matrix(element: Element) -> np.ndarray:
    """Write the element as what it does to (x, y), y up."""
    cosine, sine = math.cos(element.angle), math.sin(element.angle)
    turn = np.array([[cosine, -sine], [sine, cosine]])
    return turn @ np.diag([1.0, -1.0 if element.flip else 1.0])


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_the_table_is_that_of_the_matrices(group: Group) -> None:
    matrices = [matrix(element) for element in group.elements]
    assert len(matrices) == group.order
    for g, h in itertools.product(range(group.order), repeat=2):
        quotient = np.linalg.inv(matrices[g]) @ matrices[h]
        np.testing.assert_allclose(matrices[group.quotients[g][h]], quotient, atol=1e-12)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_grid_symmetries_are_the_elements_with_whole_entries(group: Group) -> None:
    whole = [
        number
        for number, element in enumerate(group.elements)
        if np.allclose(matrix(element), np.round(matrix(element)), atol=1e-9)
    ]
    assert [symmetry.element for symmetry in group.grid_symmetries] == whole
    for number, quarter_turns, flip in group.grid_symmetries:
        expected = matrix(Element(quarter_turns * math.pi / 2, flip))
        np.testing.assert_allclose(matrix(group.elements[number]), expected, atol=1e-12)


def test_the_first_element_is_the_identity() -> None:
    assert all(group.elements[0] == Element(0.0, False) for group in GROUPS)


def test_groups_are_values() -> None:
    assert Cyclic(4) == Cyclic(4) != Cyclic(8)
    assert Cyclic(4) != Dihedral(4)  # type: ignore[comparison-overlap]
    assert len({Cyclic(4), Cyclic(4), Dihedral(4), Dihedral(2)}) == 3
    assert (str(Cyclic(8)), repr(Dihedral(4))) == ("C8", "Dihedral(4)")
    assert pickle.loads(pickle.dumps(Dihedral(6))) == Dihedral(6)


@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_parsing_undoes_printing(group: Group) -> None:
    assert parse_group(str(group)) == group


@pytest.mark.parametrize("text", ["", "C", "C0", "E8", "C-4", "4", "C4.0", "C²"])
def test_says_how_a_group_is_written(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no group .*; write C8 for 8 rotations, D4"):
        parse_group(text)


@pytest.mark.unchecked
@pytest.mark.parametrize("n", [0, -2, 2.0, "8", True, 1025, 10**9])
def test_refuses_a_number_of_rotations_that_is_none(n: object) -> None:
    with pytest.raises(ConfigError, match=r"Cyclic: n must be a whole number from 1 to 1,024, got"):
        Cyclic(n)  # type: ignore[arg-type]
