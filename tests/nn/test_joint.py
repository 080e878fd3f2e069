"""Heads on the map before group pooling: the formulas, what they see, what they refuse."""

import copy
import itertools
import math
import pickle
from typing import Any

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn

from invint import ConfigError, Cyclic, Dihedral, Group, ShapeError
from invint.nn import (
    GroupBatchNorm,
    GroupConv2d,
    JointMLPIntegration,
    JointMonomialIntegration,
    JointWeightedSum,
    LiftConv2d,
    make_head,
)
from invint.nn.joint import Place
from invint.ops.grids import bilinear_taps, moved_points
from invint.testing import assert_invariant, move

JOINT = ["joint-monomials", "joint-ws", "joint-mlp"]
each_joint = pytest.mark.parametrize("name", JOINT)
each_group = pytest.mark.parametrize("group", [Cyclic(3), Cyclic(8), Dihedral(4)], ids=str)


def product(group: Group, g: int, h: int) -> int:
    """Return the number of gh: the k with g⁻¹k = h."""
    return group.quotients[g].index(h)


def sample(plane: Tensor, row: int, column: int, offset: Tensor) -> Tensor:
    """Read a plane at a point beside a pixel, bilinearly and with zeros outside."""
    height, width = plane.shape
    pixel = torch.tensor([column - (width - 1) / 2, (height - 1) / 2 - row], dtype=torch.float64)
    (pixels,), (shares,) = bilinear_taps((pixel + offset)[None], height, width)
    value: Tensor = shares @ plane.flatten()[pixels]
    return value


def monomials_by_loops(head: JointMonomialIntegration, x: Tensor) -> Tensor:
    """Write out the mean in the docstring of the head, term by term, for one image."""
    group = head.group
    total = torch.zeros(head.channels, len(head.exponents), dtype=x.dtype)
    for c, g, row, column in itertools.product(*map(range, x.shape)):
        for m, powers in enumerate(head.exponents):
            value = torch.ones((), dtype=x.dtype)
            for number, power in zip(head.numbers[m].tolist(), powers, strict=True):
                place = head.places[number]
                offset = torch.tensor([[place.x, place.y]], dtype=torch.float64)
                (moved,) = moved_points(offset, group.elements[g])
                plane = x[c, product(group, g, place.element)].clamp_min(0)
                value = value * (sample(plane, row, column, moved) + head.floor) ** power
            total[c, m] += value
    return total.flatten() / x[0].numel()


@pytest.mark.usefixtures("double_precision")
@each_group
def test_monomials_match_the_formula(group: Group) -> None:
    head = JointMonomialIntegration(2, (3, 4), group, monomials=2, exponents=(0.5, 2.0))
    x = torch.randn(1, 2, group.order, 3, 4)
    torch.testing.assert_close(head(x)[0], monomials_by_loops(head, x[0]), rtol=1e-10, atol=1e-12)


def perceptron_by_loops(head: JointMLPIntegration, x: Tensor) -> Tensor:
    """Write out the mean in the docstring of the head, term by term, for one image."""
    layer = head.convolution
    channels, order, height, width = x.shape
    reach = layer.kernel_size // 2
    total = torch.zeros(channels, dtype=x.dtype)
    for g, row, column in itertools.product(range(order), range(height), range(width)):
        z = torch.zeros(channels, dtype=x.dtype)
        taps = itertools.product(range(-reach, reach + 1), repeat=2)
        for (down, right), c, h in itertools.product(taps, range(channels), range(order)):
            if 0 <= row + down < height and 0 <= column + right < width:
                weights = layer.weight[c, 0, head.group.quotients[g][h]]
                kernel = (weights * layer.basis[g, :, down + reach, right + reach]).sum()
                z[c] += kernel * x[c, h, row + down, column + right]
        for weight in head.weights:
            z = (weight @ z).clamp_min(0)
        total += z
    return total / (order * height * width)


@pytest.mark.usefixtures("double_precision")
@each_group
@pytest.mark.parametrize("kind", [JointWeightedSum, JointMLPIntegration])
def test_perceptrons_match_the_formula(kind: type[JointMLPIntegration], group: Group) -> None:
    head = kind(2, (3, 4), group)
    x = torch.randn(1, 2, group.order, 3, 4)
    torch.testing.assert_close(head(x)[0], perceptron_by_loops(head, x[0]), rtol=1e-10, atol=1e-12)


def network(head: nn.Module, group: Group) -> nn.Sequential:
    return nn.Sequential(
        LiftConv2d(1, 4, 5, group), GroupBatchNorm(4), nn.ReLU(), GroupConv2d(4, 3, 3, group), head
    )


