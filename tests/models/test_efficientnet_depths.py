"""Means of maps at several depths, and classifiers by the copy that stands upright."""

import math

import pytest
import torch
from einops import rearrange

from invint import ConfigError, create_model
from invint.models.efficientnet import lite0_features, pooled_depths
from invint.models.orbits import PoseClassifier, SignedRoot, pose_logits

NAME = "orbit-efficientnet-lite0"


@pytest.mark.slow
def test_the_features_are_the_means_of_the_last_maps() -> None:
    backbone, features = pooled_depths(4)
    plain = lite0_features().eval()
    keys = zip(plain.state_dict(), backbone.state_dict().values(), strict=True)
    plain.load_state_dict(dict(keys))  # the layers are the same, in the same order
    x, means = torch.rand(1, 3, 64, 64), []
    with torch.no_grad():
        found = backbone.eval()(x)
        for layer in plain:
            x = layer(x)
            means.append(x.mean(dim=(2, 3)))
    ends = [index for index, mean in enumerate(means) if mean.shape[1] in (112, 192, 320, 1280)]
    last = {means[index].shape[1]: means[index] for index in ends}  # of each kind the last
    expected = torch.cat([last[width] for width in (112, 192, 320, 1280)], dim=1)
    torch.testing.assert_close(found, expected)
    assert features == expected.shape[1] == 1904


def test_roots_keep_the_sign_and_have_a_slope_at_zero() -> None:
    x = torch.tensor([-4.0, 0.0, 9.0], dtype=torch.float64, requires_grad=True)
    roots = SignedRoot()(x)
    floor = SignedRoot.floor
    for value, root in zip(x.tolist(), roots.tolist(), strict=True):
        expected = math.sqrt(abs(value) + floor) - math.sqrt(floor)
        assert root == pytest.approx(math.copysign(expected, value))
    roots.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_pose_logits_are_those_of_the_definition() -> None:
    logits = torch.randn(2, 4, 4, dtype=torch.float64)
    found = pose_logits(logits)
    for image in range(2):
        for label in range(3):
            total = 0.0
            for copy in range(4):
                row = [math.exp(each) for each in logits[image, copy].tolist()]
                total += row[label] / sum(row)
            assert found[image, label].item() == pytest.approx(math.log(total))


def test_the_order_of_the_copies_does_not_matter() -> None:
    head = PoseClassifier(6, 3, root=True).double()
    features = torch.randn(2, 6, 4, 1, 1, dtype=torch.float64)
    moved = head(features.roll(1, dims=2))
    torch.testing.assert_close(moved, head(features), atol=1e-12, rtol=0)
    copies = rearrange(SignedRoot()(features), "b k g 1 1 -> b g k")
    assert head(features).shape == (2, 3)
    torch.testing.assert_close(head(features), pose_logits(head.linear(copies)))


@pytest.mark.slow
@pytest.mark.parametrize(("group", "pool"), [("C4", "mean"), ("C4", "pose"), ("D4", "mean")])
def test_the_network_is_invariant_to_quarter_turns(group: str, pool: str) -> None:
    network = create_model(
        NAME, num_classes=3, in_channels=1, image_size=33, group=group, depths=3, group_pool=pool
    )
    network.double().eval()
    x = torch.rand(2, 1, 33, 33, dtype=torch.float64)
    with torch.no_grad():
        expected = network(x)
        moved = [torch.rot90(x, turns, (2, 3)) for turns in (1, 2, 3)]
        moved += [x.flip(3)] if group == "D4" else []
        for other in moved:
            torch.testing.assert_close(network(other), expected, atol=1e-9, rtol=0)


@pytest.mark.unchecked
def test_depths_that_are_not_there_are_refused() -> None:
    with pytest.raises(ConfigError, match="depths must be from 1 to 8, the number of maps it has"):
        create_model(NAME, depths=9)
    with pytest.raises(ConfigError, match="2 or more for group_pool 'pose', got 1"):
        create_model(NAME, group_pool="pose")
