"""Backbones of others, and what is refused of them."""

import copy
import hashlib
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from invint import ConfigError, ShapeError, create_model, parse_group
from invint.models.backbones import OnnxBackbone, load_backbone
from invint.models.efficientnet import WEIGHTS
from invint.nn import Orbit, make_head
from invint.testing import assert_invariant
from invint.train.features import orbit_features

C4 = parse_group("C4")


class Stub(nn.Module):
    """What timm's networks have of what is used here."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.stem = nn.Conv2d(3, 5, 3, stride=2)
        self.fc: nn.Module = nn.Linear(5, 7)
        self.pretrained_cfg = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.6, 0.7)}
        self.pooled = True

    def reset_classifier(self, classes: int, global_pool: str) -> None:
        assert (classes, global_pool) == (0, "")
        self.fc, self.pooled = nn.Identity(), False

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.stem(x)
        out: Tensor = self.fc(maps.mean(dim=(2, 3)) if self.pooled else maps)
        return out


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a module in the place of timm, which may not be installed."""

    def make(name: str, *, pretrained: bool) -> Stub:
        assert not pretrained
        return Stub(name)

    timm: Any = SimpleNamespace(create_model=make)
    monkeypatch.setitem(sys.modules, "timm", timm)
    return timm


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_networks_of_timm_give_their_last_map_of_normalised_images(
    suffix: str, tmp_path: Path
) -> None:
    learnt, path = Stub("resnet"), tmp_path / f"weights.{suffix}"
    if suffix == "pth":
        torch.save(learnt.state_dict(), path)
    else:
        save_file(learnt.state_dict(), path)
    backbone = load_backbone("timm:resnet", path)
    x = torch.rand(2, 3, 9, 9)
    mean, std = torch.tensor([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])[..., None, None]
    torch.testing.assert_close(backbone(x), learnt.stem((x - mean) / std))
    assert_invariant(Orbit(backbone, C4), x, C4)
    with pytest.raises(ConfigError, match="load_backbone: timm:resnet needs weights, a local file"):
        load_backbone("timm:resnet")


def test_timm_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="load_backbone: 'timm:x' needs timm; pip install timm"):
        load_backbone("timm:x", "weights.pth")


