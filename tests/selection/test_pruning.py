import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint import ConfigError, create_model
from invint.models import Network
from invint.nn import MonomialIntegration
from invint.selection import find_monomials, magnitude, masked, prune
from invint.selection.pruning import first_dense

MakeNetwork = Callable[..., Network]
Batches = list[tuple[Tensor, Tensor]]
KEEP = [4, 1, 2]
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.01, amsgrad=True),
    "momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4
    ),
    "plain": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
}


def step(network: Network, optimizer: torch.optim.Optimizer, batches: Batches) -> None:
    for images, labels in batches:
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def trained(
    make_network: MakeNetwork, batches: Batches, optimizer: str = "adam", **options: Any
) -> tuple[Network, torch.optim.Optimizer]:
    network = make_network(**options)
    chosen = OPTIMIZERS[optimizer](network.parameters())
    for _ in range(3):
        step(network, chosen, batches)
    return network, chosen


def columns(channels: int, monomials: int, keep: Sequence[int]) -> list[int]:
    return [channel * monomials + number for channel in range(channels) for number in keep]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_before", [False, True])
def test_outputs_are_those_of_the_masked_network(
    make_network: MakeNetwork, batches: Batches, norm_before: bool, training: bool
) -> None:
    network, optimizer = trained(make_network, batches, norm_before=norm_before)
    network.train(training)
    images, _ = batches[0]
    whole = copy.deepcopy(network)
    with masked(network, KEEP), torch.no_grad():
        expected = network(images)
        assert not torch.allclose(expected, whole(images))
    prune(network, optimizer, KEEP)
    with torch.no_grad():
        torch.testing.assert_close(network(images), expected)


def test_a_mask_is_taken_off_again(make_network: MakeNetwork, batches: Batches) -> None:
    network, _ = trained(make_network, batches)
    before = copy.deepcopy(network.state_dict())
    with masked(network, KEEP):
        scores = magnitude(first_dense(network)[1].weight, 6)
        assert [bool(score) for score in scores] == [number in KEEP for number in range(6)]
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("norm_before", [False, True])
def test_everything_follows_the_survivors(
    make_network: MakeNetwork, batches: Batches, norm_before: bool
) -> None:
    network, optimizer = trained(make_network, batches, norm_before=norm_before)
    before = copy.deepcopy(network.state_dict())
    prune(network, optimizer, KEEP)
    at = columns(3, 6, KEEP)
    after = network.state_dict()
    assert list(after) == list(before)
    dense = f"classifier.{int(norm_before)}.weight"
    for name, value in before.items():
        if name.startswith("head.1."):
            expected = value[KEEP]
        elif name == dense:
            expected = value[:, at]
        elif norm_before and name.startswith("classifier.0.") and value.ndim:
            expected = value[at]
        else:
            expected = value
        torch.testing.assert_close(after[name], expected, rtol=0, atol=0)
    assert first_dense(network)[1].in_features == 9
    assert find_monomials(network)[2].out_features == 9
    assert all(norm.num_features == 9 for norm in first_dense(network)[0])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("norm_before", [False, True])
def test_training_goes_on_as_that_of_the_masked_network(
    make_network: MakeNetwork, batches: Batches, optimizer: str, norm_before: bool
) -> None:
    """Take a step of the masked network, and one after pruning: survivors end up the same."""
    torch.manual_seed(0)
    network, first = trained(make_network, batches, optimizer, norm_before=norm_before)
    torch.manual_seed(0)
    other, second = trained(make_network, batches, optimizer, norm_before=norm_before)
    prune(network, first, KEEP)
    step(network, first, batches[:1])
    with masked(other, KEEP):
        step(other, second, batches[:1])
    prune(other, second, KEEP)
    torch.testing.assert_close(network.state_dict(), other.state_dict())
    torch.testing.assert_close(first.state_dict()["state"], second.state_dict()["state"])


def test_parameters_keep_their_places_in_the_optimizer(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network(norm_before=True)
    groups: list[dict[str, Any]] = [
        {"params": list(network.head.parameters()), "lr": 0.1},
        {"params": list(network.classifier.parameters())},
        {"params": list(network.features.parameters()), "lr": 0.001},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.01)
    step(network, optimizer, batches)
    prune(network, optimizer, KEEP)
    parts = (network.head, network.classifier, network.features)
    for group, part in zip(optimizer.param_groups, parts, strict=True):
        assert [id(each) for each in group["params"]] == [id(each) for each in part.parameters()]
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.01, 0.001]
    assert list(optimizer.state_dict()["state"]) == list(range(len(list(network.parameters()))))
    assert set(optimizer.state) == set(network.parameters())


