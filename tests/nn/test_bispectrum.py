"""The bispectrum in the place of group pooling."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from invint import Cyclic, Dihedral, Group, ShapeError
from invint.nn import GroupBatchNorm, GroupBispectrum, GroupPool, LiftConv2d
from invint.ops.bispectrum import group_bispectrum
from invint.testing import assert_equivariant

GROUPS = [Cyclic(1), Cyclic(4), Cyclic(6), Cyclic(16), Dihedral(1), Dihedral(4)]
each_group = pytest.mark.parametrize("group", GROUPS, ids=str)


def layer_and_map(group: Group) -> tuple[GroupBispectrum, Tensor]:
    layer = GroupBispectrum(3, group).double()
    return layer, torch.randn(2, 3, group.order, 5, 6, dtype=torch.float64)


@each_group
def test_it_leaves_a_map_that_turns(group: Group) -> None:
    layer, x = layer_and_map(group)
    assert layer(x).shape == (2, 3, 5, 6)
    assert_equivariant(layer, x, group)


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4)], ids=str)
def test_it_turns_with_images(group: Group) -> None:
    model = nn.Sequential(
        LiftConv2d(1, 4, 5, group), GroupBatchNorm(4), nn.ReLU(), GroupBispectrum(4, group)
    ).double()
    assert_equivariant(model, torch.randn(2, 1, 9, 9, dtype=torch.float64), group)


def test_it_is_the_mixed_invariants_of_every_channel() -> None:
    layer, x = layer_and_map(Dihedral(4))
    numbers = group_bispectrum(x, layer.waves)
    expected = torch.zeros(2, 3, 5, 6, dtype=torch.float64)
    for out in range(3):
        for channel in range(3):
            for k in range(numbers.shape[2]):
                expected[:, out] += layer.weight[out, channel, k] * numbers[:, channel, k]
    torch.testing.assert_close(layer(x), expected)
    assert "3, group=D4, invariants=10" in repr(layer)


def test_it_begins_as_the_mean_where_orientations_are_alike() -> None:
    layer, _ = layer_and_map(Cyclic(8))
    x = torch.randn(2, 3, 1, 5, 6, dtype=torch.float64).expand(-1, -1, 8, -1, -1)
    torch.testing.assert_close(layer(x), GroupPool("mean")(x))


def test_it_sees_what_pooling_does_not() -> None:
    """The same responses in another order are no moved copy."""
    x = torch.rand(1, 3, 8, 5, 6, dtype=torch.float64)
    swapped = x[:, :, [1, 0, 2, 3, 4, 5, 6, 7]]
    for pool in (GroupPool("max"), GroupPool("mean")):
        torch.testing.assert_close(pool(swapped), pool(x))
    layer = GroupBispectrum(3, Cyclic(8)).double()
    assert (layer(swapped) - layer(x)).abs().max() > 0.01


def test_gradients() -> None:
    layer, x = layer_and_map(Cyclic(4))
    assert torch.autograd.gradcheck(
        lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, (x,)),
        (x[:1, :, :, :2, :2].clone().requires_grad_(), layer.weight),
    )


def test_state_copies_and_pickles() -> None:
    layer, x = layer_and_map(Dihedral(4))
    assert list(layer.train().state_dict()) == list(layer.eval().state_dict()) == ["weight"]
    fresh, _ = layer_and_map(Dihedral(4))
    fresh.load_state_dict(layer.state_dict())
    for twin in (fresh, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))


def test_autocast_computes_in_float32() -> None:
    layer, x = layer_and_map(Cyclic(8))
    layer, x = layer.float(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, layer(x.float()))
    assert layer.half()(x.half()).dtype == torch.float16


@pytest.mark.parametrize("value", [0.0, 1e4])
def test_flat_maps_give_finite_features_and_gradients(value: float) -> None:
    layer = GroupBispectrum(3, Dihedral(8))
    x = torch.full((2, 3, 16, 4, 4), value, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    torch.testing.assert_close(out, x.mean(2), rtol=1e-4, atol=0)
    for tensor in (x, layer.weight):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_a_nan_stays_at_its_pixel_and_is_not_hidden() -> None:
    x = torch.randn(1, 3, 8, 4, 4)
    x[0, 0, 2, 1, 1] = float("nan")
    out = GroupBispectrum(3, Cyclic(8))(x)
    assert out[..., 1, 1].isnan().all()
    assert out.isnan().sum() == 3


def test_shapes_are_known_without_data_and_of_empty_batches() -> None:
    layer, x = layer_and_map(Cyclic(8))
    assert layer(x[:0]).shape == (0, 3, 5, 6)
    assert layer.to("meta")(x.to("meta")).shape == (2, 3, 5, 6)


@pytest.mark.unchecked
def test_says_which_axis_is_wrong() -> None:
    layer = GroupBispectrum(3, Cyclic(8))
    message = "GroupBispectrum: expected g=8, the order of C8, got g=4; build it with the group of"
    with pytest.raises(ShapeError, match=message):
        layer(torch.zeros(1, 3, 4, 5, 5))
    with pytest.raises(ShapeError, match="GroupBispectrum: expected c=3, got c=2"):
        layer(torch.zeros(1, 2, 8, 5, 5))
    with pytest.raises(ShapeError, match="GroupBispectrum: expected 5 axes, got 4"):
        layer(torch.zeros(1, 3, 5, 5))


@pytest.mark.unchecked
@pytest.mark.slow
def test_compiles_to_one_graph_and_exports_with_an_open_batch() -> None:
    torch.compiler.reset()
    layer, x = layer_and_map(Dihedral(4))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    exported = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    more = torch.randn(5, *x.shape[1:], dtype=torch.float64)
    torch.testing.assert_close(exported.module()(more), layer(more))
