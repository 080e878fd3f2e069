"""Heads at several depths, and features that are normalised."""

from pathlib import Path

import pytest
import torch
from support.narrow_networks import narrow, train
from torch import nn

from invint import ConfigError, Cyclic, create_model, parse_group
from invint.export import ModelCard, export_model, load_model
from invint.models import MODELS, fold
from invint.nn import HEADS, MonomialIntegration, make_head
from invint.selection import find_monomials
from invint.testing import assert_invariant

TAKES_GROUP = {
    name: make_head(name, channels=1, size=5, group=Cyclic(4)).takes_group for name in HEADS
}
# Backbones have fixed widths, take larger images, and have tests of their own.
STEERABLE = [name for name, entry in MODELS.items() if entry.group and not entry.load]
DEPTHS = {"sfcnn": 3, "sfcnn-small": 3, "sf-wrn16-4": 3, "sf-wrn16-8": 2, "sf-wrn28-10": 2}


def farthest(model: nn.Module, x: torch.Tensor) -> float:
    """Return how far logits move as images turn by quarters."""
    with torch.no_grad():
        turned = [model(torch.rot90(x, quarters, (-2, -1))) for quarters in (1, 2, 3)]
        return float(max((each - model(x)).abs().max() for each in turned))


@pytest.mark.slow
@pytest.mark.parametrize("name", DEPTHS)
def test_logits_of_several_depths_stay_as_images_turn(name: str) -> None:
    torch.manual_seed(0)
    model = narrow(name, group="C4", head="monomials", image_size=14, depths=DEPTHS[name]).eval()
    x = torch.randn(4, 1, 14, 14, dtype=torch.float64)
    assert farthest(model, x) <= 1e-9
    train(model, x)
    assert farthest(model, x) <= 1e-9
    folded = fold(model)
    assert farthest(folded, x) <= 1e-9
    torch.testing.assert_close(folded(x), model(x), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_can_be_at_two_depths_and_normalised(head: str) -> None:
    options = {"head": head, "group": "D4", "image_size": (12, 9), "depths": 2}
    model = narrow("sfcnn-small", norm_features=True, **options)
    x = torch.randn(4, 1, 12, 9, dtype=torch.float64)
    model(x)  # running statistics that are not 0 and 1
    assert_invariant(model.eval(), x, parse_group("D4"))
    assert list(model.train().state_dict()) == list(model.eval().state_dict())
    features = model.head(model.forward_features(x))
    assert features.shape == (4, model.get_submodule("classifier.0").num_features)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEERABLE)
def test_every_network_takes_the_bispectrum_fresh_trained_and_folded(name: str) -> None:
    torch.manual_seed(0)
    options = {"group": "C4", "head": "power-mean", "image_size": 9, "group_pool": "bispectrum"}
    model = narrow(name, **options).eval()
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    assert farthest(model, x) <= 1e-9
    train(model, x)
    assert farthest(model, x) <= 1e-9
    folded = fold(model)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-10, atol=1e-10)
    assert farthest(folded, x) <= 1e-9


def test_the_mean_over_the_group_is_what_the_head_gets() -> None:
    model = narrow("sfcnn-small", head="avg", image_size=12, group_pool="mean").eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    features = model.forward_features(x)
    torch.testing.assert_close(model.head(features), features.mean(dim=(2, 3, 4)))


@pytest.mark.parametrize("head", [name for name in HEADS if not TAKES_GROUP[name]])
def test_every_head_takes_the_bispectrum(head: str) -> None:
    model = narrow("sfcnn-small", head=head, group="C4", image_size=12, group_pool="bispectrum")
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    assert_invariant(model.eval(), x, parse_group("C4"))
    assert model.get_submodule("head.0").weight.shape == (4, 4, 5)


