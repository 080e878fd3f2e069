"""Any network over the turned copies of an image: equivariant maps, invariant features."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invint import ConfigError, ShapeError, parse_group
from invint.nn import HEADS, Orbit, OrbitFeatures, make_head
from invint.testing import assert_equivariant, assert_invariant, equivariance_error

SIZES = [(12, 12), (13, 13), (14, 9)]


def strided(vector: bool = False) -> nn.Module:
    """Return a network that no turn of the image leaves alone: strides, uneven padding."""
    layers: list[nn.Module] = [
        nn.ZeroPad2d((0, 1, 0, 1)),
        nn.Conv2d(2, 5, 3, stride=2),
        nn.BatchNorm2d(5),
        nn.ReLU(),
        nn.Conv2d(5, 4, 3, stride=2, padding=1),
    ]
    pool = [nn.AdaptiveMaxPool2d((2, 1)), nn.Flatten(), nn.Linear(8, 6)] if vector else []
    return nn.Sequential(*layers, *pool).double().eval()


@pytest.mark.parametrize("group", ["C1", "C2", "C4", "D1", "D4"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("vector", [False, True])
def test_features_turn_with_the_image(group: str, size: tuple[int, int], vector: bool) -> None:
    layer = OrbitFeatures(strided(vector), parse_group(group))
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    assert_equivariant(layer, x, parse_group(group))
    channels, *plane = (6, 1, 1) if vector else strided()(x).shape[1:]
    assert layer(x).shape == (2, channels, parse_group(group).order, *plane)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quarter_turns_give_the_same_numbers_in_another_order(dtype: torch.dtype) -> None:
    layer = Orbit(strided().to(dtype), parse_group("C4"))
    x = torch.randn(3, 2, 12, 12, dtype=dtype)
    maps, turned = layer.features(x), layer.features(torch.rot90(x, 1, (-2, -1)))
    expected = torch.rot90(maps, 1, (-2, -1)).roll(1, dims=2)
    assert torch.equal(turned, expected)


@pytest.mark.parametrize("group", ["C3", "C6", "C8", "D8"])
def test_finer_groups_stay_exact_at_quarter_turns(group: str) -> None:
    for side in (12, 13):
        x = torch.randn(2, 2, side, side, dtype=torch.float64)
        for backbone in (strided(), strided(vector=True)):
            assert_equivariant(OrbitFeatures(backbone, parse_group(group)), x, parse_group(group))


def test_finer_groups_turn_as_images_do() -> None:
    """A smooth image and a network that keeps size: what is left is interpolation."""
    group, side = parse_group("C8"), 33
    axis = torch.linspace(-1, 1, side, dtype=torch.float64)
    blob = torch.exp(-20 * ((axis[:, None] - 0.2) ** 2 + (axis + 0.3) ** 2))
    x = torch.stack((blob, blob.T + 0.5 * blob))[None]
    network = nn.Sequential(nn.Conv2d(2, 3, 5, padding=2), nn.Tanh()).double()
    angle = group.elements[1].angle

    def alike(images: Tensor) -> Tensor:
        """Give every element the map of the upright image: what must not pass."""
        maps: Tensor = network(images)
        return maps[:, :, None].expand(-1, -1, group.order, -1, -1)

    layer = OrbitFeatures(network, group)
    error, plain = (equivariance_error(f, x, group, angle, margin=3) for f in (layer, alike))
    assert error < 0.05
    assert plain > 0.2


def test_the_definition_element_by_element() -> None:
    group, backbone = parse_group("D4"), strided()
    x = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    maps = OrbitFeatures(backbone, group)(x)
    for symmetry in group.grid_symmetries:
        turns = symmetry.quarter_turns
        back = torch.rot90(x, -turns, (-2, -1))
        found = backbone(back.flip(-2) if symmetry.flip else back)
        expected = torch.rot90(found.flip(-2) if symmetry.flip else found, turns, (-2, -1))
        torch.testing.assert_close(maps[:, :, symmetry.element], expected)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("vector", [False, True])
def test_the_mean_is_the_group_average(size: tuple[int, int], vector: bool) -> None:
    group, backbone = parse_group("C4"), strided(vector)
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    layer = Orbit(backbone, group)
    each = [backbone(torch.rot90(x, turns, (-2, -1))) for turns in range(4)]
    means = [found if vector else found.mean(dim=(-2, -1)) for found in each]
    torch.testing.assert_close(layer(x), torch.stack(means).mean(dim=0))
    assert_invariant(layer, x, group)


def test_what_is_invariant_to_turns_still_sees_mirrors_unless_the_group_has_them() -> None:
    x = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    rotations, mirrors = (Orbit(strided(), parse_group(name)) for name in ("C4", "D4"))
    assert (rotations(x.flip(-1)) - rotations(x)).abs().max() > 1e-3
    assert_invariant(mirrors, x, parse_group("D4"))


@pytest.mark.parametrize("name", HEADS)
def test_every_head_integrates_an_orbit(name: str) -> None:
    symmetries = parse_group("D4")
    head = make_head(name, channels=4, size=(4, 3), group=symmetries)
    layer = Orbit(strided(), symmetries, head).double()
    x = torch.randn(2, 2, 14, 12, dtype=torch.float64)
    assert_invariant(layer, x, symmetries)
    assert layer(x).shape == (2, head.out_features)


@pytest.mark.parametrize(("size", "passes"), [((12, 12), [8]), ((12, 9), [4, 4])])
def test_all_copies_of_one_size_go_through_at_once(
    size: tuple[int, int], passes: list[int]
) -> None:
    seen: list[int] = []
    backbone = strided()
    backbone.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    OrbitFeatures(backbone, parse_group("C4"))(torch.randn(2, 2, *size, dtype=torch.float64))
    assert seen == passes


@pytest.mark.parametrize("size", [(12, 12), (12, 9)])
def test_chunks_change_nothing(size: tuple[int, int]) -> None:
    backbone, group = strided(), parse_group("D4")
    x = torch.randn(2, 2, *size, dtype=torch.float64)
    expected = OrbitFeatures(backbone, group)(x)
    for chunk in (1, 3, 8):
        torch.testing.assert_close(OrbitFeatures(backbone, group, chunk=chunk)(x), expected)


def test_a_frozen_backbone_keeps_to_evaluation_and_the_head_learns() -> None:
    group = parse_group("C4")
    head = make_head("local-ws", channels=4, size=3, group=group)
    layer = Orbit(strided(), group, head, frozen=True).double().train()
    assert layer.training
    assert not any(module.training for module in layer.features.backbone.modules())
    x = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer(x).sum().backward()
    learning = [name for name, each in layer.named_parameters() if each.grad is not None]
    assert learning == ["head.1.weight"]
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_a_backbone_that_learns_follows_the_mode() -> None:
    layer = Orbit(strided(), parse_group("C4")).train()
    assert all(module.training for module in layer.modules())
    x = torch.randn(2, 2, 12, 12, dtype=torch.float64)
    layer(x).sum().backward()
    assert all(each.grad is not None for each in layer.parameters())
    assert_invariant(layer, x, parse_group("C4"))
    assert list(layer.state_dict()) == list(layer.eval().state_dict())
    assert "group=C4, chunk=None, frozen=False" in repr(layer)


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("group", ["C4", "D4", "C8"])
def test_in_training_one_copy_of_each_image_may_be_enough(group: str, vector: bool) -> None:
    layer = OrbitFeatures(strided(vector), parse_group(group))
    layer.one_copy = True
    x = torch.randn(40, 2, 12, 12, dtype=torch.float64)
    every = layer.eval()(x)
    layer.training = True  # and not the backbone, whose statistics would differ
    one = layer(x)
    assert one.shape == (*every.shape[:2], 1, *every.shape[3:])
    found = (one - every).flatten(3).abs().amax(dim=(1, 3)) < 1e-12
    assert (found.sum(dim=1) == 1).all()  # one of its copies
    assert found.any(dim=0).all()  # and not the same for all images


def test_one_copy_needs_square_images() -> None:
    layer = OrbitFeatures(nn.Identity(), parse_group("C4"))
    layer.one_copy = True
    with pytest.raises(ShapeError, match="one_copy takes square images, got 12 x 10"):
        layer(torch.randn(2, 2, 12, 10))


@pytest.mark.unchecked
def test_bad_inputs_are_refused_in_one_line() -> None:
    group = parse_group("C4")
    x = torch.randn(2, 2, 12, 12)
    with pytest.raises(ConfigError, match="OrbitFeatures: chunk must be at least 1, got 0"):
        OrbitFeatures(nn.Identity(), group, chunk=0)
    with pytest.raises(ShapeError, match="OrbitFeatures: expected 4 axes, got 3"):
        OrbitFeatures(nn.Identity(), group)(x[0])
    with pytest.raises(ShapeError, match="OrbitFeatures: expected a float tensor, got"):
        OrbitFeatures(nn.Identity(), group)(x.long())
    with pytest.raises(ShapeError, match="C8 turns square images only, got 12 x 10; use a group"):
        OrbitFeatures(nn.Identity(), parse_group("C8"))(x[..., :10])
    for backbone, came in [
        (nn.Flatten(1, 2), r"shape \(8, 24, 12\)"),
        (nn.Flatten(0, 1), r"shape \(16, 12, 12\)"),
        (Pair(), "<class 'tuple'>"),
        (First(), r"shape \(1, 2, 12, 12\)"),
    ]:
        message = rf"must return a map \(b, k, h, w\) or .* for 8 images, got {came}; cut off"
        with pytest.raises(ShapeError, match=message):
            OrbitFeatures(backbone, group)(x)
    with pytest.raises(
        ShapeError, match=r"copies have sizes \[\(6, 12\), \(12, 6\)\]; the backbone"
    ):
        OrbitFeatures(nn.MaxPool2d((1, 2)), group)(x)


class Pair(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x, x


class First(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:1]
