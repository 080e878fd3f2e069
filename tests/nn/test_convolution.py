import copy
import itertools
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from invint import ConfigError, Cyclic, Dihedral, Group, ShapeError
from invint.nn import GroupConv2d, LiftConv2d
from invint.ops.steerable import Rings
from invint.testing import assert_equivariant

NUMBERS = [1, 2, 3, 4, 6, 8, 12, 16]
GROUPS = [kind(n) for kind in (Cyclic, Dihedral) for n in NUMBERS]
SIDES = [(8, 8), (9, 9), (7, 10)]
DTYPES = [torch.float32, torch.float64]


def lift(group: Group, dtype: torch.dtype = torch.float64, kernel_size: int = 5) -> LiftConv2d:
    layer = LiftConv2d(2, 3, kernel_size, group, bias=True).to(dtype)
    nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    return layer


def on_group(group: Group, dtype: torch.dtype = torch.float64, kernel_size: int = 5) -> GroupConv2d:
    layer = GroupConv2d(2, 3, kernel_size, group, bias=True).to(dtype)
    nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    return layer


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES, ids=str)
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_moving_the_image_moves_the_features(
    group: Group, side: tuple[int, int], dtype: torch.dtype
) -> None:
    assert_equivariant(lift(group, dtype), torch.randn(1, 2, *side, dtype=dtype), group)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", SIDES, ids=str)
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_moving_features_moves_features(
    group: Group, side: tuple[int, int], dtype: torch.dtype
) -> None:
    x = torch.randn(1, 2, group.order, *side, dtype=dtype)
    assert_equivariant(on_group(group, dtype), x, group)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_strides_that_fit_the_grid_keep_it_exact(stride: int, padding: int) -> None:
    side = 4 * stride + 5 - 2 * padding  # the last window ends at the edge
    layer = GroupConv2d(2, 3, 5, Dihedral(4), stride=stride, padding=padding).double()
    x = torch.randn(1, 2, 8, side, side, dtype=torch.float64)
    assert layer(x).shape == (1, 3, 8, 5, 5)
    assert_equivariant(layer, x, Dihedral(4))


