"""Our networks among those of timm, tested against timm itself where it is installed."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.narrow_networks import last
from support.torchvision_stub import import_timm

from invint import ConfigError, create_model, list_models
from invint.models import MODELS, Network
from invint.models.depths import FeatureMaps
from invint.zoo import zoo

DIGITS = "invint_sfcnn_small.digits"


def imported(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import our module anew."""
    monkeypatch.delitem(sys.modules, "invint.timm", raising=False)
    return importlib.import_module("invint.timm")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Put a registry in the place of timm's, and return what comes into it, by name."""
    models: Any = ModuleType("timm.models")
    functions: dict[str, Any] = {}
    models.generate_default_cfgs = lambda cfgs: cfgs
    models.register_model = lambda function: functions.setdefault(function.__name__, function)
    monkeypatch.setitem(sys.modules, "timm", ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.models", models)
    module = imported(monkeypatch)
    assert sorted(module.default_cfgs) == sorted(map(module.name_in_timm, zoo()))
    return functions


def test_every_network_is_registered_and_takes_the_arguments_of_timm(
    registered: dict[str, Any],
) -> None:
    assert len(registered) == len(MODELS) == len(list_models())
    model = registered["invint_sfcnn_small"](
        in_chans=1, img_size=12, num_classes=4, drop_rate=0.5, pretrained_cfg_overlay=None
    )
    assert (model.num_classes, model.spec["image_size"]) == (4, (12, 12))
    assert any(isinstance(each, torch.nn.Dropout) and each.p == 0.5 for each in model.modules())
    maps = registered["invint_sfcnn_small"](in_chans=1, features_only=True, out_indices=(0, 2))
    assert isinstance(maps, FeatureMaps)
    assert maps.out_indices == [0, 2]


@pytest.mark.parametrize("cfg", [None, "digits", SimpleNamespace(tag="digits")])
def test_tags_are_those_of_the_zoo(registered: dict[str, Any], cfg: Any) -> None:
    model = registered["invint_sfcnn_small"](pretrained=True, pretrained_cfg=cfg)
    expected = create_model("sfcnn-small.digits", pretrained=True)
    assert torch.equal(last(model), last(expected))


def test_without_timm_the_module_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match=r"^invint\.timm: needs timm; pip install timm$"):
        imported(monkeypatch)


@pytest.mark.slow
def test_timm_itself_builds_our_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = import_timm()
    imported(monkeypatch)
    assert len(timm.list_models("invint_*")) == len(MODELS)
    assert DIGITS in timm.list_pretrained("invint_*")
    model = timm.create_model(DIGITS, pretrained=True, in_chans=1).eval()
    assert isinstance(model, Network)
    x = torch.rand(2, 1, 20, 20)
    assert torch.equal(model(x), create_model("sfcnn-small.digits", pretrained=True).eval()(x))
    config = timm.data.resolve_model_data_config(model)
    assert config["input_size"] == (1, 20, 20)
    assert config["mean"] == model.spec["mean"]
    maps = timm.create_model("invint_sfcnn_small", in_chans=1, features_only=True, num_classes=3)
    assert [each.shape[1] for each in maps(x)] == maps.feature_info.channels() == [8, 12, 16]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "efficientnet_lite0"])
def test_networks_of_timm_promise_what_ours_promise(name: str) -> None:
    """What our tests of the methods demand holds for timm's own networks."""
    timm = import_timm()
    model, x = timm.create_model(name, num_classes=3).eval(), torch.rand(1, 3, 64, 64)
    features = model.forward_features(x)
    assert features.shape[1] == model.num_features
    hidden = model.forward_head(features, pre_logits=True)
    assert hidden.shape == (1, model.head_hidden_size)
    torch.testing.assert_close(model.get_classifier()(hidden), model(x))
    model.reset_classifier(0)
    torch.testing.assert_close(model(x), hidden)
    model.reset_classifier(0, "")
    torch.testing.assert_close(model(x), features)
    ours = create_model("efficientnet-lite0").features_only().feature_info
    theirs = timm.create_model("efficientnet_lite0", features_only=True).feature_info
    assert ours.reduction() == theirs.reduction()