@each_joint
@pytest.mark.parametrize(
    ("group", "size"),
    [(Cyclic(4), (7, 7)), (Cyclic(8), (6, 6)), (Cyclic(16), (5, 8)), (Dihedral(4), (6, 9))],
    ids=str,
)
def test_features_stay_as_the_image_turns(name: str, group: Group, size: tuple[int, int]) -> None:
    head = make_head(name, channels=3, size=size, group=group)
    model = network(head, group).double()
    images = torch.randn(2, 1, *size, dtype=torch.float64)
    model(images)  # leaves statistics behind
    still = model.eval()(images)
    for symmetry in group.grid_symmetries:
        turned = model(move(images, group, symmetry))
        torch.testing.assert_close(turned, still, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double_precision")
@each_joint
@pytest.mark.parametrize("n", [3, 4, 8])
def test_handedness_is_seen_unless_the_group_has_mirrors(name: str, n: int) -> None:
    """The mirror image of a map on rotations has the response of each at the inverse one."""
    x = torch.randn(2, 3, n, 7, 7)
    mirrored = x.flip(-2)[:, :, [-g % n for g in range(n)]]
    head = make_head(name, channels=3, size=7, group=Cyclic(n))
    difference = (head(x) - head(mirrored)).norm() / head(x).norm()
    assert difference > 1e-3
    both = make_head(name, channels=3, size=7, group=Dihedral(n))
    x = torch.randn(2, 3, 2 * n, 7, 7)
    (mirror,) = [each for each in Dihedral(n).grid_symmetries if each.element == n]
    torch.testing.assert_close(both(move(x, Dihedral(n), mirror)), both(x), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double_precision")
@each_joint
def test_which_orientation_is_where_is_seen_and_pooling_forgets_it(name: str) -> None:
    """One element is turned by itself: each pixel keeps its strongest and its mean response."""
    x = torch.rand(1, 3, 4, 7, 7)
    changed = x.clone()
    changed[:, :, :, 2:5, 2:5] = x[:, :, [1, 2, 3, 0], 2:5, 2:5]
    assert torch.equal(changed.amax(2), x.amax(2))
    torch.testing.assert_close(changed.mean(2), x.mean(2))
    head = make_head(name, channels=3, size=7, group=Cyclic(4))
    assert (head(x) - head(changed)).norm() > 1e-4 * head(x).norm()


def test_pixels_that_turn_without_their_elements_make_another_map() -> None:
    head = JointMonomialIntegration(2, 5, Cyclic(4), exponents=(1.0, 2.0))
    x = torch.rand(1, 2, 4, 5, 5)
    torch.testing.assert_close(head(move(x, Cyclic(4), Cyclic(4).grid_symmetries[1])), head(x))
    assert (head(x.rot90(dims=(-2, -1))) - head(x)).abs().max() > 1e-3


def test_places_follow_from_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first = JointMonomialIntegration(2, 9, Cyclic(8), seed=1)
    torch.set_rng_state(state)
    again = JointMonomialIntegration(5, 9, Cyclic(8), seed=1)
    assert first.places == again.places
    assert torch.equal(first.numbers, again.numbers)
    assert torch.equal(first.exponents, again.exponents)  # the seed draws nothing from torch
    torch.set_rng_state(state)
    other = JointMonomialIntegration(2, 9, Cyclic(8), seed=2)
    assert other.places != first.places
    assert torch.equal(first.exponents, other.exponents)


def test_factors_share_a_few_places_within_reach() -> None:
    head = JointMonomialIntegration(2, 9, Cyclic(8), monomials=50, max_distance=2, places=5)
    assert head.places[0] == Place(0, 0, 0)
    assert len(set(head.places)) == 6
    assert all(math.hypot(place.x, place.y) <= 2 for place in head.places)
    assert (head.numbers[:, 0] == 0).all()
    assert all(len(set(row)) == 3 for row in head.numbers.tolist())
    assert len(head.get_buffer("shifts")) == 5
    every = JointMonomialIntegration(2, 9, Cyclic(8), monomials=50, places=0)
    assert len(every.places) > 60
    assert "places=5, floor=0.1, scale_free=False, across=False" in repr(head)


@pytest.mark.parametrize(("group", "expected"), [(Cyclic(4), 1), (Cyclic(8), 4)], ids=str)
def test_quarter_turns_read_whole_pixels(group: Group, expected: int) -> None:
    head = JointMonomialIntegration(1, 7, group)
    taps = head.get_buffer("shares").ne(0).sum(dim=1)
    assert taps.max() == expected
    quarter = rearrange(taps, "(g n) -> g n", g=group.order)[:: group.n // 4]
    assert quarter.max() == 1


def test_a_map_of_one_pixel_has_places_in_other_orientations() -> None:
    head = JointMonomialIntegration(2, 1, Cyclic(4))
    assert head(torch.rand(3, 2, 4, 1, 1)).shape == (3, 20)
    assert {place.element for place in head.places} == {0, 1, 2, 3}
    lone = JointMonomialIntegration(2, 1, Cyclic(1), factors=1)
    assert lone(torch.rand(3, 2, 1, 1, 1)).shape == (3, 20)


def test_exponents_are_drawn_from_their_range() -> None:
    exponents = JointMonomialIntegration(1, 5, Cyclic(4), monomials=99, exponents=(1, 3)).exponents
    assert 1 <= exponents.min() < 1.2
    assert 2.8 < exponents.max() <= 3


@pytest.mark.usefixtures("double_precision")
def test_products_go_across_channels_on_request() -> None:
    """Turning one channel by itself changes no product within channels."""
    group = Cyclic(4)
    x = torch.rand(1, 2, 4, 7, 7)
    quarter = group.grid_symmetries[1]
    turned = torch.cat([x[:, :1], move(x[:, 1:], group, quarter)], dim=1)
    apart, across = (
        JointMonomialIntegration(2, 7, group, across=across) for across in (False, True)
    )
    torch.testing.assert_close(apart(turned), apart(x), rtol=1e-10, atol=0)
    assert (across(turned) - across(x)).norm() > 1e-4 * across(x).norm()
    assert [name for name, _ in across.named_parameters()] == ["exponents", "mixing"]
    assert_invariant(across, torch.randn(2, 2, 4, 7, 7), group)
    assert torch.autograd.gradcheck(across, (x.requires_grad_(),))


@pytest.mark.usefixtures("double_precision")
def test_scale_free_monomials_are_those_of_the_map_at_scale_one() -> None:
    torch.manual_seed(0)
    free = JointMonomialIntegration(2, 5, Dihedral(4), scale_free=True)
    torch.manual_seed(0)
    plain = JointMonomialIntegration(2, 5, Dihedral(4))
    x = torch.randn(3, 2, 8, 5, 5) * torch.tensor([0.01, 50.0])[:, None, None, None]
    scales = torch.tensor([[each.clamp_min(0).square().mean().sqrt() for each in y] for y in x])
    expected = plain(x / scales[..., None, None, None]).view(3, 2, 10) * scales[..., None]
    torch.testing.assert_close(free(x).view(3, 2, 10), expected, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(free(0.1 * x), 0.1 * free(x), rtol=1e-6, atol=0)
    torch.testing.assert_close(free(x[:1]), free(x)[:1], rtol=1e-12, atol=0)  # by itself
    assert_invariant(free, x, Dihedral(4))


@pytest.mark.parametrize("value", [0.0, 1e-9, 1e4])
def test_scale_free_gradients_are_finite_everywhere(value: float) -> None:
    head = JointMonomialIntegration(2, 5, Cyclic(8), scale_free=True)
    x = torch.full((1, 2, 8, 5, 5), value)
    x[0, 0, 1, 2, 2] = 1.0
    out = head(x.requires_grad_())
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("options", [{"across": True}, {"scale_free": True}, {"places": 0}])
def test_every_kind_of_monomials_copies_and_pickles(options: dict[str, Any]) -> None:
    head, fresh = (
        make_head("joint-monomials", channels=3, size=6, group=Cyclic(8), **options)
        for _ in range(2)
    )
    x = torch.rand(2, 3, 8, 6, 6)
    head(x)
    head.eval()
    fresh.eval().load_state_dict(head.state_dict())
    for twin in (copy.deepcopy(head), pickle.loads(pickle.dumps(head)), fresh):
        assert torch.equal(twin(x), head(x))


@each_joint
def test_a_nan_in_the_map_is_not_hidden(name: str) -> None:
    x = torch.ones(2, 1, 4, 5, 5)
    x[0, 0, 2, 2, 2] = float("nan")
    out = make_head(name, channels=1, size=5, group=Cyclic(4))(x)
    assert out[0].isnan().all()
    assert out[1].isfinite().all()


def test_negative_values_have_no_gradient() -> None:
    head = JointMonomialIntegration(1, 5, Cyclic(4))
    x = torch.randn(2, 1, 4, 5, 5, requires_grad=True)
    head(x).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad != 0, x > 0)


def test_values_beyond_the_bound_stay_finite() -> None:
    head = JointMonomialIntegration(1, 5, Cyclic(4), exponents=(10.0, 10.0))
    x = torch.full((1, 1, 4, 5, 5), 1e4, requires_grad=True)
    out = head(x)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_backward_keeps_the_map_alone() -> None:
    head = JointMonomialIntegration(4, 7, Cyclic(8), monomials=20)
    x = torch.rand(2, 4, 8, 7, 7, requires_grad=True)
    owned = {t.untyped_storage().data_ptr() for t in (*head.parameters(), *head.buffers())}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in owned:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        head(x)
    assert sum(found.values()) == x.numel() * 4


@pytest.mark.unchecked
@each_joint
def test_says_that_the_group_axis_has_another_length(name: str) -> None:
    head = make_head(name, channels=2, size=(5, 6), group=Cyclic(4))
    with pytest.raises(ShapeError, match=r"Joint\w+: expected g=4, got g=8 \(axes: b c g h w"):
        head(torch.zeros(1, 2, 8, 5, 6))
    with pytest.raises(ShapeError, match=r"Joint\w+: expected 5 axes, got 4"):
        head(torch.zeros(1, 2, 5, 6))


def test_a_map_on_its_side_turns_its_elements_too() -> None:
    head = JointMonomialIntegration(2, (5, 6), Dihedral(4)).double()
    x = torch.rand(1, 2, 8, 5, 6, dtype=torch.float64)
    side = move(x, Dihedral(4), Dihedral(4).grid_symmetries[1])
    assert side.shape[-2:] == (6, 5)
    torch.testing.assert_close(head(side), head(x), rtol=1e-12, atol=0)
    with pytest.raises(ShapeError, match="JointMonomialIntegration: expected w=6, got w=5"):
        head(torch.zeros(1, 2, 8, 5, 5))
    with pytest.raises(ShapeError, match="JointMonomialIntegration: expected h=5, got h=6"):
        JointMonomialIntegration(2, (5, 6), Cyclic(2))(torch.zeros(1, 2, 2, 6, 5))


@pytest.mark.parametrize("name", ["joint-ws", "joint-mlp"])
def test_maps_smaller_than_the_filter_are_refused(name: str) -> None:
    head = make_head(name, channels=2, size=6, group=Cyclic(4), kernel_size=5)
    with pytest.raises(
        ShapeError, match=r"Joint\w+: expected a map of at least 5 x 5, .*, got 4 x"
    ):
        head(torch.zeros(1, 2, 4, 4, 6))
    small = make_head(name, channels=2, size=2, group=Cyclic(4))
    assert small(torch.rand(1, 2, 4, 2, 2)).shape == (1, 2)  # by default the filter fits


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("joint-ws", {"kernel_size": 7}, "JointWeightedSum: a kernel of 7 does not fit a map of 6"),
        ("joint-mlp", {"kernel_size": 2}, "JointMLPIntegration: kernel_size must be odd and at"),
        ("joint-mlp", {"layers": 0}, "JointMLPIntegration: layers must be at least 1, got 0"),
        ("joint-monomials", {"monomials": 0}, "monomials and factors must be at least 1, got 0 an"),
        ("joint-monomials", {"factors": 0}, "monomials and factors must be at least 1, got 10 and"),
        ("joint-monomials", {"floor": 0.0}, "Integration: floor must be positive and finite, got "),
        ("joint-monomials", {"exponents": (2, 1)}, r"exponents must be a range .*, got \(2, 1\)"),
        ("joint-monomials", {"exponents": (-1, 1)}, r"exponents must be a range .*, got \(-1, 1\)"),
        ("joint-monomials", {"max_distance": 6}, "a distance of 6 does not fit a map of 6 x 6; us"),
        ("joint-monomials", {"places": 1}, "places must be from 2, one less than the factors, to "),
        ("joint-monomials", {"places": 116}, "to 115, all in reach, or 0 for all, got 116"),
        ("joint-monomials", {"factors": 200}, "has 115 in reach; use factors=116 or less"),
    ],
)
def test_says_what_is_wrong_with_an_option(
    name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_head(name, channels=3, size=6, group=Cyclic(4), **options)


def test_says_that_a_map_has_no_other_place() -> None:
    message = "3 factors need 2 places beside the first, and a map of 1 x 1 has 0 in reach; use f"
    with pytest.raises(ConfigError, match=message):
        JointMonomialIntegration(2, 1, Cyclic(1))
