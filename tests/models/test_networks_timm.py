"""The methods of timm's models, and what they promise of one another."""

from typing import Any

import pytest
import torch
from support.narrow_networks import NARROW, last, narrow
from torch import Tensor, nn

from invint import ConfigError, create_model
from invint.models import MODELS, Network, fold
from invint.models.networks import NoClassifier

SMALL = [name for name in MODELS if "28-10" not in name and "lite0" not in name]


def built(name: str, **options: Any) -> tuple[Network, Tensor]:
    side = 28 if name == "cnn7" else 12
    options = NARROW.get(name, {}) | options
    model = create_model(name, num_classes=3, in_channels=1, image_size=side, **options)
    return model.double().eval(), torch.randn(2, 1, side, side, dtype=torch.float64)


@pytest.mark.parametrize("name", SMALL)
def test_the_methods_agree_with_one_another(name: str) -> None:
    model, x = built(name)
    features = model.forward_features(x)
    assert features.shape[1] == model.num_features
    hidden = model.forward_head(features, pre_logits=True)
    assert hidden.shape == (2, model.head_hidden_size)
    assert torch.equal(model.get_classifier()(hidden), model(x))
    model.reset_classifier(0)
    assert torch.equal(model(x), hidden)
    model.reset_classifier(5)
    assert model(x).shape == (2, 5)
    assert last(model).dtype == torch.float64
    assert model.spec["num_classes"] == 5
    model.reset_classifier(0, "")
    assert torch.equal(model(x), features)


def test_the_network_of_as_many_classes_takes_the_weights() -> None:
    model, x = built("sfcnn-small", dropout=0.5, norm_features=True)
    model.reset_classifier(7)
    other = (
        create_model(
            "sfcnn-small",
            in_channels=1,
            **(NARROW["sfcnn-small"]),
            num_classes=7,
            image_size=12,
            dropout=0.5,
            norm_features=True,
        )
        .double()
        .eval()
    )
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_a_fresh_classifier_is_where_and_how_the_network_is() -> None:
    model = create_model("wrn16-4").to("meta", torch.bfloat16).eval()
    model.reset_classifier(4)
    last = model.get_classifier()
    assert isinstance(last, nn.Linear)
    assert (last.weight.device.type, last.weight.dtype) == ("meta", torch.bfloat16)
    assert not last.training


def test_features_before_the_last_layer_stay_as_images_turn() -> None:
    model = narrow("sfcnn-small", image_size=12, head="monomials").eval()
    model.reset_classifier(0)
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    for quarters in (1, 2, 3):
        assert (model(torch.rot90(x, quarters, (-2, -1))) - model(x)).abs().max() <= 1e-9


@pytest.mark.parametrize("name", ["sfcnn-small", "sf-wrn16-4", "wrn16-4"])
def test_a_folded_network_has_the_same_features_and_maps(name: str) -> None:
    model, x = built(name)
    folded = fold(model)
    assert isinstance(folded, Network)
    assert folded.num_features == model.num_features
    assert folded.features_only().feature_info.channels()[-1] == model.num_features
    maps = zip(
        folded.get_intermediate_layers(x, 3), model.get_intermediate_layers(x, 3), strict=True
    )
    for given, expected in maps:
        assert given.shape == expected.shape
    torch.testing.assert_close(folded.get_intermediate_layers(x)[0], model.forward_features(x))


@pytest.mark.slow
def test_means_of_several_depths_of_an_orbit_are_counted() -> None:
    name = "orbit-efficientnet-lite0"
    options: dict[str, Any] = {"image_size": 64, "num_classes": 3, "depths": 3}
    model, x = create_model(name, **options).eval(), torch.rand(1, 3, 64, 64)
    assert model.forward_features(x).shape[1] == model.num_features == 192 + 320 + 1280
    assert model.head_hidden_size == model.num_features
    assert model.get_intermediate_layers(x)[0].shape == (1, 1280, 4, 2, 2)
    pose = create_model(name, group_pool="pose", **options)
    with pytest.raises(
        ConfigError, match=r"ends in nn\.Linear, got PoseClassifier; change it by h"
    ):
        pose.reset_classifier(2)


def test_another_pooling_is_refused() -> None:
    model = narrow("sfcnn-small")
    for classes, pool in ((3, "avg"), (3, "")):
        with pytest.raises(ConfigError, match="reset_classifier: the head stays; global_pool can"):
            model.reset_classifier(classes, pool)


def test_networks_put_together_by_hand_say_what_they_lack() -> None:
    model = Network(nn.Flatten(), nn.Identity(), nn.Sequential(nn.Linear(4, 2), nn.Softmax(1)))
    with pytest.raises(ConfigError, match=r"expected a classifier that ends in nn\.Linear, got So"):
        model.reset_classifier(3)
    with pytest.raises(ConfigError, match="its features have no convolution to count channels of"):
        _ = model.num_features
    with pytest.raises(ConfigError, match=r"expected features that are an nn\.Sequential, got Fl"):
        model.get_intermediate_layers(torch.zeros(1, 1, 2, 2))
    with pytest.raises(ConfigError, match="features_only: the network must come from create_model"):
        model.features_only()
    plain = Network(nn.Flatten(), nn.Identity(), nn.Linear(4, 2))
    plain.reset_classifier(0)
    assert isinstance(plain.classifier, NoClassifier)
