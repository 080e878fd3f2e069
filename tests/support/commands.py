"""Commands run in the process of a test, and a run that takes them seconds."""

from collections.abc import Callable
from typing import NamedTuple

TINY = (
    *("--size=40", "--scale=0.08", "--threads=1", "--set=train.batch_size=16"),
    *("--set=train.epochs=4", "--set=model.group=C4", "--set=model.n_fc=6"),
    "--set=model.widths=2,3,4",
)


class Done(NamedTuple):
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Done]
