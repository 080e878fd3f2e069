"""What each head can and cannot tell apart: the statements of docs/theory/integration.md."""

import itertools
import math
from typing import Literal

import pytest
import torch
from einops import rearrange
from patterns import (
    CHANNELS,
    HOOK,
    ON_GROUP,
    PAIRS,
    SIDE,
    VARIANTS,
    Pair,
    crosses,
    crossing,
    difference,
    edges,
    random_head,
    stack,
)
from torch import Tensor

from invint import Cyclic, Dihedral, Group
from invint.nn import (
    GeneralisedMean,
    GlobalPool,
    GlobalWeightedSum,
    GroupBispectrum,
    GroupPool,
    LocalWeightedSum,
    MLPIntegration,
    MonomialIntegration,
    Monomials,
    SelfAttentionIntegration,
    SteerableIntegration,
)
from invint.ops.grids import averaged_rotation, permute_grid

EQUAL, APART = 1e-12, 1e-9  # rounding is near 1e-15; nothing here falls in between
RAYS, OWN = "monomials, ray", "monomials, own angles"
GROUPS = [Cyclic(4), Cyclic(8), Cyclic(16)]
SEEN_BY = {
    "angle": {RAYS, OWN, "mlp", "attention"},
    "radius": {"global-ws", RAYS, OWN, "mlp", "attention"},
    "moved": {"global-ws", "attention"},
    "far": {"attention"},
    "mirror": {OWN, "mlp", "attention"},
    "channels": {"mlp", "attention"},
}
CASES = [  # whether factors in directions of their own reach far enough is a matter of the draw
    case for case in itertools.product(PAIRS, VARIANTS) if case != ("far", OWN)
]
pytestmark = pytest.mark.usefixtures("double_precision")
each_group = pytest.mark.parametrize("group", GROUPS, ids=str)


def assert_equal(first: Tensor, second: Tensor) -> None:
    __tracebackhide__ = True
    torch.testing.assert_close(first, second, rtol=EQUAL, atol=EQUAL)


def assert_apart(first: Tensor, second: Tensor) -> None:
    __tracebackhide__ = True
    assert (first - second).norm() > APART * first.norm()


def inside(x: Tensor, border: int) -> Tensor:
    """Put a map into the middle of a larger one, with zeros around it."""
    return torch.nn.functional.pad(x, (border,) * 4)


def shuffled(x: Tensor) -> Tensor:
    """Deal the pixels of every channel to other places."""
    flat = x.flatten(-2)
    order = torch.rand(flat.shape).argsort(-1)
    return flat.gather(-1, order).view_as(x)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_alike_to_pooling_and_not_turned_copies(name: str) -> None:
    pair = PAIRS[name]
    torch.testing.assert_close(pair.first.mean((2, 3)), pair.second.mean((2, 3)))
    assert torch.equal(pair.first.amax((2, 3)), pair.second.amax((2, 3)))
    for x in (pair.first, pair.second):
        assert x.count_nonzero() == x[..., 1:-1, 1:-1].count_nonzero()
    for turns in range(4):
        assert not torch.equal(pair.first.rot90(turns, (2, 3)), pair.second)
    assert 0 < len(SEEN_BY[name]) < len(VARIANTS)  # some head sees it, some head does not


@each_group
@pytest.mark.parametrize(("name", "variant"), CASES)
def test_heads_see_what_the_page_says(name: str, variant: str, group: Group) -> None:
    found = difference(random_head(VARIANTS[variant], group, seed=0), PAIRS[name])
    if variant in SEEN_BY[name]:
        assert found > APART
    else:
        assert found < EQUAL


@each_group
@pytest.mark.parametrize("variant", VARIANTS)
def test_turned_copies_are_never_told_apart(variant: str, group: Group) -> None:
    turned = Pair(stack(HOOK), stack(HOOK.rot90()), "a quarter turn")
    assert difference(random_head(VARIANTS[variant], group, seed=0), turned) < EQUAL


@pytest.mark.parametrize("variant", [OWN, "mlp", "attention"])
@pytest.mark.parametrize("n", [4, 8])
def test_reflections_in_the_group_make_mirror_images_alike(variant: str, n: int) -> None:
    rotations, all_symmetries = (
        difference(random_head(VARIANTS[variant], group, seed=0), PAIRS["mirror"])
        for group in (Cyclic(n), Dihedral(n))
    )
    assert rotations > APART
    assert all_symmetries < EQUAL


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 16])
def test_a_ray_has_no_handedness_and_own_angles_have(n: int) -> None:
    x = torch.randn(2, 3, 9, 9)
    mirrored = x.flip(-2)  # y → -y: the ray at angle 0 stays, the others trade places
    ray, own, own_mirrored = (
        MonomialIntegration(3, 9, group, own_angles=own_angles)
        for group, own_angles in [(Cyclic(n), False), (Cyclic(n), True), (Dihedral(n), True)]
    )
    assert_equal(ray(x), ray(mirrored))
    assert_apart(own(x), own(mirrored))
    assert_equal(own_mirrored(x), own_mirrored(mirrored))