def test_a_pruned_network_has_fewer_parameters() -> None:
    network = create_model("sfcnn-small", head="monomials", head_options={"monomials": 50})
    direct = create_model("sfcnn-small", head="monomials", head_options={"monomials": 5})
    prune(network, None, range(10, 15))
    assert [each.shape for each in network.parameters()] == [
        each.shape for each in direct.parameters()
    ]
    direct.load_state_dict(network.state_dict())
    images = torch.rand(2, 1, 20, 20)
    torch.testing.assert_close(direct.eval()(images), network.eval()(images))


def test_frozen_parameters_stay_frozen_and_outside_the_optimizer(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network(dtype=torch.float32)
    find_monomials(network)[2].exponents.requires_grad_(False)
    optimizer = torch.optim.Adam([each for each in network.parameters() if each.requires_grad])
    single = [(images.float(), labels) for images, labels in batches]
    step(network, optimizer, single)
    prune(network, optimizer, KEEP)
    head = find_monomials(network)[2]
    assert not head.exponents.requires_grad
    assert head.exponents.dtype == torch.float32
    step(network, optimizer, single)


@pytest.mark.gpu
def test_pruning_works_on_a_gpu(make_network: MakeNetwork, batches: Batches) -> None:
    network = make_network(norm_before=True).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    moved = [(images.cuda(), labels.cuda()) for images, labels in batches]
    step(network, optimizer, moved)
    network.eval()
    with masked(network, KEEP), torch.no_grad():
        expected = network(moved[0][0])
    prune(network, optimizer, KEEP)
    with torch.no_grad():
        torch.testing.assert_close(network(moved[0][0]), expected)
    step(network.train(), optimizer, moved)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ([], r"expected indices of monomials, each once, got \[\]"),
        ([1, 1], r"each once, got \[1, 1\]"),
        ([6], "there is no monomial 6; the last one is 5"),
    ],
)
def test_wrong_indices_are_refused(
    make_network: MakeNetwork, keep: list[int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        prune(make_network(), None, keep)


def test_a_head_without_monomials_is_refused() -> None:
    for name, head in (("sfcnn-small", "max"), ("cnn-small", None)):
        with pytest.raises(ConfigError, match="the head is GlobalPool and has no monomials"):
            find_monomials(create_model(name, head=head))


def test_what_stands_between_must_keep_features_apart(make_network: MakeNetwork) -> None:
    network = make_network()
    network.classifier = nn.Sequential(nn.LayerNorm(18), nn.Linear(18, 4))
    with pytest.raises(ConfigError, match=r"expected a Linear after the monomials.*got LayerNorm"):
        prune(network, None, KEEP)


def test_an_optimizer_whose_state_cannot_follow_changes_nothing(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network = make_network()
    optimizer = torch.optim.Adafactor(network.parameters())
    step(network, optimizer, batches)
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(
        ConfigError, match=r"the optimizer has 'row_var' of shape .* use Adam or SGD"
    ):
        prune(network, optimizer, KEEP)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)


def test_the_head_may_stand_alone() -> None:
    network = create_model("sfcnn-small", head="monomials")
    alone = Network(network.features, network.head[1], network.classifier)  # type: ignore[index]
    parent, name, head = find_monomials(alone)
    assert parent is alone
    assert name == "head"
    assert isinstance(head, MonomialIntegration)


def test_a_checkpoint_goes_on_bit_for_bit_in_a_network_pruned_to_its_number(
    make_network: MakeNetwork, batches: Batches
) -> None:
    network, optimizer = trained(make_network, batches, norm_before=True)
    prune(network, optimizer, KEEP)
    again = make_network(norm_before=True)
    prune(again, None, range(len(KEEP)))
    other = OPTIMIZERS["adam"](again.parameters())
    again.load_state_dict(network.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(network, optimizer, batches)
    step(again, other, batches)
    torch.testing.assert_close(again.state_dict(), network.state_dict(), rtol=0, atol=0)
    assert find_monomials(again)[2].monomials == find_monomials(network)[2].monomials
