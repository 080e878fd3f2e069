import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor

from invint import ConfigError, Cyclic, Dihedral
from invint.nn import MonomialIntegration, Monomials
from invint.nn.monomials import default_distance
from invint.ops.monomial import Sampling


def test_monomials_are_drawn_as_asked() -> None:
    generator = torch.Generator().manual_seed(3)
    monomials = Monomials.random(200, max_distance=4, generator=generator)
    again = Monomials.random(200, max_distance=4, generator=torch.Generator().manual_seed(3))
    assert monomials == again
    distances, exponents = (
        torch.tensor(table) for table in (monomials.distances, monomials.exponents)
    )
    assert (distances[:, 0] == 0).all()
    assert set(distances[:, 1:].flatten().tolist()) == {1.0, 2.0, 3.0, 4.0}
    assert exponents.min() >= 0
    assert exponents.max() <= 1
    assert exponents.mean().item() == pytest.approx(0.5, abs=0.05)
    assert not torch.tensor(monomials.angles).any()


def test_own_angles_are_drawn_on_request() -> None:
    angles = torch.tensor(Monomials.random(99, max_distance=4, own_angles=True).angles)
    assert angles.max() > 5
    assert angles.max() < 2 * math.pi


def test_exponents_are_drawn_from_a_range_on_request() -> None:
    wide, unit = (
        Monomials.random(
            200, max_distance=4, exponents=exponents, generator=torch.Generator().manual_seed(3)
        )
        for exponents in ((0.5, 4.0), (0.0, 1.0))
    )
    assert (wide.distances, wide.angles) == (unit.distances, unit.angles)
    expected = 0.5 + 3.5 * torch.tensor(unit.exponents)
    torch.testing.assert_close(torch.tensor(wide.exponents), expected)
    head = MonomialIntegration(1, 5, Cyclic(4), monomials=200, exponents=[0.5, 4.0])
    assert head.exponents.max() > 1.5
    assert head.exponents.sum(1).max() <= 4 + 1e-6


@pytest.mark.parametrize("exponents", [(2.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (1.0,)])
def test_refuses_ranges_that_are_none(exponents: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match=r"exponents must be the lowest and the highest, .*, got"):
        MonomialIntegration(1, 5, Cyclic(4), exponents=exponents)


def scale_free_head(**options: Any) -> MonomialIntegration:
    return MonomialIntegration(2, 5, Cyclic(8), scale_free=True, **options).double()


def test_scale_free_monomials_are_those_of_the_map_at_scale_one() -> None:
    head = scale_free_head()
    plain = MonomialIntegration(2, 5, Cyclic(8), monomials=head.monomials).double()
    x = torch.randn(3, 2, 5, 5, dtype=torch.float64) * torch.tensor([0.01, 50.0])[:, None, None]
    for image, channel in itertools.product(range(3), range(2)):
        positive = [max(value, 0.0) for value in x[image, channel].flatten().tolist()]
        scale = math.sqrt(sum(value**2 for value in positive) / len(positive))
        expected = plain(x[image : image + 1] / scale).view(2, -1)[channel] * scale
        found = head(x)[image].view(2, -1)[channel]
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("factor", [0.01, 0.1, 30.0])
def test_what_scale_free_monomials_see_does_not_depend_on_the_scale(factor: float) -> None:
    """The floor of the others washes out small maps."""
    head = scale_free_head()
    plain = MonomialIntegration(2, 5, Cyclic(8), monomials=head.monomials).double()
    x = torch.rand(2, 2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(head(factor * x), factor * head(x), rtol=1e-6, atol=0)
    assert (plain(factor * x) / (factor * plain(x)) - 1).abs().max() > 0.1


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e4])
def test_scale_free_gradients_are_finite_everywhere(value: float) -> None:
    head = scale_free_head().float()
    x = torch.full((1, 2, 5, 5), value)
    x[0, 0, 2, 2] = 1.0
    out = head(x.requires_grad_())
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() < 100


