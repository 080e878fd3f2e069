"""What every network promises, over the registry."""

import copy
import pickle

import pytest
import torch
from support.narrow_networks import narrow, train
from torch import nn

from invint import ConfigError, parse_group
from invint.models import MODELS, create_model, list_models
from invint.models.registry import PAPER as FIGURES
from invint.models.registry import summaries, summarize
from invint.nn import HEADS
from invint.testing import assert_invariant

# Backbones have fixed widths, take larger images, and have tests of their own.
STEERABLE = [name for name, entry in MODELS.items() if entry.group and not entry.load]
PAPER = [  # network, head, the paper's millions of parameters, size of its images
    ("wrn16-4", None, 2.75, 32),
    ("sf-wrn16-4", "max", 2.76, 32),
    ("sf-wrn16-4", "monomials", 2.78, 32),
    ("sf-wrn16-4", "global-ws", 2.83, 32),
    ("sf-wrn16-4", "local-ws", 2.77, 32),
    ("wrn28-10", None, 36.5, 32),
    ("sf-wrn28-10", "max", 36.7, 32),
    ("sf-wrn28-10", "monomials", 36.8, 32),
    ("sf-wrn28-10", "local-ws", 36.9, 32),
    ("wrn16-8", None, 10.97, 96),
    ("sf-wrn16-8", "max", 10.83, 96),
    ("sf-wrn16-8", "monomials", 10.85, 96),
    ("sf-wrn16-8", "local-ws", 10.92, 96),
]


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "head", "millions", "size"), PAPER)
def test_parameters_are_those_of_the_paper_within_two_percent(
    name: str, head: str | None, millions: float, size: int
) -> None:
    model = create_model(name, head=head, image_size=size)
    assert count(model) / 1e6 == pytest.approx(millions, rel=0.02)


def test_wide_residual_networks_have_their_exact_number_of_parameters() -> None:
    assert count(create_model("wrn16-4")) == 2_748_890
    assert count(create_model("wrn16-8")) == 10_961_370


def test_the_small_networks_are_equal_in_parameters() -> None:
    plain, steerable = (count(create_model(name)) for name in ("cnn-small", "sfcnn-small"))
    assert plain == pytest.approx(steerable, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["C4", "D4"])
@pytest.mark.parametrize("name", STEERABLE)
def test_logits_stay_as_images_turn(name: str, group: str) -> None:
    model = narrow(name, group=group, image_size=14)
    x = torch.randn(4, 1, 14, 14, dtype=torch.float64)
    assert_invariant(model.eval(), x, parse_group(group))
    train(model, x)
    assert_invariant(model, x, parse_group(group), rounding=1e4)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("size", [(12, 12), (13, 13), (14, 17)], ids=str)
def test_every_head_stays_on_every_size(head: str, size: tuple[int, int]) -> None:
    model = narrow("sfcnn-small", head=head, group="D4", image_size=size)
    x = torch.randn(4, 1, *size, dtype=torch.float64)
    train(model, x)
    assert_invariant(model, x, parse_group("D4"), rounding=1e4)


@pytest.mark.parametrize("name", ["cnn7", "cnn-small", "wrn16-4"])
def test_plain_networks_run_and_do_not_stay(name: str) -> None:
    model = create_model(name, num_classes=3, in_channels=1).double().eval()
    x = torch.randn(2, 1, 28, 28, dtype=torch.float64)
    assert model(x).shape == (2, 3)
    with pytest.raises(AssertionError, match=r"off by .* under a turn by 90°"):
        assert_invariant(model, x, parse_group("C4"))


@pytest.mark.parametrize("name", ["sfcnn-small", "sf-wrn16-4"])
def test_the_halves_make_the_whole(name: str) -> None:
    model = narrow(name, image_size=12).eval()
    x = torch.randn(2, 1, 12, 12, dtype=torch.float64)
    features = model.forward_features(x)
    assert features.shape == (2, 4, 8, 3, 3)
    assert torch.equal(model.forward_head(features), model(x))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), model(x))
    assert list(model.train().state_dict()) == list(model.eval().state_dict())


def test_says_what_there_is() -> None:
    assert list_models() == list(MODELS)
    with pytest.raises(ConfigError, match=r"no network 'sfcn'; did you mean 'sfcnn'\? there are"):
        create_model("sfcn")
    with pytest.raises(ConfigError, match="wrn16-4 is a plain network: it takes neither a head no"):
        create_model("wrn16-4", head="monomials")
    with pytest.raises(ConfigError, match="sfcnn-small has no option 'speed'; it has head, num_"):
        create_model("sfcnn-small", speed=3)
    with pytest.raises(
        ConfigError, match="sfcnn has no pretrained weights; efficientnet-lite0, or"
    ):
        create_model("sfcnn", pretrained=True)
    with pytest.raises(ConfigError, match="sfcnn: expected one kernel size for each of 2 widths"):
        create_model("sfcnn", widths=(2, 3))
    with pytest.raises(ConfigError, match=r"have depth 6n \+ 4 \(10, 16, 22, …\), got 17"):
        create_model("wrn16-4", depth=17)
    with pytest.raises(ConfigError, match=r"cnn7: images must be at least 28 x 28, got \(20, 20\)"):
        create_model("cnn7", image_size=20)


def test_every_figure_of_the_paper_belongs_to_a_network() -> None:
    assert set(FIGURES) <= set(summaries())


def test_operations_are_those_of_the_convolutions() -> None:
    """Count the multiplications of the small plain network by hand."""
    convolutions = 25 * (20 * 20 * 16 + 10 * 10 * 16 * 24 + 5 * 5 * 24 * 40)
    dense = 40 * 32 + 32 * 32 + 32 * 10
    assert summarize("cnn-small").operations == convolutions + dense
