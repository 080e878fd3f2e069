"""How the findings of a scan are told, and which of them stop a training."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from invint.data.cache import Shape
from invint.data.folder import Scan, refuse
from invint.data.listing import BadFile
from invint.errors import DataError

PLAIN = Scan(
    path=Path("set"),
    layout="a folder for each class",
    classes=("a", "b"),
    counts={"train": (2, 2), "test": (1, 1)},
    held_out=0.2,
    sizes=(((20, 20), 6),),
    modes={"L": 6},
    shape=Shape(20, 1, False),
    reduced=0,
    bad=(),
    others=(),
    duplicates=(),
    leaks=(),
    conflicts=(),
    few=(),
)


def test_long_lists_are_cut() -> None:
    others = tuple(f"a/{number:02}.txt" for number in range(25))
    lines = replace(PLAIN, others=others).report().splitlines()
    assert lines[-1] == "  and 5 more"
    assert "other files, passed over (25)" in lines


def test_names_cannot_write_to_the_terminal() -> None:
    bad = BadFile(os.fsdecode(b"a/\x1b[2J\n\xff.png"), "is empty; copy it anew")
    lines = replace(PLAIN, bad=(bad,)).report().splitlines()
    assert r"  a/\x1b[2J\n\xff.png: is empty; copy it anew" in lines


def test_classes_named_almost_alike_are_told() -> None:
    classes = ("Cat", "cafe\u0301", "caf\u00e9", "cat ", "dog")
    assert replace(PLAIN, classes=classes).warnings == (
        "classes named almost alike: 'Cat', 'cat '",
        "classes named almost alike: 'cafe\u0301', 'caf\u00e9'",
    )


def test_a_class_is_refused_for_what_it_lacks_and_not_for_its_name() -> None:
    own_test = replace(PLAIN, held_out=None)
    refuse(replace(own_test, few=("class 'train on' has no picture to test on",)), skip_bad=False)
    with pytest.raises(DataError, match="set: class 'a' has no picture to train on; add pictures"):
        refuse(replace(own_test, few=("class 'a' has no picture to train on",)), skip_bad=False)
