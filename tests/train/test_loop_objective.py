from functools import partial

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.backends import cudnn

from invint import create_model
from invint.models import Network
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d
from invint.train.loop import TERMS, Objective, make_optimizer

SMALL = {"widths": (2, 3, 4), "n_fc": 6, "num_classes": 3, "image_size": 12, "dropout": 0.0}


@pytest.fixture
def network() -> Network:
    network = create_model("sfcnn-small", head="max", group="C4", **SMALL)  # type: ignore[arg-type]
    for parameter in network.parameters():  # coefficients start at 0 and 1, which hides mistakes
        nn.init.normal_(parameter)
    return network.double().eval()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 1, 12, 12, dtype=torch.float64), torch.tensor([0, 2, 2, 1, 2])


def test_the_loss_is_the_sum_of_its_terms_as_written(
    network: Network, batch: tuple[Tensor, Tensor]
) -> None:
    reg, factor, norm_factor = 0.2, 1e-7, 0.1
    objective = Objective(network, reg=reg, elastic=factor, norm_penalty=norm_factor)
    terms = dict(zip(TERMS, objective(*batch).tolist(), strict=True))
    logits = network(batch[0]).detach().float()
    entropy, wrong = 0.0, 0
    for row, label in zip(logits, batch[1].tolist(), strict=True):
        entropy += float(torch.logsumexp(row, 0) - row[label]) / 5
        wrong += int(row.argmax()) != label
    elastic = norm = 0.0
    for module in network.modules():
        if isinstance(module, LiftConv2d | GroupConv2d):
            elastic += sum(abs(w) + w**2 for w in module.weight.flatten().tolist())
        if isinstance(module, GroupBatchNorm | nn.BatchNorm1d):
            norm += sum(value**2 for value in module.weight.tolist() + module.bias.tolist())
    assert elastic > 0
    assert norm > 0
    assert terms["cross_entropy"] == pytest.approx(entropy, rel=1e-5)
    assert terms["elastic"] == pytest.approx(reg * factor * elastic, rel=1e-5)
    assert terms["norm_penalty"] == pytest.approx(reg * norm_factor * norm, rel=1e-5)
    total = entropy + reg * factor * elastic + reg * norm_factor * norm
    assert terms["loss"] == pytest.approx(total, rel=1e-5)
    assert terms["error"] == pytest.approx(wrong / 5)


def test_the_norm_penalty_of_a_fresh_wide_network_is_above_the_cross_entropy() -> None:
    """As the specification works out for reg 0.2: 0.02 for each scale that starts at 1."""
    network = create_model("sf-wrn16-4", head="local-ws", n_fc=36)
    norm = Objective(network, reg=0.2, norm_penalty=0.1).norm_term(torch.zeros(()))
    scales = [
        module.weight.numel()
        for module in network.modules()
        if isinstance(module, GroupBatchNorm | nn.BatchNorm1d | nn.BatchNorm2d)
    ]
    assert norm.item() == pytest.approx(0.02 * sum(scales), rel=1e-5)
    assert 7 <= norm.item() <= 9


def test_without_a_constant_there_are_no_penalties(
    network: Network, batch: tuple[Tensor, Tensor]
) -> None:
    terms = Objective(network, reg=0.0, elastic=1.0, norm_penalty=1.0)(*batch)
    assert terms[2:4].tolist() == [0, 0]
    assert terms[0] == terms[1]


def test_penalties_reach_the_gradients_of_what_they_name(network: Network) -> None:
    objective = Objective(network, reg=2.0, elastic=3.0, norm_penalty=5.0)
    like = torch.zeros((), dtype=torch.float64)
    (objective.elastic_term(like) + objective.norm_term(like)).backward()  # type: ignore[no-untyped-call]
    for module in network.modules():
        if isinstance(module, LiftConv2d | GroupConv2d):
            weight = module.weight
            torch.testing.assert_close(weight.grad, 6.0 * (weight.sign() + 2 * weight))
        elif isinstance(module, GroupBatchNorm | nn.BatchNorm1d):
            torch.testing.assert_close(module.bias.grad, 20.0 * module.bias)
        elif isinstance(module, nn.Linear):
            assert module.weight.grad is None


