import pytest
import torch
from torch import Tensor

from invint import ConfigError, Cyclic, Dihedral, ShapeError
from invint.nn import GroupDropout, GroupPool, SpatialPool
from invint.testing import assert_equivariant


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_group_pooling_leaves_a_map_that_turns(kind: str) -> None:
    x = torch.randn(2, 3, 8, 6, 7, dtype=torch.float64)
    pool = GroupPool(kind)  # type: ignore[arg-type]
    torch.testing.assert_close(pool(x), x.max(2)[0] if kind == "max" else x.sum(2) / 8)
    assert_equivariant(pool, x, Dihedral(4))


@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("shape", [(1, 4), (28, 28), (30, 30), (31, 31), (33, 33), (30, 33)])
def test_halving_is_exact_on_every_size(kind: str, shape: tuple[int, int]) -> None:
    pool = SpatialPool(kind)  # type: ignore[arg-type]
    features = torch.randn(1, 2, 8, *shape, dtype=torch.float64)
    assert pool(features).shape == (1, 2, 8, (shape[0] + 1) // 2, (shape[1] + 1) // 2)
    assert_equivariant(pool, features, Dihedral(4))
    assert_equivariant(pool, torch.randn(1, 2, *shape, dtype=torch.float64), Cyclic(4))


@pytest.mark.parametrize("side", [6, 7])
def test_the_mean_is_over_pixels_and_not_over_padding(side: int) -> None:
    x = torch.randn(1, 1, side, side, dtype=torch.float64)
    pooled = SpatialPool("mean")(x)
    for row in range(pooled.shape[-2]):
        for column in range(pooled.shape[-1]):
            window = x[0, 0, span(row, side), span(column, side)]
            torch.testing.assert_close(pooled[0, 0, row, column], window.mean())


def span(i: int, side: int) -> slice:
    return slice(2 * i, 2 * i + 2) if side % 2 == 0 else slice(max(2 * i - 1, 0), 2 * i + 2)


def test_a_window_given_by_hand_is_exact_where_it_fits() -> None:
    x = torch.randn(1, 2, 4, 10, 10, dtype=torch.float64)
    pool = SpatialPool("max", kernel_size=3, stride=3, padding=1)
    assert pool(x).shape[-1] == 4
    assert_equivariant(pool, x, Cyclic(4))


@pytest.mark.parametrize(("kernel_size", "padding", "side"), [(2, 0, 7), (3, 1, 8), (3, 0, 8)])
def test_refuses_windows_that_break_the_symmetry(kernel_size: int, padding: int, side: int) -> None:
    pool = SpatialPool("max", kernel_size=kernel_size, padding=padding)
    message = (
        f"SpatialPool: stride 2 with kernel {kernel_size} and padding {padding} on {side} x {side} "
        "pixels breaks the symmetry of the grid; leave kernel_size out to halve any size exactly"
    )
    with pytest.raises(ShapeError, match=message):
        pool(torch.zeros(1, 1, 4, side, side))


def test_refuses_arguments_that_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="SpatialPool: stride 3 and padding 0 need a kernel_size"):
        SpatialPool(stride=3)
    with pytest.raises(ConfigError, match="padding must be between 0 and half of kernel_size 2"):
        SpatialPool(kernel_size=2, padding=2)
    with pytest.raises(ConfigError, match="stride and kernel_size must be at least 1, got 0 and 2"):
        SpatialPool(kernel_size=2, stride=0)
    with pytest.raises(ConfigError, match=r"GroupDropout: rate must lie between 0 and 1, got 1\.5"):
        GroupDropout(1.5)


@pytest.mark.unchecked
def test_refuses_unknown_kinds_and_wrong_axes() -> None:
    with pytest.raises(ConfigError, match="GroupPool: kind must be 'max' or 'mean', got 'sum'"):
        GroupPool("sum")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="GroupPool: expected 5 axes, got 4"):
        GroupPool()(torch.zeros(1, 2, 3, 4))
    with pytest.raises(ShapeError, match="SpatialPool: expected 4 axes, got 3"):
        SpatialPool()(torch.zeros(1, 2, 3))
    with pytest.raises(ShapeError, match=r"SpatialPool: expected a float tensor, got torch.int64"):
        SpatialPool()(torch.zeros(1, 2, 3, 4, dtype=torch.long))


def dropped(x: Tensor) -> Tensor:
    return (x == 0).flatten(2)


def test_dropout_drops_all_orientations_of_a_channel() -> None:
    x = torch.ones(64, 16, 8, 3, 3)
    layer = GroupDropout(0.25)
    zeros = dropped(layer(x))
    assert torch.equal(zeros.all(2), zeros.any(2))
    assert 0.15 < zeros.all(2).float().mean() < 0.35
    out = layer(x)
    torch.testing.assert_close(out[out != 0].unique(), torch.tensor([4 / 3]))
    assert torch.equal(layer.eval()(x), x)