@pytest.mark.parametrize("n", [3, 5])
def test_other_mirrors_are_seen_on_rays_where_the_group_lacks_the_half_turn(n: int) -> None:
    x = torch.randn(2, 3, 9, 9)
    head = MonomialIntegration(3, 9, Cyclic(n))
    assert_apart(head(x), head(x.flip(-1)))


@each_group
def test_monomials_see_no_farther_than_they_reach(group: Group) -> None:
    short, long = (
        Monomials(distances=((0, reach),), angles=((0, 0),), exponents=((0.5, 0.7),))
        for reach in (4, 10)
    )
    heads = [MonomialIntegration(CHANNELS, SIDE, group, monomials=m) for m in (short, long)]
    found = [difference(head, PAIRS["far"]) for head in heads]
    assert found[0] < EQUAL
    assert found[1] > APART


@each_group
def test_a_perceptron_sees_no_farther_than_its_neighbourhood(group: Group) -> None:
    heads = [MLPIntegration(CHANNELS, SIDE, group, kernel_size=size) for size in (3, 11)]
    found = [difference(head, PAIRS["far"]) for head in heads]
    assert found[0] < EQUAL
    assert found[1] > APART


@pytest.mark.parametrize("name", ["angle", "radius"])
def test_attention_sees_places_only_through_its_codes(name: str) -> None:
    head = SelfAttentionIntegration(CHANNELS, SIDE, Cyclic(4))  # quarter turns only move tokens
    assert difference(head, PAIRS[name]) > APART
    torch.nn.init.zeros_(head.codes)
    assert difference(head, PAIRS[name]) < EQUAL


@each_group
@pytest.mark.parametrize("name", PAIRS)
def test_global_sums_see_the_averaged_map_and_nothing_else(name: str, group: Group) -> None:
    head = GlobalWeightedSum(CHANNELS, SIDE, group)
    first, second = (x.flatten(2) @ head.average for x in PAIRS[name][:2])
    same = torch.allclose(first, second, rtol=EQUAL, atol=EQUAL)
    assert (difference(head, PAIRS[name]) < EQUAL) == same
    assert same == ("global-ws" not in SEEN_BY[name])


@each_group
def test_global_sums_do_not_see_pixels_turned_one_by_one(group: Group) -> None:
    x = torch.rand(1, 3, 8, 8)
    turns = torch.randint(4, (4, 4))  # a quarter turn of its own for every orbit of four pixels
    moved = x.clone()
    for row, column in itertools.product(range(4), repeat=2):
        one = torch.zeros(8, 8)
        one[row, column] = 1.0
        orbit = sum(one.rot90(i) for i in range(4)) > 0
        moved[..., orbit] = x.rot90(int(turns[row, column]), (2, 3))[..., orbit]
    head, monomials = GlobalWeightedSum(3, 8, group), MonomialIntegration(3, 8, group)
    assert_equal(head(x), head(moved))
    assert_apart(monomials(x), monomials(moved))


def test_global_sums_tell_mirror_images_apart_off_the_axes() -> None:
    """Four rotations leave waves of frequency 4 in the average, and these have a handedness."""
    x = torch.zeros(1, 1, 7, 7)
    x[..., 2, 5] = 1.0  # two pixels right, one up: its mirror image is another orbit
    for group in GROUPS:
        head = GlobalWeightedSum(1, 7, group)
        assert_apart(head(x), head(x.flip(-2)))


@each_group
@pytest.mark.parametrize("kernel_size", [3, 5])
def test_away_from_the_border_local_sums_are_a_matrix_times_the_mean(
    group: Group, kernel_size: int
) -> None:
    head = LocalWeightedSum(3, 11, group, kernel_size=kernel_size)
    monomials = MonomialIntegration(3, 11, group)
    x = inside(torch.randn(2, 3, 7, 7), 2)
    total = averaged_rotation(group, kernel_size, kernel_size, kernel_size).sum(0)
    matrix = (head.weight @ total).T  # the sum of the averaged kernel, c by o
    assert_equal(head(x), GlobalPool(3, "mean")(x) @ matrix)
    other = inside(shuffled(x[..., 2:-2, 2:-2]), 2)
    assert_equal(head(x), head(other))
    assert_apart(monomials(x), monomials(other))