def test_class_weights_multiply_the_loss_of_each_image(
    network: Network, batch: tuple[Tensor, Tensor]
) -> None:
    weights = torch.tensor([3.0, 0.5, 1.0])
    terms = Objective(network, class_weights=weights)(*batch)
    logits = network(batch[0]).detach().float()
    each = [
        weights[label] * (torch.logsumexp(row, 0) - row[label])
        for row, label in zip(logits, batch[1], strict=True)
    ]
    torch.testing.assert_close(terms[1], torch.stack(each).mean())


def test_nothing_is_added_to_the_state_of_the_network(network: Network) -> None:
    objective = Objective(network, class_weights=torch.ones(3))
    assert [f"network.{key}" for key in network.state_dict()] == list(objective.state_dict())


@pytest.mark.unchecked
def test_compiled_features_give_the_same_terms_and_gradients_with_every_head(
    batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was compiled for one head serves the others."""
    # einops notes each type it meets, and compiled code is made anew when it has met another.
    rearrange(nn.Parameter(torch.zeros(1, 1)), "a b -> b a")
    torch.compiler.reset()
    compiled = partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", lambda body, **_: compiled(body))
    counters["stats"].clear()
    for head in ("max", "monomials", "sf-ii"):
        network = create_model("sfcnn-small", head=head, group="C4", **SMALL).double()  # type: ignore[arg-type]
        objective = Objective(network, reg=0.3, elastic=0.2, norm_penalty=0.1)
        first, *wanted = _terms_and_gradients(objective, batch)
        objective.compile_features(graphs=False)
        again, *found = _terms_and_gradients(objective, batch)
        torch.testing.assert_close(again, first)
        torch.testing.assert_close(found, wanted)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.gpu
@pytest.mark.unchecked
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # torch makes one itself
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("side", [12, 23])  # maps of the latter are no multiple of 128 bytes
@cudnn.flags(enabled=True, allow_tf32=False)
def test_steps_as_graphs_on_a_gpu_are_those_of_the_plain_path(half: bool, side: int) -> None:
    images, labels = torch.randn(16, 1, side, side).cuda(), torch.arange(16).cuda() % 3
    size = {**SMALL, "image_size": side}
    ends = []
    for compiled in (False, True):
        torch.manual_seed(0)
        network = create_model("sfcnn-small", head="local-ws", group="C4", **size).cuda()  # type: ignore[arg-type]
        objective = Objective(network, reg=0.3, elastic=1e-3, norm_penalty=0.1)
        if compiled:
            objective.compile_features(graphs=True)
        optimizer = make_optimizer(network, "sgd", lr=0.01)
        for _ in range(6):  # replayed from the third on
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                terms = objective(images, labels)
            terms[0].backward()
            optimizer.step()
        parameters = (each.detach() for each in network.parameters())
        ends.append([terms[:-1].detach().clone(), *parameters])  # the share of errors would jump
    tolerance = 2e-2 if half else 1e-4
    torch.testing.assert_close(ends[1], ends[0], rtol=tolerance, atol=tolerance)


def _terms_and_gradients(objective: Objective, batch: tuple[Tensor, Tensor]) -> list[Tensor]:
    objective.zero_grad()
    terms = objective(*batch)
    terms[0].backward()
    found = [each.grad for each in objective.network.parameters()]
    return [terms.detach(), *(each.clone() for each in found if each is not None)]


def test_smoothed_labels_are_those_of_the_formula() -> None:
    network, (images, labels) = nn.Linear(4, 3), (torch.randn(6, 4), torch.arange(6) % 3)
    network_of_images = nn.Sequential(nn.Flatten(), network)
    images = images[:, None, :, None]
    terms = Objective(network_of_images, label_smoothing=0.3)(images, labels)
    logs = network_of_images(images).log_softmax(dim=1)
    smoothed = 0.7 * torch.eye(3)[labels] + 0.3 / 3
    torch.testing.assert_close(terms[1], -(smoothed * logs).sum(dim=1).mean())