def test_any_module_takes_weights_from_a_file(tmp_path: Path) -> None:
    learnt, path = Stub("mine"), tmp_path / "weights.pth"
    torch.save(learnt.state_dict(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    x = torch.rand(2, 3, 9, 9)
    torch.testing.assert_close(load_backbone(Stub("mine"), path, sha256=digest)(x), learnt(x))
    normal = load_backbone(Stub("mine"), path, std=(0.5, 0.5, 0.5))
    torch.testing.assert_close(normal(x), learnt(2 * x))
    with pytest.raises(ConfigError, match="expected 0000000000000000…; get the file again"):
        load_backbone(Stub("mine"), path, sha256="0" * 64)
    with pytest.raises(ConfigError, match="not the weights of this Conv2d: it lacks bias, weight;"):
        load_backbone(nn.Conv2d(1, 1, 1), path)
    with pytest.raises(ConfigError, match="load_backbone: Stub needs weights, a local file"):
        load_backbone(Stub("mine"))


def test_names_of_ours_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    learnt = create_model("efficientnet-lite0").features
    torch.save(learnt.state_dict(), path)
    for name in ("efficientnet-lite0", "orbit-efficientnet-lite0"):
        backbone = load_backbone(name, path)
        assert all(map(torch.equal, backbone.state_dict().values(), learnt.state_dict().values()))
    message = (
        "load_backbone: expected efficientnet-lite0, orbit-efficientnet-lite0, 'timm:NAME', "
        "an .onnx file or a module, got 'sfcnn'"
    )
    with pytest.raises(ConfigError, match=message):
        load_backbone("sfcnn")
    pytest.importorskip(WEIGHTS)
    pretrained = create_model("efficientnet-lite0", pretrained=True).features.state_dict()
    found = load_backbone("efficientnet-lite0").state_dict()
    assert all(map(torch.equal, found.values(), pretrained.values()))


def write_onnx(path: Path, batch: int | str) -> Path:
    """Write a convolution of stride 2 and its mean by hand: quicker than exporting."""
    from onnx import TensorProto, helper, numpy_helper, save

    torch.manual_seed(0)
    weight = torch.randn(4, 3, 3, 3).numpy()
    nodes = [
        helper.make_node("Conv", ["images", "weight"], ["map"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["map"], ["mean"]),
    ]
    shapes: dict[str, list[int | str | None]] = {
        "images": [batch, 3, 9, 9],
        "map": [batch, 4, 4, 4],
        "mean": [batch, 4, 1, 1],
    }
    images, *outputs = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    constants = [numpy_helper.from_array(weight, "weight")]
    graph = helper.make_graph(nodes, "backbone", [images], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    save(model, str(path))
    return path


@pytest.fixture(scope="session")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_onnx(tmp_path_factory.mktemp("onnx") / "backbone.onnx", "b")


def test_an_onnx_file_is_a_frozen_backbone(onnx_file: Path) -> None:
    backbone, x = load_backbone(onnx_file), torch.rand(2, 3, 9, 9)
    torch.manual_seed(0)
    weight = torch.randn(4, 3, 3, 3)
    maps = torch.conv2d(x, weight, stride=2)
    torch.testing.assert_close(backbone(x), maps)
    pooled = OnnxBackbone(onnx_file, output="mean")(x)
    torch.testing.assert_close(pooled, maps.mean(dim=(2, 3), keepdim=True))
    for twin in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
        assert torch.equal(twin(x), backbone(x))
    layer = Orbit(backbone, C4, frozen=True)
    assert_invariant(layer, x, C4)
    torch.testing.assert_close(orbit_features(backbone, x, C4), layer(x))


def test_a_head_learns_on_an_onnx_file_and_the_file_does_not(onnx_file: Path) -> None:
    head = make_head("local-ws", channels=4, size=4, group=C4)
    layer, x = (
        Orbit(load_backbone(onnx_file), C4, head, frozen=True).train(),
        torch.rand(2, 3, 9, 9),
    )
    layer(x).sum().backward()
    assert all(each.grad is not None for each in layer.parameters())
    tuned = Orbit(load_backbone(onnx_file), C4).train()
    message = "OnnxBackbone: backbone.onnx is frozen, no gradient passes it; use Orbit"
    with pytest.raises(ConfigError, match=message):
        tuned(x)
    with pytest.raises(ConfigError, match=message):
        tuned.eval()(x.requires_grad_(True))


def test_onnx_files_are_checked(onnx_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it has no output 'logits'; it has 'map', 'mean'"):
        OnnxBackbone(onnx_file, output="logits")
    with pytest.raises(ConfigError, match="expected 0000000000000000…; get the file again"):
        load_backbone(onnx_file, sha256="0" * 64)
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"damaged")
    with pytest.raises(
        ConfigError, match=r"damaged.onnx: it is not an ONNX file, or a damaged one"
    ):
        load_backbone(damaged)


def test_a_file_for_a_fixed_number_of_images_gets_them_so(onnx_file: Path, tmp_path: Path) -> None:
    x = torch.rand(4, 3, 9, 9)
    for count in (1, 2):
        fixed = OnnxBackbone(write_onnx(tmp_path / "fixed.onnx", count))
        torch.testing.assert_close(fixed(x), OnnxBackbone(onnx_file)(x))
    with pytest.raises(
        ShapeError, match=r"OnnxBackbone: fixed.onnx takes 2 images at a time, got 3"
    ):
        fixed(x[:3])


def test_an_onnx_file_is_not_compiled(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = OnnxBackbone(onnx_file)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    message = "OnnxBackbone: backbone.onnx cannot be compiled or exported again"
    with pytest.raises(ConfigError, match=message):
        backbone(torch.rand(1, 3, 9, 9))