@each_group
def test_at_the_border_local_sums_see_two_more_numbers(group: Group) -> None:
    """Per channel: the sum of the map, that of its border lines, and that of its corners."""
    head = LocalWeightedSum(3, (7, 8), group)
    x = torch.randn(2, 3, 7, 8)
    other = x.clone()
    other[..., 1:-1, 1:-1] = shuffled(x[..., 1:-1, 1:-1])
    other[..., 0, 1:-1] = shuffled(x[..., [0], 1:-1])[..., 0, :]
    other[..., [0, -1], [0, -1]] = x[..., [-1, 0], [-1, 0]]
    assert_equal(head(x), head(other))
    other[..., 0, 1], other[..., 1, 1] = x[..., 1, 1], x[..., 0, 1]  # across the border
    assert_apart(head(x), head(other))
    corner = x.clone()
    corner[..., 0, 0], corner[..., 0, 1] = x[..., 0, 1], x[..., 0, 0]  # along it, into the corner
    assert_apart(head(x), head(corner))


@pytest.mark.parametrize(
    ("group", "size", "rank"),
    [
        *((Cyclic(n), 3, 3) for n in (4, 8, 12, 16)),
        *((Cyclic(n), 3, 5) for n in (2, 6, 10)),
        *((Cyclic(n), 3, 9) for n in (1, 3, 5, 7)),
        *((Dihedral(n), 3, 3) for n in (4, 8, 16)),
        (Dihedral(2), 3, 4),
        (Dihedral(3), 3, 6),
        (Cyclic(4), 5, 7),
        (Cyclic(8), 5, 7),
        (Dihedral(8), 5, 6),
    ],
    ids=str,
)
def test_the_averaged_kernel_has_a_number_for_every_orbit_of_its_pixels(
    group: Group, size: int, rank: int
) -> None:
    average = averaged_rotation(group, size, size, size)
    assert torch.linalg.matrix_rank(average, rtol=1e-10) == rank
    pixels = torch.arange(size**2).view(size, size)
    moved = [permute_grid(pixels, s.quarter_turns, s.flip) for s in group.grid_symmetries]
    lowest = torch.stack(moved).amin(0)  # the number of its orbit, at every pixel
    assert len(set(lowest.flatten().tolist())) == rank


@pytest.mark.parametrize("group", [*GROUPS, Dihedral(4)], ids=str)
def test_steerable_integration_sees_means_over_quarter_turned_elements(group: Group) -> None:
    head = SteerableIntegration(2, 13, group)  # filters of side 7: a border of 3
    pool, monomials = GroupPool("max"), MonomialIntegration(2, 13, group)
    classes = group.n // 4  # elements that differ by a quarter turn, or by a mirror and one
    x = torch.rand(1, 2, group.order, 7, 7)
    dealt = shuffled(rearrange(x, "b c (e k) h w -> b c k (e h) w", k=classes))
    other = rearrange(dealt, "b c k (e h) w -> b c (e k) h w", h=7)
    x, other = inside(x, 3), inside(other, 3)
    assert_equal(head(x), head(other))
    assert_apart(monomials(pool(x)), monomials(pool(other)))
    assert_apart(head(x), head(x.roll(3, dims=-1)))  # now it touches the border


def test_all_monomials_up_to_the_order_of_the_group_separate_all_patterns() -> None:
    """Noether's bound at work: C4 on 2 x 2 pixels of three values has 24 different patterns."""
    patterns = torch.tensor(list(itertools.product((0.0, 1.0, 2.0), repeat=4))).view(-1, 2, 2)
    orbit = torch.stack([patterns.rot90(turns, (1, 2)) for turns in range(4)])  # g n 2 2
    found = [distinct(orbit.flatten(2), degree) for degree in range(1, 5)]
    assert found[-1] == 24
    assert found[0] < found[1] < 24  # lower degrees do not suffice


def distinct(orbit: Tensor, degree: int) -> int:
    """Count the patterns that group averages of all monomials up to a degree can tell apart."""
    features = [
        orbit.pow(torch.tensor(exponents)).prod(-1).mean(0)
        for exponents in itertools.product(range(degree + 1), repeat=4)
        if sum(exponents) <= degree
    ]
    assert len(features) == math.comb(4 + degree, degree)
    return len(set(map(tuple, torch.stack(features, dim=1).round(decimals=9).tolist())))


@each_group
def test_two_factors_see_mirror_images_unless_their_directions_are_mirrored_too(
    group: Cyclic,
) -> None:
    x = torch.rand(1, 1, 9, 9)
    mirrored = x.flip(-2)
    for angle, sees in ((0.3, True), (math.pi / group.n, False), (2 * math.pi / group.n, False)):
        monomials = Monomials(((0, 3),), ((0, angle),), ((0.7, 0.4),))
        head = MonomialIntegration(1, 9, group, monomials=monomials)
        gap = (head(x) - head(mirrored)).norm() / head(x).norm()
        assert (gap > 1e-5) if sees else (gap < 1e-9)  # offsets are rounded to nine decimals