def test_survivors_and_others_stay_scale_free() -> None:
    head = scale_free_head(monomials=9)
    x = torch.rand(2, 2, 5, 5, dtype=torch.float64)
    kept = rearrange(head(x), "b (c m) -> b c m", c=2)[:, :, [7, 0]].flatten(1)
    torch.testing.assert_close(head.keep([7, 0])(x), kept, rtol=1e-12, atol=0)
    assert "scale_free=True" in repr(head)


def test_small_groups_bound_the_exponents() -> None:
    for _ in range(20):
        head = MonomialIntegration(1, 5, Cyclic(1), monomials=20)
        assert head.exponents.sum(1).max() <= 1 + 1e-6


def test_monomials_go_through_json() -> None:
    monomials = Monomials.random(3, max_distance=4, own_angles=True)
    assert Monomials.from_dict(json.loads(json.dumps(monomials.to_dict()))) == monomials


def test_the_default_distance_follows_the_map() -> None:
    assert [default_distance((side, side)) for side in (1, 2, 7, 8, 24)] == [1, 1, 3, 4, 9]


def test_given_monomials_are_the_ones_used() -> None:
    monomials = Monomials(((0, 2),), ((0, 0),), ((1, 0.5),))
    head = MonomialIntegration(3, 7, Cyclic(8), monomials=monomials)
    assert head.monomials == monomials
    assert head.out_features == 3
    assert "monomials=1, factors=2" in repr(head)


@pytest.mark.parametrize("own_angles", [False, True])
def test_survivors_keep_their_features(own_angles: bool) -> None:
    head = MonomialIntegration(3, 7, Cyclic(8), monomials=9, own_angles=own_angles).eval()
    with torch.no_grad():
        head.exponents.sub_(0.4)  # training may make exponents negative
    x = torch.randn(2, 3, 7, 7)
    kept = head.keep([7, 0, 4])
    assert not kept.training
    assert len(kept.monomials) == 3
    expected = rearrange(head(x), "b (c m) -> b c m", c=3)[:, :, [7, 0, 4]].flatten(1)
    torch.testing.assert_close(kept(x), expected)


def test_survivors_keep_precision_floor_and_frozen_exponents() -> None:
    head = MonomialIntegration(3, 7, Cyclic(8), monomials=9, floor=0.3).double()
    with torch.no_grad():
        head.exponents.mul_(torch.rand(9, 3, dtype=torch.float64))
    head.requires_grad_(False)
    kept = head.keep([7, 0, 4])
    x = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    expected = rearrange(head(x), "b (c m) -> b c m", c=3)[:, :, [7, 0, 4]].flatten(1)
    torch.testing.assert_close(kept(x), expected, rtol=1e-13, atol=0)
    assert not kept.exponents.requires_grad


def test_monomials_are_replaced() -> None:
    head = MonomialIntegration(3, 7, Cyclic(8), monomials=9, floor=0.3).eval()
    monomials = Monomials(((0, 2),), ((0, 0),), ((1, 0.5),))
    other = head.with_monomials(monomials)
    assert other.monomials == monomials
    assert (other.floor, other.training, other.out_features) == (0.3, False, 3)
    with pytest.raises(ConfigError, match="exponents must not be negative"):
        head.with_monomials(Monomials(((0, 2),), ((0, 0),), ((1, -0.5),)))


@pytest.mark.parametrize("number", [9, -1, True])
def test_refuses_to_keep_what_is_not_there(number: int) -> None:
    with pytest.raises(ConfigError, match=r"there is no monomial .*; the last one is 8"):
        MonomialIntegration(3, 7, Cyclic(8), monomials=9).keep([number])


def test_a_large_batch_of_extreme_values_has_finite_gradients() -> None:
    monomials = Monomials(((0, 1),), ((0, 0),), ((16.0, 0.0),))
    head = MonomialIntegration(64, 5, Cyclic(16), monomials=monomials)
    x = torch.full((64, 64, 5, 5), 1e4, requires_grad=True)
    head(x).sum().backward()
    assert head.exponents.grad is not None
    assert x.grad is not None
    assert head.exponents.grad.isfinite().all()
    assert x.grad.isfinite().all()


