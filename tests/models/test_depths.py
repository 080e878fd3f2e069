"""Maps of several depths: which they are, and that they turn with the image."""

import pytest
import torch
from support.narrow_networks import narrow
from torch import Tensor, nn

from invint import ConfigError, create_model, parse_group
from invint.models import Network
from invint.nn import OrbitFeatures


def images(side: int = 12, channels: int = 1) -> Tensor:
    return torch.randn(2, channels, side, side, dtype=torch.float64)


def test_maps_are_the_last_of_every_size() -> None:
    model, x = narrow("sfcnn-small", image_size=12).eval(), images()
    first, second, last = model.get_intermediate_layers(x, 3)
    layers = list(model.features.children())
    expected = x
    for layer in layers[:3]:
        expected = layer(expected)
    torch.testing.assert_close(first, expected)
    assert [each.shape for each in (first, second)] == [(2, 2, 8, 12, 12), (2, 3, 8, 6, 6)]
    assert torch.equal(last, model.forward_features(x))
    assert torch.equal(model.get_intermediate_layers(x)[0], last)
    for given, found in zip(model.get_intermediate_layers(x, [0, -1]), (first, last), strict=True):
        assert torch.equal(given, found)


def test_networks_with_heads_at_several_depths_have_the_same_maps() -> None:
    model, x = narrow("sfcnn-small", image_size=12, depths=3).eval(), images()
    for given, found in zip(
        model.get_intermediate_layers(x, 3), reversed(model.forward_features(x)), strict=True
    ):
        assert torch.equal(given, found)


@pytest.mark.parametrize("name", ["sfcnn-small", "sf-wrn16-4"])
def test_pooled_maps_turn_with_the_image(name: str) -> None:
    model, x = narrow(name, image_size=12, group="C4").eval(), images()
    maps = model.features_only()
    for turned, upright in zip(maps(torch.rot90(x, 1, (-2, -1))), maps(x), strict=True):
        assert upright.ndim == 4
        assert (turned - torch.rot90(upright, 1, (-2, -1))).abs().max() <= 1e-9


def test_maps_say_their_channels_and_reduction() -> None:
    maps = create_model("sf-wrn16-4").features_only()
    assert maps.feature_info.channels() == [14, 28, 49]
    assert maps.feature_info.reduction() == [1, 2, 4]
    odd = narrow("sfcnn-small", image_size=(14, 17)).features_only((1, 2))
    assert odd.feature_info.reduction() == [2, 4]  # 17, 9 and 5 pixels
    plain = create_model("wrn16-4").features_only((0, -1))
    assert plain.out_indices == [0, 2]
    assert plain.feature_info.channels() == [64, 256]
    assert [each.shape for each in plain(torch.randn(1, 3, 8, 8))] == [
        (1, 64, 8, 8),
        (1, 256, 2, 2),
    ]


def test_the_axis_of_the_group_can_stay() -> None:
    maps = narrow("sfcnn-small", image_size=12).features_only([1], pool=None).eval()
    (found,) = maps(images())
    assert found.shape == (2, 3, 8, 6, 6)


@pytest.mark.slow
def test_a_backbone_of_imagenet_has_the_depths_that_timm_counts() -> None:
    info = create_model("efficientnet-lite0").features_only().feature_info
    assert info.channels() == [16, 24, 40, 112, 1280]
    assert info.reduction() == [2, 4, 8, 16, 32]


def test_maps_of_an_orbit_are_those_of_its_copies() -> None:
    backbone = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3)
    ).double()
    model = Network(OrbitFeatures(backbone, parse_group("C4")), nn.Identity(), nn.Linear(4, 2))
    x = images()
    first, last = model.get_intermediate_layers(x, 2)
    assert (
        backbone.state_dict()["2.num_batches_tracked"] == 1
    )  # once for the last map, not for looking
    model.eval()
    first, last = model.get_intermediate_layers(x, 2)
    assert torch.equal(last, model.forward_features(x))
    for element in range(4):
        expected = torch.rot90(backbone[0](torch.rot90(x, -element, (-2, -1))), element, (-2, -1))
        torch.testing.assert_close(first[:, :, element], expected)


@pytest.mark.parametrize("wanted", [0, 4, [3], [-4]])
def test_maps_that_are_not_there_are_refused(wanted: int | list[int]) -> None:
    model = narrow("sfcnn-small", image_size=12).eval()
    with pytest.raises(ConfigError, match="intermediate maps: there are 3, one of every size; ask"):
        model.get_intermediate_layers(images(), wanted)


def test_another_pooling_along_the_group_is_refused() -> None:
    with pytest.raises(ConfigError, match="features_only: pool must be max, mean or None, got 'su"):
        narrow("sfcnn-small").features_only(pool="sum")