@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(3), Cyclic(8), Dihedral(3)], ids=str)
def test_matches_the_definition(group: Group) -> None:
    layer = on_group(group, kernel_size=3)
    x = torch.randn(2, 2, group.order, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), response_by_loops(layer, x))
    first = lift(group, kernel_size=3)
    image = torch.randn(2, 2, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(first(image), response_by_loops(first, image[:, :, None]))


def response_by_loops(layer: GroupConv2d | LiftConv2d, x: Tensor) -> Tensor:
    """Sum w[o, c, g⁻¹h, q] · (β[g, q] correlated with x[c, h]), term by term."""
    out_channels, in_channels, in_order, functions = layer.weight.shape
    order = layer.group.order
    out = torch.zeros(len(x), out_channels, order, *x.shape[-2:], dtype=x.dtype)
    for o, g, c, h, q in itertools.product(
        range(out_channels), range(order), range(in_channels), range(in_order), range(functions)
    ):
        at = 0 if layer.lifts else layer.group.quotients[g][h]
        kernel = layer.basis[g, q][None, None]
        out[:, o, g] += (
            layer.weight[o, c, at, q] * conv2d(x[:, c, h, None], kernel, padding=1)[:, 0]
        )
    return out + layer.bias[:, None, None, None]  # type: ignore[index]


@pytest.mark.parametrize("group", [Cyclic(3), Dihedral(2)], ids=str)
def test_gradients(group: Group) -> None:
    layer = GroupConv2d(1, 2, 3, group, bias=True).double()
    x = torch.randn(1, 1, group.order, 4, 4, dtype=torch.float64, requires_grad=True)

    def respond(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        parameters = {"weight": weight, "bias": bias}
        out: Tensor = torch.func.functional_call(layer, parameters, (x,))
        return out

    assert torch.autograd.gradcheck(respond, (x, *layer.parameters()))


def test_an_index_that_is_not_shifted_is_caught() -> None:
    layer = on_group(Cyclic(8))
    layer.quotients = torch.arange(8).expand(8, 8)
    with pytest.raises(AssertionError, match=r"off by .* under a turn by 90°"):
        assert_equivariant(layer, torch.randn(1, 2, 8, 9, 9, dtype=torch.float64), Cyclic(8))


def test_a_basis_that_is_not_turned_is_caught() -> None:
    for layer, shape in ((on_group(Cyclic(8)), (1, 2, 8, 9, 9)), (lift(Cyclic(8)), (1, 2, 9, 9))):
        layer.basis = layer.basis[:1].expand_as(layer.basis)
        with pytest.raises(AssertionError, match=r"off by .* under a turn by 90°"):
            assert_equivariant(layer, torch.randn(*shape, dtype=torch.float64), Cyclic(8))


def test_a_sine_that_is_not_mirrored_is_caught() -> None:
    layer = on_group(Dihedral(4))
    layer.basis = layer.basis[:4].repeat(2, 1, 1, 1)
    with pytest.raises(AssertionError, match=r"off by .* under a mirror and a turn by 0°"):
        assert_equivariant(layer, torch.randn(1, 2, 8, 9, 9, dtype=torch.float64), Dihedral(4))


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_the_folded_layer_is_an_ordinary_one_that_computes_the_same(group: Group) -> None:
    first, second = lift(group).eval(), on_group(group)
    x = torch.randn(2, 2, 7, 7, dtype=torch.float64)
    folded = first.fold()
    assert type(folded) is nn.Conv2d
    assert not folded.training
    torch.testing.assert_close(folded(x), first(x).flatten(1, 2), rtol=1e-14, atol=0)
    features = torch.randn(2, 2, group.order, 7, 7, dtype=torch.float64)
    out = second.fold()(features.flatten(1, 2))
    torch.testing.assert_close(out, second(features).flatten(1, 2), rtol=1e-14, atol=0)


def test_the_folded_layer_keeps_stride_padding_and_missing_bias() -> None:
    layer = GroupConv2d(2, 3, 5, Cyclic(4), stride=2, padding=0)
    x = torch.randn(1, 2, 4, 9, 9)
    assert layer.fold().bias is None
    torch.testing.assert_close(layer.fold()(x.flatten(1, 2)), layer(x).flatten(1, 2))


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4), Cyclic(1)], ids=str)
@pytest.mark.parametrize("kernel_size", [1, 3, 7])
def test_initial_weights_keep_the_variance_of_white_noise(group: Group, kernel_size: int) -> None:
    variances = []
    for _ in range(10):
        layer = GroupConv2d(8, 16, kernel_size, group, padding=0)  # interior only
        variances.append(layer(torch.randn(4, 8, group.order, 16, 16)).var())
        first = LiftConv2d(8, 64, kernel_size, group, padding=0)
        variances.append(first(torch.randn(4, 8, 16, 16)).var())
    assert torch.stack(variances[::2]).mean().item() == pytest.approx(1, abs=0.05)
    assert torch.stack(variances[1::2]).mean().item() == pytest.approx(1, abs=0.05)


def test_state_is_the_same_in_both_modes() -> None:
    layer = GroupConv2d(2, 3, kernel_size=3, group=Cyclic(4))
    assert list(layer.train().state_dict()) == list(layer.eval().state_dict()) == ["weight"]


def test_copies_and_pickles_compute_the_same() -> None:
    layer, x = on_group(Dihedral(3)), torch.randn(1, 2, 6, 5, 5, dtype=torch.float64)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))
    fresh = on_group(Dihedral(3))
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(fresh(x), layer(x))


def test_layers_do_not_share_their_buffers() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        first, second = (GroupConv2d(1, 1, 3, Cyclic(4)) for _ in range(2))
    finally:
        torch.set_default_dtype(torch.float32)
    assert first.basis.dtype == torch.float64
    first.basis.zero_()
    assert second.basis.abs().sum() > 0


def test_bfloat16_autocast_stays_equivariant_and_near() -> None:
    layer, x = lift(Cyclic(8), torch.float32), torch.randn(2, 2, 9, 9)
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
        assert out.dtype == torch.bfloat16
        # Rounding of the inputs commutes with moving; sums differ by their order alone.
        assert_equivariant(layer, x, Cyclic(8), rounding=2.0)
    error = (out - layer(x)).norm() / layer(x).norm()
    assert error < 0.01  # three roundings of 2⁻⁹