def test_a_batch_of_many_blocks_is_as_good_as_its_parts() -> None:
    """Blocks share memory: what one leaves there must not reach the next."""
    head = MonomialIntegration(3, 7, Cyclic(8), monomials=20).double()
    x = torch.randn(400, 3, 7, 7, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(400, head.out_features, dtype=torch.float64)
    whole = head(x)
    parts = torch.cat([head(x[start : start + 33]) for start in range(0, 400, 33)])
    torch.testing.assert_close(whole, parts, rtol=1e-12, atol=0)
    leaves = x, head.exponents
    found = [torch.autograd.grad((out * weight).sum(), leaves) for out in (whole, parts)]
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("exponents", "background", "bright"),
    [
        (((-60.0, 0.0),), 0.0, 1e3),  # large where the map is dark
        (((10.0, 0.0),), 0.0, 1e4),  # one pixel of many
        (((30.0, 0.0), (0.5, 0.5)), 1.0, 1e4),  # one monomial of two
    ],
)
def test_what_exceeds_the_bound_anywhere_is_cut(
    exponents: tuple[tuple[float, ...], ...], background: float, bright: float
) -> None:
    count = len(exponents)
    monomials = Monomials(((0, 1),) * count, ((0, 0),) * count, exponents)
    head = MonomialIntegration(1, 5, Cyclic(4), monomials=monomials, check_exponents=False)
    x = torch.full((1, 1, 5, 5), background)
    x[..., 2, 2] = bright
    exact = head(x)
    head(x.requires_grad_()).sum().backward()
    assert exact[0, 0] > 1e31
    assert exact.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_the_bound_leaves_room_for_sums_over_large_maps() -> None:
    monomials = Monomials(((0, 1),), ((0, 0),), ((30.0, 0.0),))
    head = MonomialIntegration(1, 224, Cyclic(16), monomials=monomials, check_exponents=False)
    out = head(torch.full((1, 1, 224, 224), 1e4))
    assert 1e31 < out.item() < float("inf")


def test_a_nan_in_the_map_is_not_hidden() -> None:
    x = torch.ones(2, 1, 5, 5)
    x[0, 0, 2, 2] = float("nan")
    out = MonomialIntegration(1, 5, Cyclic(4), monomials=3)(x)
    assert out[0].isnan().all()
    assert out[1].isfinite().all()


