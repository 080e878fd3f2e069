"""The inference form computes what the network computes."""

import copy
from typing import Any

import pytest
import torch
from support.narrow_networks import narrow, train
from torch import Tensor, nn

from invint import Cyclic, Dihedral, create_model, parse_group
from invint.models import MODELS
from invint.models.fold import FoldedConv2d, fold
from invint.nn import HEADS, GroupBatchNorm, GroupConv2d, LiftConv2d
from invint.testing import assert_equivariant, assert_invariant

# Backbones have fixed widths, take larger images, and have tests of their own.
STEERABLE = [name for name, entry in MODELS.items() if entry.group and not entry.load]
PLAIN = [name for name, entry in MODELS.items() if not entry.group and not entry.load]
MIRRORED = ("sfcnn-small", "D4")


def assert_folds(model: nn.Module, x: Tensor) -> nn.Module:
    """Assert that the folded model gives the same, to rounding."""
    folded = fold(model)
    with torch.no_grad():
        expected, actual = copy.deepcopy(model).eval()(x), folded(x)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    return folded


def unsettle(model: nn.Module) -> None:
    """Give every normalisation statistics and coefficients of its own."""
    for module in model.modules():
        if isinstance(module, GroupBatchNorm | nn.BatchNorm2d):
            for tensor in (module.running_mean, module.running_var, module.weight, module.bias):
                if tensor is not None:
                    nn.init.uniform_(tensor, 0.5, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "group"), [(name, "C4") for name in STEERABLE] + [MIRRORED])
def test_every_network_folds_fresh_and_trained(name: str, group: str) -> None:
    model = narrow(name, group=group, image_size=9)
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    assert_invariant(assert_folds(model, x), x, parse_group(group))
    train(model, x)
    assert_invariant(assert_folds(model, x), x, parse_group(group), rounding=1e4)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_folds_fresh_and_trained(head: str) -> None:
    model = narrow("sfcnn-small", head=head, group="C4", image_size=13)
    x = torch.randn(4, 1, 13, 13, dtype=torch.float64)
    assert_invariant(assert_folds(model, x), x, Cyclic(4))
    train(model, x)
    assert_invariant(assert_folds(model, x), x, Cyclic(4), rounding=1e4)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_networks_fold(name: str) -> None:
    options: dict[str, Any] = {"width": 1} if name.startswith("wrn") else {}
    model = create_model(name, num_classes=3, in_channels=1, **options).double()
    unsettle(model)
    folded = assert_folds(model, torch.randn(2, 1, 28, 28, dtype=torch.float64))
    assert count(folded, nn.BatchNorm2d) < count(model, nn.BatchNorm2d)


def test_no_steerable_convolution_is_left_and_few_norms() -> None:
    model = narrow("sf-wrn16-4", group="C4", image_size=8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    folded = fold(model)
    assert not folded.training
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert count(folded, GroupConv2d) == count(folded, LiftConv2d) == 0
    assert count(folded, FoldedConv2d) == count(model, GroupConv2d) + 1
    # six blocks and the end normalise before a convolution; the six inside blocks are merged
    assert (count(model, GroupBatchNorm), count(folded, GroupBatchNorm)) == (13, 7)


def test_the_head_keeps_its_convolution() -> None:
    folded = fold(narrow("sfcnn-small", head="sf-ii", group="C4", image_size=12))
    assert count(folded, GroupConv2d) == 1
    assert count(folded, GroupBatchNorm) == 0


@pytest.mark.parametrize("bias", [False, True])
def test_layers_of_your_own_fold(bias: bool) -> None:
    group = Dihedral(4)
    model = nn.Sequential(
        LiftConv2d(2, 3, 3, group, bias=bias),
        GroupBatchNorm(3, eps=1e-3),
        nn.ReLU(),
        nn.Sequential(GroupConv2d(3, 2, 3, group, stride=2, padding=0, bias=bias)),
        GroupBatchNorm(2),
    ).double()
    unsettle(model)
    x = torch.randn(2, 2, 9, 9, dtype=torch.float64)
    folded = assert_folds(model, x)
    assert count(folded, GroupBatchNorm) == 1  # the last does not follow directly
    assert_equivariant(folded, x, group)
    assert isinstance(fold(model[0]), FoldedConv2d)
    torch.testing.assert_close(fold(folded)(x), folded(x), rtol=0, atol=0)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(3, affine=False), nn.InstanceNorm2d(3)], ids=str)
def test_norms_fold_only_where_they_can(norm: nn.Module) -> None:
    untracked = nn.BatchNorm2d(3, track_running_stats=False)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), norm, nn.Conv2d(3, 3, 3, padding_mode="reflect", padding=1), untracked
    ).double()
    unsettle(model)
    folded = assert_folds(model, torch.randn(2, 1, 9, 9, dtype=torch.float64))
    assert isinstance(folded, nn.Sequential)
    assert isinstance(folded[1], nn.Identity) == isinstance(norm, nn.BatchNorm2d)
    assert isinstance(folded[3], nn.BatchNorm2d)


def test_a_shared_convolution_folds_with_each_of_its_norms() -> None:
    group = Cyclic(4)
    shared = GroupConv2d(2, 2, 3, group)
    model = nn.Sequential(shared, GroupBatchNorm(2), shared, GroupBatchNorm(2), shared).double()
    unsettle(model)
    assert_folds(model, torch.randn(2, 2, 4, 5, 5, dtype=torch.float64))
    plain = nn.Conv2d(2, 2, 3)
    model = nn.Sequential(plain, nn.BatchNorm2d(2), plain, nn.BatchNorm2d(2), plain).double()
    unsettle(model)
    assert_folds(model, torch.randn(2, 2, 9, 9, dtype=torch.float64))


def count(model: nn.Module, kind: type[nn.Module]) -> int:
    return sum(isinstance(module, kind) for module in model.modules())
