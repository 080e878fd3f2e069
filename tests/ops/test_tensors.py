import gc

import torch
from torch import Tensor

from invint import Cyclic
from invint.nn import make_head
from invint.ops.tensors import KEPT, SMALL, constant


def test_small_constants_are_computed_once_and_large_ones_every_time() -> None:
    calls: list[int] = []

    @constant
    def zeros(count: int) -> Tensor:
        calls.append(count)
        return torch.zeros(count, dtype=torch.uint8)

    assert zeros(SMALL) is zeros(SMALL)
    assert zeros(SMALL + 1) is not zeros(SMALL + 1)
    assert calls == [SMALL, SMALL + 1, SMALL + 1]
    for count in range(KEPT):
        zeros(count)
    zeros(0)
    assert len(calls) == 3 + KEPT  # the first of these is still known
    zeros(SMALL)
    assert len(calls) == 4 + KEPT  # and what came before is not


def test_large_tables_are_freed_with_their_heads() -> None:
    def large() -> int:
        gc.collect()
        tensors = (each for each in gc.get_objects() if issubclass(type(each), Tensor))
        return sum(each.nbytes for each in tensors if each.nbytes > SMALL)

    before = large()
    head = make_head("attention", channels=2, size=14, group=Cyclic(8))
    assert large() - before > 2**20
    del head
    assert large() == before
