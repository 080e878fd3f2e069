"""What the name of a file says."""

import os

from invint.data.pictures import shown


def test_names_are_fit_for_a_terminal() -> None:
    assert shown("grün 1.png") == "grün 1.png"
    assert shown(os.fsdecode(b"a\xff\x1b[31m\n.png")) == r"a\xff\x1b[31m\n.png"
