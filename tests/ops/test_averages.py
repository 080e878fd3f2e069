"""Every integrand against its formula, written out in loops over positions, elements and taps."""

import itertools
import math

import pytest
import torch
from einops import rearrange, reduce
from torch import Tensor

from invint import Cyclic, Dihedral, Group
from invint.groups import Element
from invint.nn import (
    GlobalWeightedSum,
    GroupConv2d,
    LocalWeightedSum,
    MLPIntegration,
    MonomialIntegration,
    SelfAttentionIntegration,
    SteerableIntegration,
)

GROUPS = [Cyclic(1), Cyclic(3), Cyclic(4), Cyclic(8), Dihedral(1), Dihedral(3), Dihedral(4)]
pytestmark = pytest.mark.usefixtures("double_precision")
each_group = pytest.mark.parametrize("group", GROUPS, ids=str)


def move(point: tuple[float, float], element: Element) -> tuple[float, float]:
    x, y = point[0], -point[1] if element.flip else point[1]
    cosine, sine = math.cos(element.angle), math.sin(element.angle)
    return cosine * x - sine * y, sine * x + cosine * y


def move_back(point: tuple[float, float], element: Element) -> tuple[float, float]:
    x, y = move(point, Element(-element.angle, False))
    return x, -y if element.flip else y


def sample(x: Tensor, column: float, row: float) -> Tensor:
    """Interpolate the last two axes bilinearly between pixels; zero outside."""
    out = torch.zeros(x.shape[:-2])
    for r, c in itertools.product(range(x.shape[-2]), range(x.shape[-1])):
        share = max(0.0, 1 - abs(row - r)) * max(0.0, 1 - abs(column - c))
        out = out + share * x[..., r, c]
    return out


def places(x: Tensor) -> list[tuple[int, int]]:
    """List (column, row) of every pixel."""
    return [(column, row) for row in range(x.shape[-2]) for column in range(x.shape[-1])]


@each_group
@pytest.mark.parametrize("own_angles", [False, True])
def test_monomials(group: Group, own_angles: bool) -> None:
    head = MonomialIntegration(2, (4, 5), group, monomials=3, own_angles=own_angles)
    x = torch.randn(2, 2, 4, 5)
    monomials = head.monomials
    expected = torch.zeros(2, 2, 3)
    for m, element, (u, v) in itertools.product(range(3), group.elements, places(x)):
        product = torch.ones(2, 2)
        for distance, angle, power in zip(
            monomials.distances[m], monomials.angles[m], monomials.exponents[m], strict=True
        ):
            offset = distance * math.cos(angle), distance * math.sin(angle)
            right, up = move(offset, element)
            product = product * (sample(x.relu(), u + right, v - up) + head.floor) ** power
        expected[:, :, m] += product / (group.order * 20)
    torch.testing.assert_close(head(x), expected.flatten(1))


@each_group
@pytest.mark.parametrize("kernel_size", [1, 3])
def test_local_weighted_sums(group: Group, kernel_size: int) -> None:
    head = LocalWeightedSum(2, (4, 5), group, kernel_size=kernel_size)
    x, half = torch.randn(2, 2, 4, 5), kernel_size // 2
    kernel = rearrange(head.weight, "o c (y x) -> o c y x", y=kernel_size)
    taps = list(itertools.product(range(-half, half + 1), repeat=2))
    expected = torch.zeros(2, 2)
    for element, (u, v), (right, up) in itertools.product(group.elements, places(x), taps):
        at, above = move_back((right, up), element)
        weight = sample(kernel, half + at, half - above)  # o c
        expected += sample(x, u + right, v - up) @ weight.T / (group.order * 20)
    torch.testing.assert_close(head(x), expected)


@each_group
@pytest.mark.parametrize("size", [(4, 4), (5, 5), (3, 5), (4, 5)], ids=str)
def test_global_weighted_sums(group: Group, size: tuple[int, int]) -> None:
    head = GlobalWeightedSum(2, size, group)
    x, side = torch.randn(2, 2, *size), max(size)
    kernel = rearrange(head.weight, "o c (y x) -> o c y x", y=side)
    expected = torch.zeros(2, 2)
    for element, (u, v) in itertools.product(group.elements, places(x)):
        right, up = move_back((u - (size[1] - 1) / 2, (size[0] - 1) / 2 - v), element)
        weight = sample(kernel, right + (side - 1) / 2, (side - 1) / 2 - up)
        expected += x[:, :, v, u] @ weight.T / group.order
    torch.testing.assert_close(head(x), expected)