def test_negative_values_have_no_gradient() -> None:
    head = MonomialIntegration(1, 5, Cyclic(4), monomials=3)
    x = torch.randn(2, 1, 5, 5, requires_grad=True)
    head(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, x > 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_copy_in_another_precision_samples_where_a_loaded_one_does(dtype: torch.dtype) -> None:
    head = MonomialIntegration(2, 7, Cyclic(8), monomials=5, own_angles=True).to(dtype)
    fresh = MonomialIntegration(2, 7, Cyclic(8), monomials=5, own_angles=True).to(dtype)
    fresh.load_state_dict(head.state_dict())
    x = torch.rand(2, 2, 7, 7).to(dtype)
    for twin in (fresh, head.keep(range(5))):
        assert torch.equal(twin(x), head(x))


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    head, large = (
        MonomialIntegration(1, size, Cyclic(4), max_distance=reach)
        for size, reach in ((5, 4), (20, 9))
    )
    before, x = head.monomials, torch.rand(1, 1, 5, 5)
    expected = head(x)
    with pytest.raises(ConfigError, match="a distance of 9 does not fit a map of 5 x 5"):
        head.load_state_dict(large.state_dict())
    assert head.monomials == before
    assert torch.equal(head(x), expected)


def test_a_map_of_one_pixel_takes_one_factor() -> None:
    with pytest.raises(ConfigError, match="a map of 1 x 1 has no distances; use factors=1"):
        MonomialIntegration(2, 1, Cyclic(4))
    assert MonomialIntegration(2, 1, Cyclic(4), factors=1)(torch.rand(3, 2, 1, 1)).shape == (3, 20)


def test_loading_replaces_the_monomials() -> None:
    head, other = (MonomialIntegration(2, 7, Cyclic(8), monomials=5) for _ in range(2))
    x = torch.randn(2, 2, 7, 7)
    assert not torch.equal(head(x), other(x))
    other.load_state_dict(head.state_dict())
    assert other.monomials == head.monomials
    assert torch.equal(head(x), other(x))


def test_a_mirror_along_the_ray_costs_nothing() -> None:
    ray, mirrored = (
        MonomialIntegration(1, 7, group, monomials=3) for group in (Cyclic(8), Dihedral(8))
    )
    offsets = (len(head.get_buffer("shifts")) + 1 for head in (ray, mirrored))
    points = (len(head.get_buffer("pixels")) for head in (ray, mirrored))
    assert [n / d for n, d in zip(points, offsets, strict=True)] == [8 * 49, 8 * 49]


def kept_for_backward(
    head: MonomialIntegration, x: Tensor, call: Callable[[Tensor], Tensor]
) -> int:
    """Count the bytes autograd keeps, besides what the module holds anyway."""
    owned = {t.untyped_storage().data_ptr() for t in (*head.parameters(), *head.buffers())}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call(x)
    return sum(found.values())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.unchecked)])
@pytest.mark.parametrize("own_angles", [False, True])
def test_what_backward_keeps_does_not_grow_with_the_monomials(
    compiled: bool, own_angles: bool
) -> None:
    torch.compiler.reset()
    x = torch.randn(8, 16, 7, 7, requires_grad=True)
    kept = []
    for count in (5, 50):
        head = MonomialIntegration(16, 7, Cyclic(16), monomials=count, own_angles=own_angles)
        # as inductor divides a graph into forward and backward, but without its compiling
        backend = "aot_eager_decomp_partition"
        call = torch.compile(head, backend=backend, fullgraph=True) if compiled else head
        kept.append(kept_for_backward(head, x, call))
    assert kept == [x.numel() * 4] * 2  # the map


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_operator_keeps_to_the_rules_of_the_compiler(channels_last: bool) -> None:
    head = MonomialIntegration(3, (5, 4), Cyclic(8), monomials=2)
    x = torch.rand(2, 3, 5, 4)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    sampling = (head.get_buffer(name) for name in Sampling._fields)
    offsets, whole, reach = head.plan
    tensors = x.requires_grad_(), head.exponents, head.numbers, *sampling
    found = torch.library.opcheck(
        torch.ops.invint.monomial_average.default, (*tensors, list(offsets), whole, reach, 0.1)
    )
    assert set(found.values()) == {"SUCCESS"}


def test_whole_moves_come_first_among_the_shifts() -> None:
    head = MonomialIntegration(1, 7, Cyclic(16), monomials=9)
    assert head.plan.whole == 4
    assert head.plan.reach == 3
    parts = head.get_buffer("shifts")[..., 1:]
    assert not parts[:, :4].any()
    assert parts[:, 4:].any(dim=-1).all()