def test_a_perceptron_is_proportional_to_its_input() -> None:
    head, x = MLPIntegration(3, 7, Cyclic(8)), torch.randn(2, 3, 7, 7)
    assert_equal(head(2 * x), 2 * head(x))


@each_group
@pytest.mark.parametrize("kind", ["power", "exp"])
def test_generalised_means_begin_blind_to_places_and_learn_to_see_neighbourhoods(
    kind: Literal["power", "exp"], group: Group
) -> None:
    head = GeneralisedMean(CHANNELS, SIDE, group, kind, degree=3.0)
    x = torch.randn(1, CHANNELS, SIDE, SIDE)
    assert_equal(head(shuffled(x)), head(x))
    torch.nn.init.normal_(head.weight)
    seen = {name for name, pair in PAIRS.items() if difference(head, pair) > APART}
    assert seen == {"angle", "radius", "mirror", "channels"} == SEEN_BY_MLP
    assert all(difference(head, PAIRS[name]) < EQUAL for name in PAIRS.keys() - seen)


SEEN_BY_MLP = {name for name, heads in SEEN_BY.items() if "mlp" in heads}


@pytest.mark.parametrize("group", [Cyclic(4), Dihedral(4)], ids=str)
def test_low_degrees_are_a_perceptron_and_a_weighted_sum(group: Group) -> None:
    x = torch.randn(2, CHANNELS, 7, 7)
    powers, exponentials = (
        GeneralisedMean(CHANNELS, 7, group, kind, degree=2.0) for kind in ("power", "exp")
    )
    perceptron = MLPIntegration(CHANNELS, 7, group, layers=1)
    sums = LocalWeightedSum(CHANNELS, 7, group)
    for head, other in ((powers, perceptron.weights[0]), (exponentials, sums.weight)):
        head.level.data.fill_(-20)
        head.weight.data = other.data
    torch.testing.assert_close(powers(x), perceptron(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(exponentials(x), sums(x), rtol=1e-4, atol=1e-4)


def test_the_bispectrum_tells_a_corner_from_its_mirror_image_and_pooling_does_not() -> None:
    corner, mirrored = torch.zeros(2, 1, 1, 8, 1, 1)
    corner[:, :, [0, 1, 3]], mirrored[:, :, [0, 2, 3]] = 1.0, 1.0
    for kind in ("max", "mean"):
        assert_equal(GroupPool(kind)(corner), GroupPool(kind)(mirrored))
    layer = GroupBispectrum(1, Cyclic(8))
    assert_apart(layer(corner), layer(mirrored))


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4)], ids=str)
def test_the_bispectrum_sees_pixels_and_channels_one_by_one(group: Group) -> None:
    layer, x = GroupBispectrum(CHANNELS, group), torch.randn(1, CHANNELS, 8, 7, 7)
    moved = x[:, :, list(group.quotients[3])]
    pixel, channel = x.clone(), x.clone()
    pixel[..., 2, 4], channel[:, 1] = moved[..., 2, 4], moved[:, 1]
    for other in (pixel, channel):
        assert_apart(x, other)
        assert_equal(layer(other), layer(x))


def test_without_a_first_frequency_the_bispectrum_is_not_complete() -> None:
    layer = GroupBispectrum(1, Cyclic(8))
    first, second = torch.tensor([[1.0, 2.0, 4.0, 5.0], [1.0, 4.0, 2.0, 5.0]]).repeat(1, 2)
    shape = (1, 1, 8, 1, 1)
    assert_equal(layer(first.view(shape)), layer(second.view(shape)))


@pytest.mark.parametrize("group", [*GROUPS, Dihedral(4)], ids=str)
def test_two_images_have_one_map_after_group_pooling(group: Group) -> None:
    first, second = crosses()
    for moved in (first, first.rot90(1, (2, 3)), first.rot90(2, (2, 3)), first.flip(2)):
        assert not torch.equal(moved, second)
    before = [edges(image, group, seed=0) for image in (first, second)]
    assert_apart(*before)
    assert_equal(before[0].amax(2), before[1].amax(2))


@pytest.mark.parametrize("group", [*GROUPS, Dihedral(4)], ids=str)
@pytest.mark.parametrize("name", [*VARIANTS, *ON_GROUP])
def test_joint_heads_alone_see_a_cross_that_is_turned(name: str, group: Group) -> None:
    variant = (VARIANTS | ON_GROUP)[name]
    found = difference(random_head(variant, group, seed=0), crossing(variant, group, seed=0))
    assert found > APART if name.startswith("joint") else found < EQUAL