@each_group
@pytest.mark.parametrize("layers", [1, 3])
def test_perceptrons(group: Group, layers: int) -> None:
    head = MLPIntegration(2, (4, 5), group, layers=layers)
    x = torch.randn(2, 2, 4, 5)
    expected = torch.zeros(2, 2)
    neighbours = [(right, up) for up in (1, 0, -1) for right in (-1, 0, 1)]  # row by row
    for element, (u, v) in itertools.product(group.elements, places(x)):
        moved = [move(neighbour, element) for neighbour in neighbours]
        patch = torch.stack([sample(x, u + right, v - up) for right, up in moved], dim=2)
        hidden = (patch.flatten(1) @ head.weights[0].flatten(1).T).relu()
        for weight in list(head.weights)[1:]:
            hidden = (hidden @ weight.T).relu()
        expected += hidden / (group.order * 20)
    torch.testing.assert_close(head(x), expected)


@pytest.mark.parametrize("group", [Cyclic(1), Cyclic(3), Dihedral(2)], ids=str)
@pytest.mark.parametrize("size", [(3, 3), (2, 4), (2, 3)], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"heads": 2, "head_channels": 3, "scaled": False}], ids=str
)
def test_self_attention(
    group: Group, size: tuple[int, int], options: dict[str, int | bool]
) -> None:
    head = SelfAttentionIntegration(2, size, group, **options)  # type: ignore[arg-type]
    torch.nn.init.normal_(head.codes)
    x, side = torch.randn(2, 2, *size), max(size)
    scale = 1 / math.sqrt(head.head_channels) if options == {} else 1.0
    tokens = [(column, row) for row in range(side) for column in range(side)]
    pooled = torch.zeros(2, head.heads, head.head_channels)
    for element in group.elements:
        turned = torch.zeros(2, len(tokens), 2)
        for n, (column, row) in enumerate(tokens):
            right, up = move((column - (side - 1) / 2, (side - 1) / 2 - row), element)
            turned[:, n] = sample(x, right + (size[1] - 1) / 2, (size[0] - 1) / 2 - up)
        for a, n in itertools.product(range(head.heads), range(len(tokens))):
            scores = torch.zeros(2, len(tokens))
            for m in range(len(tokens)):
                across, down = (tokens[m][i] - tokens[n][i] + side - 1 for i in (0, 1))
                code = head.codes[down * (2 * side - 1) + across]
                key = (turned[:, m] + code) @ head.key[a]
                scores[:, m] = ((turned[:, n] @ head.query[a]) * key).sum(1) * scale
            values = turned @ head.value[a]
            share = 1 / (group.order * len(tokens))
            pooled[:, a] += share * (scores.softmax(1)[:, :, None] * values).sum(1)
    joined = pooled.flatten(1)
    expected = joined if head.join is None else joined @ head.join.weight.T
    torch.testing.assert_close(head(x), expected)


@each_group
def test_steerable_integration_is_convolving_and_averaging(group: Group) -> None:
    head = SteerableIntegration(2, (6, 7), group, kernel_size=5)
    x = torch.randn(2, 2, group.order, 6, 7)
    expected = head.convolution(x).mean(dim=(2, 3, 4))
    assert isinstance(head.convolution, GroupConv2d)
    torch.testing.assert_close(head(x), expected)


@each_group
def test_lifting_and_averaging_is_a_local_weighted_sum(group: Group) -> None:
    """The identity of the paper, with the same bilinear kernels in the lifting convolution."""
    head = LocalWeightedSum(2, (6, 7), group)
    kernel = rearrange(head.weight, "o c (y x) -> o c y x", y=3)
    filters = torch.zeros(2, group.order, 2, 3, 3)
    for g, element in enumerate(group.elements):
        for right, up in itertools.product((-1, 0, 1), repeat=2):
            at, above = move_back((right, up), element)
            filters[:, g, :, 1 - up, 1 + right] = sample(kernel, 1 + at, 1 - above)
    x = torch.randn(2, 2, 6, 7)
    lifted = torch.nn.functional.conv2d(x, filters.flatten(0, 1), padding=1)
    averaged = reduce(lifted, "b (o g) h w -> b o", "mean", o=2)
    torch.testing.assert_close(head(x), averaged)