def test_group_pools_that_do_not_fit_are_refused() -> None:
    message = r"no group_pool 'bispectral'; did you mean 'bispectrum'\? there are max, mean, bispec"
    with pytest.raises(ConfigError, match=message):
        narrow("sfcnn-small", group_pool="bispectral")
    message = "head 'sf-ii' takes the map on the group; leave group_pool=mean out"
    with pytest.raises(ConfigError, match=message):
        narrow("sfcnn-small", head="sf-ii", group_pool="mean")


def test_features_are_those_of_both_maps_the_last_one_first() -> None:
    model = narrow("sfcnn-small", head="avg", image_size=12, depths=2).eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    last, before = model.forward_features(x)
    assert (last.shape, before.shape) == ((2, 4, 8, 3, 3), (2, 3, 8, 6, 6))
    pooled = [each.amax(dim=2).mean(dim=(-2, -1)) for each in (last, before)]
    torch.testing.assert_close(model.head((last, before)), torch.cat(pooled, dim=1))
    assert torch.equal(model.forward_head((last, before)), model(x))


def test_an_earlier_map_of_a_residual_network_is_normalised_first() -> None:
    """What its blocks add to is neither normalised nor positive."""
    model = narrow("sf-wrn16-4", head="avg", group="C4", image_size=12, depths=2).eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    last, before = model.forward_features(x)
    assert before.min() < 0
    norm = model.get_submodule("head.heads.1.0")
    expected = [each.amax(dim=2).mean(dim=(-2, -1)) for each in (last, norm(before).relu())]
    torch.testing.assert_close(model.head((last, before)), torch.cat(expected, dim=1))


def test_one_depth_is_the_network_as_it_was() -> None:
    torch.manual_seed(0)
    model = narrow("sfcnn-small", image_size=12)
    torch.manual_seed(0)
    same = narrow("sfcnn-small", image_size=12, depths=1)
    assert list(same.state_dict()) == list(model.state_dict())
    assert "features.0.weight" in same.state_dict()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    assert torch.equal(same.eval()(x), model.eval()(x))


@pytest.mark.parametrize("depths", [0, 4])
@pytest.mark.parametrize(("name", "owner"), [("sfcnn-small", "sfcnn"), ("sf-wrn16-4", "sf-wrn")])
def test_more_depths_than_sizes_are_refused(name: str, owner: str, depths: int) -> None:
    message = f"{owner}: depths must be from 1 to 3, the number of sizes its maps have, got"
    with pytest.raises(ConfigError, match=message):
        narrow(name, depths=depths)


def test_monomials_at_several_depths_are_not_selected() -> None:
    model = narrow("sfcnn-small", head="monomials", depths=2)
    message = "selection: the network has heads at 2 depths; build it with depths=1"
    with pytest.raises(ConfigError, match=message):
        find_monomials(model)
    assert sum(isinstance(each, MonomialIntegration) for each in model.modules()) == 2


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".safetensors"])
def test_several_depths_and_the_bispectrum_are_exported(suffix: str, tmp_path: Path) -> None:
    options = {"widths": [2, 3, 4], "n_fc": 6, "depths": 2, "group_pool": "bispectrum"}
    options |= {"head_options": {"kernel_size": 5}}
    card = ModelCard(("a", "b"), (20, 20), 1, name="sfcnn-small", head="mlp", options=options)
    path = tmp_path / f"network{suffix}"
    assert export_model(card.build(), path, card) <= 1e-4
    assert load_model(path)(torch.rand(3, 1, 20, 20)).shape == (3, 2)


@pytest.mark.parametrize("name", ["cnn7", "wrn16-4", "cnn-small", "sfcnn-small"])
def test_features_of_every_network_can_be_normalised(name: str) -> None:
    side = 28 if name == "cnn7" else 20
    model = create_model(name, in_channels=1, norm_features=True, image_size=side)
    plain = create_model(name, in_channels=1, image_size=side)
    assert isinstance(model.get_submodule("classifier.0"), nn.BatchNorm1d)
    assert not any(
        isinstance(each, nn.BatchNorm1d) for each in list(plain.classifier.modules())[:2]
    )
    x = torch.randn(4, 1, side, side)
    assert model(x).shape == plain(x).shape