@pytest.mark.parametrize("group", [Cyclic(4), Cyclic(16)], ids=str)
@pytest.mark.parametrize("value", [0.0, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("corner", ["zero", "first", "spread"])
def test_extreme_values_and_exponents_stay_finite(group: Cyclic, value: float, corner: str) -> None:
    order = float(group.order)
    exponents = {"zero": (0.0, 0.0), "first": (order, 0.0), "spread": (order / 2, order / 2)}
    monomials = Monomials(((0, 1),), ((0, 0),), (exponents[corner],))
    head = MonomialIntegration(1, 5, group, monomials=monomials)
    x = torch.full((1, 1, 5, 5), value, requires_grad=True)
    out = head(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert head.exponents.grad is not None
    assert x.grad.isfinite().all()
    assert head.exponents.grad.isfinite().all()
    exact = MonomialIntegration(1, 5, group, monomials=monomials).double()(x.double().detach())
    if exact.max() < math.exp(75):  # below the bound
        torch.testing.assert_close(out, exact.float(), rtol=1e-4, atol=0)
    else:
        assert out.item() > 1e32


def test_the_floor_bounds_the_gradient() -> None:
    monomials = Monomials(((0,),), ((0,),), ((0.5,),))
    x = torch.full((1, 1, 3, 3), 1e-9, requires_grad=True)
    MonomialIntegration(1, 3, Cyclic(4), monomials=monomials, floor=0.1)(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.sum().item(), 0.5 * 0.1**-0.5, rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (((), (), ()), "Monomials: the set is empty"),
        ((((),), ((),), ((),)), "Monomials: the set is empty"),
        ((((0, 1),), ((0,),), ((1, 1),)), "Monomials: expected tables of one shape, got rows of"),
        ((((0, 1), (0,)),) * 3, "Monomials: expected tables of one shape, got rows of"),
        ((((1, 2),), ((0, 0),), ((1, 1),)), r"distances start at 0 and are not negative, got \(1"),
        ((((0, -2),), ((0, 0),), ((1, 1),)), r"distances start at 0 and are not negative, got \(0"),
        ((((0, math.nan),), ((0, 0),), ((1, 1),)), r"distances start at 0 and are not negative"),
    ],
)
def test_says_what_is_wrong_with_a_set(
    tables: tuple[tuple[tuple[float, ...], ...], ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Monomials(*tables)


def test_says_what_is_wrong_with_a_file() -> None:
    with pytest.raises(ConfigError, match="Monomials: not a set of monomials"):
        Monomials.from_dict({"distances": [[0]]})
    with pytest.raises(ConfigError, match="Monomials: not a set of monomials"):
        Monomials.from_dict({"distances": [0], "angles": [0], "exponents": [1]})


@pytest.mark.parametrize(
    ("exponents", "message"),
    [
        ((1.0, -0.5), r"exponents must not be negative, got \(1.0, -0.5\)"),
        ((3.0, 2.0), r"exponents must not add up to more than the order of C4, 4, got \(3.0, 2.0"),
    ],
)
def test_refuses_exponents_outside_the_bound(exponents: tuple[float, ...], message: str) -> None:
    monomials = Monomials(((0, 1),), ((0, 0),), (exponents,))
    with pytest.raises(ConfigError, match=message):
        MonomialIntegration(1, 5, Cyclic(4), monomials=monomials)


def test_refuses_a_distance_that_does_not_fit() -> None:
    monomials = Monomials(((0, 7),), ((0, 0),), ((1, 1),))
    with pytest.raises(ConfigError, match="a distance of 7 does not fit a map of 7 x 9; use at m"):
        MonomialIntegration(1, (7, 9), Cyclic(4), monomials=monomials)


def test_refuses_options_that_would_be_ignored() -> None:
    monomials = Monomials(((0, 1),), ((0, 0),), ((1, 1),))
    with pytest.raises(ConfigError, match="describe random monomials; with given ones, leave"):
        MonomialIntegration(1, 5, Cyclic(4), monomials=monomials, own_angles=True)
    with pytest.raises(ConfigError, match="own_angles and exponents describe random monomials; wi"):
        MonomialIntegration(1, 5, Cyclic(4), monomials=monomials, exponents=(0.0, 2.0))
    with pytest.raises(ConfigError, match="max_distance must be at least 1, got 10, 3 and 0"):
        MonomialIntegration(1, 5, Cyclic(4), max_distance=0)


def test_refuses_to_keep_nothing() -> None:
    with pytest.raises(ConfigError, match="Monomials: the set is empty"):
        MonomialIntegration(1, 5, Cyclic(4)).keep([])
