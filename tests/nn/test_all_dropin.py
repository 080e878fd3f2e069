"""Heads in the place of a network's pooling: the example, and a network of timm."""

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint import Cyclic, ShapeError
from invint.testing import assert_invariant

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "dropin.py"))
DROP_IN: list[str] = EXAMPLE["DROP_IN"]
IMAGE = (1, 16, 16)
each_head = pytest.mark.parametrize("name", DROP_IN)


def model_of(backbone: nn.Module, name: str, image: tuple[int, int, int]) -> nn.Sequential:
    model: nn.Sequential = EXAMPLE["with_head"](
        backbone, name, image=image, group=Cyclic(4), classes=10
    )
    return model


def assert_learns(model: nn.Sequential, images: Tensor) -> None:
    """Take one step of an optimizer: gradients reach the first layer, and the loss falls."""
    __tracebackhide__ = True
    labels = torch.arange(len(images))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss = cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    backbone, head, classifier = model
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    for parameter in (next(backbone.parameters()), *head.parameters(), *classifier.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.any()
    optimizer.step()
    assert cross_entropy(model(images), labels) < loss


@each_head
def test_an_ordinary_network_learns_with_any_head(name: str) -> None:
    model = model_of(EXAMPLE["plain_backbone"](), name, IMAGE)
    images = torch.rand(8, *IMAGE)
    assert model(images).shape == (8, 10)
    assert_learns(model, images)


@each_head
def test_invariance_is_that_of_the_backbone(name: str) -> None:
    images = torch.rand(2, *IMAGE, dtype=torch.float64)
    plain = model_of(EXAMPLE["plain_backbone"](), name, IMAGE).double().eval()
    with pytest.raises(AssertionError, match=r"off by .* under a turn by 90°"):
        assert_invariant(plain, images, Cyclic(4))
    backbone = EXAMPLE["steerable_backbone"](Cyclic(4))
    assert_invariant(model_of(backbone, name, IMAGE).double().eval(), images, Cyclic(4))


def test_finding_the_size_leaves_the_backbone_as_it_was() -> None:
    backbone = EXAMPLE["plain_backbone"]().train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    model_of(backbone, "avg", IMAGE)
    assert backbone.training
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name])


def test_maps_that_are_not_square_are_welcome() -> None:
    for name in DROP_IN:
        model = model_of(EXAMPLE["plain_backbone"](), name, (1, 20, 16))
        assert model(torch.rand(2, 1, 20, 16)).shape == (2, 10)


@pytest.mark.unchecked
def test_the_steerable_control_needs_a_map_on_the_group() -> None:
    model = model_of(EXAMPLE["plain_backbone"](), "sf-ii", IMAGE)
    with pytest.raises(ShapeError, match="SteerableIntegration: expected 5 axes, got 4"):
        model(torch.rand(2, *IMAGE))


def test_the_example_prints_a_line_per_head(capsys: pytest.CaptureFixture[str]) -> None:
    EXAMPLE["main"]()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[3:]]
    assert [line[0] for line in lines] == DROP_IN
    for *_, plain, steerable in lines:
        assert float(plain) > 1e-3
        assert float(steerable) < 1e-5


@pytest.mark.slow
@each_head
def test_a_network_of_timm_learns_with_any_head(name: str) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    backbone = timm.create_model("resnet18", pretrained=False, num_classes=0, global_pool="")
    images = torch.rand(4, 3, 96, 96)
    assert backbone(images).shape == (4, 512, 3, 3)
    assert_learns(model_of(backbone, name, (3, 96, 96)), images)