def test_channels_last_gives_the_same() -> None:
    layer, x = lift(Cyclic(8)), torch.randn(2, 2, 9, 9, dtype=torch.float64)
    out = layer(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(out, layer(x))
    group, features = on_group(Cyclic(8)), torch.randn(2, 2, 8, 9, 9, dtype=torch.float64)
    out = group(features.to(memory_format=torch.channels_last_3d))
    torch.testing.assert_close(out, group(features))


@pytest.mark.unchecked
@pytest.mark.slow
@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(2)], ids=str)
def test_exports(group: Group) -> None:
    model = nn.Sequential(lift(group), GroupConv2d(3, 2, 3, group).double())
    x = torch.randn(2, 2, 8, 8, dtype=torch.float64)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    more = torch.randn(5, 2, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(exported.module()(more), model(more))


def test_layers_are_built_without_memory_on_the_meta_device() -> None:
    with torch.device("meta"):
        layer = GroupConv2d(2, 3, 5, Cyclic(8))
    assert layer.basis.is_meta
    again = GroupConv2d(2, 3, 5, Cyclic(8))
    assert not again.basis.is_meta  # nothing of it stays behind


def test_rings_are_an_argument() -> None:
    rings = Rings(band_limits=(0, 1), widths=(0.5, 0.5))
    layer = GroupConv2d(2, 3, 5, Cyclic(8), rings=rings)
    assert layer.weight.shape == (3, 2, 8, 4)
    assert "n_F=3 (4 real functions)" in repr(layer)
    assert_equivariant(layer, torch.randn(1, 2, 8, 6, 6), Cyclic(8))


@pytest.mark.parametrize("layer", [LiftConv2d, GroupConv2d])
@pytest.mark.parametrize("size", [0, 2, 4])
def test_refuses_filters_without_a_centre(
    layer: type[LiftConv2d] | type[GroupConv2d], size: int
) -> None:
    message = rf"{layer.__name__}: kernel_size must be odd, .* got {size}; use .* or {size + 1}"
    with pytest.raises(ConfigError, match=message):
        layer(1, 1, size, Cyclic(4))


@pytest.mark.parametrize(
    ("argument", "least"), [("in_channels", 1), ("out_channels", 1), ("stride", 1), ("padding", 0)]
)
def test_refuses_numbers_that_are_too_small(argument: str, least: int) -> None:
    arguments = {"in_channels": 1, "out_channels": 1, "kernel_size": 3} | {argument: least - 1}
    message = f"LiftConv2d: {argument} must be at least {least}, got {least - 1}"
    with pytest.raises(ConfigError, match=message):
        LiftConv2d(**arguments, group=Cyclic(4))  # type: ignore[arg-type]


@pytest.mark.unchecked
def test_says_which_axis_is_wrong() -> None:
    layer = GroupConv2d(2, 3, kernel_size=3, group=Cyclic(8))
    with pytest.raises(ShapeError, match=r"GroupConv2d: expected g=8, got g=4 \(axes: b c g h w"):
        layer(torch.zeros(1, 2, 4, 9, 9))
    with pytest.raises(ShapeError, match=r"GroupConv2d: expected c=2, got c=5 \(axes: b c g h w"):
        layer(torch.zeros(1, 5, 8, 9, 9))
    with pytest.raises(ShapeError, match=r"GroupConv2d: expected 5 axes, got 4 \(axes: b c g h w"):
        layer(torch.zeros(1, 2, 9, 9))
    first = LiftConv2d(2, 3, kernel_size=3, group=Cyclic(8))
    with pytest.raises(ShapeError, match=r"LiftConv2d: expected c=2, got c=3 \(axes: b c h w"):
        first(torch.zeros(1, 3, 9, 9))
    with pytest.raises(ShapeError, match=r"LiftConv2d: expected a float tensor, got torch.uint8"):
        first(torch.zeros(1, 2, 9, 9, dtype=torch.uint8))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (31, 32), (32, 31)])
def test_refuses_a_stride_that_breaks_the_symmetry(height: int, width: int) -> None:
    layer = GroupConv2d(1, 1, 3, Cyclic(4), stride=2)
    message = (
        rf"GroupConv2d: stride 2 with kernel 3 and padding 1 on {height} x {width} pixels breaks "
        "the symmetry of the grid; pool first, then convolve with stride 1"
    )
    with pytest.raises(ShapeError, match=message):
        layer(torch.zeros(1, 1, 4, height, width))


def test_refuses_images_smaller_than_the_filter() -> None:
    layer = LiftConv2d(1, 1, 7, Cyclic(4), padding=0)
    with pytest.raises(ShapeError, match=r"LiftConv2d: 5 x 9 pixels with padding 0 are too few"):
        layer(torch.zeros(1, 1, 5, 9))


def test_a_group_without_symmetry_may_stride_anywhere() -> None:
    assert LiftConv2d(1, 1, 3, Cyclic(1), stride=2)(torch.zeros(1, 1, 32, 32)).shape[-1] == 16
