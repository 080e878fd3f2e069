"""Compiled layers: one graph, the same numbers."""

import pytest
import torch
from torch import nn

from invint import Cyclic, Dihedral, Group
from invint.nn import GroupBatchNorm, GroupConv2d, GroupDropout, GroupPool, LiftConv2d, SpatialPool

pytestmark = [pytest.mark.unchecked, pytest.mark.slow]


def network(group: Group) -> nn.Sequential:
    return nn.Sequential(
        LiftConv2d(1, 2, 5, group, bias=True),
        GroupBatchNorm(2),
        nn.ReLU(),
        SpatialPool("max"),
        GroupDropout(0.0),
        GroupConv2d(2, 3, 3, group),
        SpatialPool("mean"),
        GroupPool("max"),
    )


def assert_same(backend: str, group: Group) -> None:
    torch.compiler.reset()
    model = network(group).double()
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x = torch.randn(3, 1, 10, 11, dtype=torch.float64)
    compiled(x).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    model.zero_grad()
    model(x).square().sum().backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)
    model.eval()
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4), Cyclic(1)], ids=str)
def test_compiles_to_one_graph(group: Group) -> None:
    assert_same("aot_eager", group)


def test_compiles_with_inductor() -> None:
    assert_same("inductor", Dihedral(4))


@pytest.mark.gpu
def test_compiles_on_a_gpu_under_autocast() -> None:
    model = network(Cyclic(8)).cuda().eval()
    x = torch.randn(3, 1, 10, 11, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        compiled = torch.compile(model, fullgraph=True, options={"comprehensive_padding": False})
        torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.02)
