"""Files compute what the network computes, and are refused where they should be."""

import io
import json
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invint import ConfigError, ShapeError, create_model, parse_group
from invint.export import FORMATS, KEY, ModelCard, export_model, load_model
from invint.export.archive import OPERATIONS
from invint.export.files import write_program
from invint.models import Network
from invint.models.fold import fold
from invint.nn import HEADS, Monomials
from invint.ops.steerable import Rings

onnx = pytest.importorskip("onnx")
safetensors = pytest.importorskip("safetensors.torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

NAMES = ("cat", "dog", "owl")
NARROW: dict[str, Any] = {"widths": [2, 3, 4], "n_fc": 6}
SPEC: dict[str, Any] = {"num_classes": 3, "in_channels": 2, "image_size": (12, 12), "group": "C4"}


def small(head: str = "max", **options: Any) -> tuple[Network, ModelCard]:
    """Return a small network that is not as it was built, and its card."""
    options = NARROW | options
    spec = {"name": "sfcnn-small", "head": head, **SPEC}
    model = create_model(**spec, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        logits = model(torch.rand(6, 2, 12, 12))
        nn.functional.cross_entropy(logits, torch.arange(6) % 3).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    card = ModelCard.from_spec(
        spec | {"options": options}, class_names=NAMES, mean=(0.4, 0.5), std=(0.2, 0.3)
    )
    return model, card


def expected(model: nn.Module, card: ModelCard, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (card.mean, card.std))
    with torch.no_grad():
        logits: Tensor = model.eval()((images - mean) / std)
    return logits


def assert_refused(path: Path, match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        load_model(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("head", HEADS)
def test_onnx_is_the_network_and_stays_as_images_turn(head: str, tmp_path: Path) -> None:
    model, card = small(head)
    assert export_model(model, tmp_path / "a.onnx", card) < 1e-4
    assert model.training
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]
    loaded = load_model(tmp_path / "a.onnx")
    assert loaded.card == card
    images = torch.rand(5, 2, 12, 12)
    logits = loaded(images)
    torch.testing.assert_close(logits, expected(model, card, images), rtol=1e-4, atol=1e-4)
    for turns in (1, 2, 3):
        turned = loaded(torch.rot90(images, turns, dims=(2, 3)))
        torch.testing.assert_close(turned, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".safetensors"])
@pytest.mark.parametrize("head", ["monomials", "attention"])
def test_files_hold_no_path_of_the_machine_that_wrote_them(
    suffix: str, head: str, tmp_path: Path
) -> None:
    model, card = small(head)
    path = tmp_path / f"a{suffix}"
    export_model(model, path, card)
    content = path.read_bytes()
    if suffix == ".pt2":
        with zipfile.ZipFile(path) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
    for module in (sys.modules["invint.export"], torch):
        assert str(Path(str(module.__file__)).parents[1]).encode() not in content


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_residual_networks_export_on_odd_sizes(suffix: str, tmp_path: Path) -> None:
    narrow: dict[str, Any] = {"stem": 2, "widths": [2, 3, 4], "kernel_size": 3}
    spec: dict[str, Any] = {"name": "sf-wrn16-4", **SPEC, "group": "D4", "image_size": (9, 11)}
    model = create_model(**spec, **narrow)
    model(torch.randn(8, 2, 9, 11))  # leaves statistics behind
    card = ModelCard.from_spec(spec | {"options": narrow}, class_names=NAMES)
    assert export_model(model, tmp_path / f"a{suffix}", card) < 1e-4
    loaded, images = load_model(tmp_path / f"a{suffix}"), torch.rand(3, 2, 9, 11)
    for axes in [(2,), (3,), (2, 3)]:
        moved = loaded(torch.flip(images, axes))
        torch.testing.assert_close(moved, loaded(images), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("head", ["max", "monomials", "sf-ii"])
def test_torch_files_are_the_network(head: str, tmp_path: Path) -> None:
    model, card = small(head)
    assert export_model(model, tmp_path / "a.pt2", card, format="torch") < 1e-4
    loaded = load_model(tmp_path / "a.pt2")
    assert loaded.card == card
    images = torch.rand(5, 2, 12, 12)
    logits = expected(model, card, images)
    torch.testing.assert_close(loaded(images), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_networks_of_your_own_and_plain_ones_export(suffix: str, tmp_path: Path) -> None:
    own = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).double()
    path = tmp_path / f"own{suffix}"
    assert export_model(own, path, ModelCard(("a", "b"), (6, 7), 1)) < 1e-4
    assert load_model(path).card.group is None
    assert load_model(path).name == path.name
    plain = create_model("cnn-small", num_classes=2, in_channels=1, widths=(2, 2, 3))
    assert export_model(plain, path, ModelCard(("a", "b"), (8, 8), 1)) < 1e-4
    assert load_model(path)(torch.rand(1, 1, 8, 8)).shape == (1, 2)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_files_run_where_there_is_no_invint(suffix: str, tmp_path: Path) -> None:
    model, card = small("monomials")
    export_model(model, tmp_path / f"a{suffix}", card)
    images = torch.rand(4, 2, 12, 12)
    torch.save(images, tmp_path / "images.pt")
    run = {
        ".onnx": "session = onnxruntime.InferenceSession('a.onnx')\n"
        "card = json.loads(session.get_modelmeta().custom_metadata_map['invint'])\n"
        "logits = session.run(None, {'images': images.numpy()})[0].tolist()\n",
        ".pt2": "extra = {'invint.json': ''}\n"
        "program = torch.export.load('a.pt2', extra_files=extra).module()\n"
        "card = json.loads(extra['invint.json'])\n"
        "logits = program(images).tolist()\n",
    }[suffix]
    script = (
        "import json, sys\nsys.modules['invint'] = None\nimport onnxruntime, torch\n"
        f"images = torch.load('images.pt')\n{run}"
        "print(json.dumps([card, logits]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    read, logits = json.loads(done.stdout)
    assert (read["class_names"], read["image_size"]) == (list(NAMES), [12, 12])
    assert (read["group"], read["format_version"]) == ("C4", 1)
    close = expected(model, card, images)
    torch.testing.assert_close(torch.tensor(logits), close, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_safetensors_bring_the_network_back(head: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model, card = small(head)
    model.to(dtype)
    path = tmp_path / "new" / "a.safetensors"
    state = torch.get_rng_state()
    assert export_model(model, path, card) < 1e-4
    loaded = load_model(path)
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.card == card
    assert loaded.name == f"{card.name}, {head}"
    images = torch.rand(3, 2, 12, 12, dtype=dtype)
    torch.testing.assert_close(loaded(images), expected(model, card, images))


def test_half_precision_is_stored_and_run_in_full(tmp_path: Path) -> None:
    model, card = small()
    assert export_model(model.bfloat16(), tmp_path / "a.safetensors", card) < 1e-4
    assert load_model(tmp_path / "a.safetensors")(torch.rand(1, 2, 12, 12)).dtype == torch.float32


def test_monomials_and_rings_travel(tmp_path: Path) -> None:
    monomials = Monomials.random(4, max_distance=2, factors=2, own_angles=True)
    rings = Rings((0, 1, 2), (0.6, 0.5, 0.4))
    options = {"rings": rings, "head_options": {"monomials": monomials, "floor": 0.2}}
    model, card = small("monomials", **options)
    export_model(model, tmp_path / "a.safetensors", card)
    back = load_model(tmp_path / "a.safetensors").card
    assert back == card
    assert back.options["rings"] == rings
    assert back.options["head_options"]["monomials"] == monomials


def test_a_card_knows_what_is_the_default() -> None:
    card = ModelCard.from_spec({"name": "sfcnn", "image_size": 28, "in_channels": 1})
    assert (card.group, card.image_size, len(card.class_names)) == ("C16", (28, 28), 10)
    spec = {"name": "sfcnn", "image_size": 28, "in_channels": 1, "group": parse_group("D4")}
    assert ModelCard.from_spec(spec).group == "D4"
    assert ModelCard.from_spec(spec | {"name": "cnn7", "group": None}).group is None


def test_bad_cards_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"mean must be one number or one for each of 3 channels"):
        ModelCard(("a",), (8, 8), 3, mean=(0.1, 0.2))
    with pytest.raises(ConfigError, match="std must be positive, got"):
        ModelCard(("a",), (8, 8), 3, std=(0.0,))
    with pytest.raises(ConfigError, match="options must be plain data"):
        ModelCard(("a",), (8, 8), 3, options={"group": parse_group("C4")})
    with pytest.raises(ConfigError, match="the spec lacks name, in_channels"):
        ModelCard.from_spec({"image_size": 8})


def test_bad_exports_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    model, card = small()
    path = tmp_path / "a.safetensors"
    with pytest.raises(ConfigError, match=r"expected a file ending in .onnx, .pt2, .safetensors"):
        export_model(model, tmp_path / "a.pt", card)
    with pytest.raises(ConfigError, match=r"expected a file ending in .onnx, got .*a.safetensors"):
        export_model(model, path, card, format="onnx")
    with pytest.raises(ConfigError, match="no format 'tflite'; there are onnx, torch, safetensors"):
        export_model(model, path, card, format="tflite")
    anonymous = ModelCard(NAMES, (12, 12), 2)
    with pytest.raises(ConfigError, match="needs the name of the network"):
        export_model(model, path, anonymous)
    other = ModelCard.from_spec({"name": "cnn-small", **SPEC, "group": None}, class_names=NAMES)
    with pytest.raises(ConfigError, match="the weights are not those of its card: Error"):
        export_model(model, path, other)
    with torch.no_grad():
        next(iter(model.parameters())).fill_(torch.nan)
    with pytest.raises(ConfigError, match=r"off by nan, more than .* nothing was written"):
        export_model(model, path, card)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.unchecked
def test_class_names_must_fit_the_logits(tmp_path: Path) -> None:
    model, _ = small()
    with pytest.raises(ConfigError, match="expected a logit for each of 2 class names"):
        export_model(model, tmp_path / "a.pt2", ModelCard(("a", "b"), (12, 12), 2))


def test_images_are_checked(tmp_path: Path) -> None:
    model, card = small()
    export_model(model, tmp_path / "a.safetensors", card)
    loaded = load_model(tmp_path / "a.safetensors")
    with pytest.raises(ShapeError, match="LoadedModel: expected h=12, got h=14"):
        loaded(torch.rand(1, 2, 14, 14))


@pytest.mark.unchecked
def test_bytes_are_not_images(tmp_path: Path) -> None:
    model, card = small()
    export_model(model, tmp_path / "a.safetensors", card)
    with pytest.raises(ShapeError, match=r"got torch.uint8; divide by 255"):
        load_model(tmp_path / "a.safetensors")(torch.zeros(1, 2, 12, 12, dtype=torch.uint8))


def test_pickles_are_never_read(tmp_path: Path) -> None:
    model, _ = small()
    for name in ("a.pt", "a.pth", "a.pkl"):
        torch.save(model.state_dict(), tmp_path / name)
        assert_refused(
            tmp_path / name, "a pickle can run any code when it is read, so none is; export"
        )
    archive, plain = (tmp_path / "a.pt").read_bytes(), pickle.dumps({"weight": 1})
    for suffix in FORMATS.values():
        path = tmp_path / f"disguised{suffix}"
        path.write_bytes(plain)
        assert_refused(path, "it is a pickle, not a")
        path.write_bytes(archive)
        words = "data.pkl' has no place" if suffix == ".pt2" else "it is a zip archive, as torch.sa"
        assert_refused(path, words)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.onnx", "there is no such file")
    (tmp_path / "a.txt").write_text("hello")
    assert_refused(tmp_path / "a.txt", "expected a file ending in .onnx, .pt2, .safetensors")
    for suffix in FORMATS.values():
        path = tmp_path / f"empty{suffix}"
        path.write_bytes(b"")
        assert_refused(path, "or only a part of one|no metadata")
        path.write_bytes(b"hello, this is no network")
        assert_refused(path, "or only a part of one; export or copy it again")


def test_safetensors_are_refused_for_what_is_wrong(tmp_path: Path) -> None:
    model, card = small()
    path = tmp_path / "a.safetensors"
    export_model(model, path, card)
    content = path.read_bytes()
    for part in (4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:part])
        assert_refused(path, "it is not a safetensors file, or only a part of one")
    for text, match in BAD_CARDS:
        metadata = None if text is None else {KEY: text}
        safetensors.save_file(model.state_dict(), path, metadata=metadata)
        assert_refused(path, match)


BAD_CARDS = [
    (None, "it carries no metadata of invint; write files with export_model"),
    ('{"format_version": 2}', "format version 2, but this invint reads version 1"),
    ("{}", "the metadata is not a card of invint"),
    ("[1]", "the metadata is not a card of invint"),
    ("{", "the metadata is not a card of invint"),
    ('{"format_version": 1, "class_names": ["a"]}', "the metadata is not a card of invint"),
]


@pytest.mark.slow
@pytest.mark.unchecked
def test_onnx_files_are_refused_for_what_is_wrong(tmp_path: Path) -> None:
    model, card = small()
    path = tmp_path / "a.onnx"
    export_model(model, path, card)
    content = path.read_bytes()
    for part in (100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:part])
        assert_refused(path, "it is not an ONNX file, or only a part of one|no metadata")
    for text, match in BAD_CARDS:
        proto = onnx.load_from_string(content)
        del proto.metadata_props[:]
        if text is not None:
            onnx.helper.set_model_props(proto, {KEY: text})
        onnx.save(proto, path)
        assert_refused(path, match)


@pytest.mark.slow
@pytest.mark.unchecked
def test_torch_files_are_refused_for_what_is_wrong(tmp_path: Path) -> None:
    model, card = small()
    path = tmp_path / "a.pt2"
    export_model(model, path, card)
    content = path.read_bytes()
    for part in (100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:part])
        assert_refused(path, "it is not a torch.export file, or only a part of one")
    for text, match in BAD_CARDS:
        path.write_bytes(changed(content, f"extra/{KEY}.json", text))
        assert_refused(path, match)


class Planted:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_changed_weights_are_found(suffix: str, tmp_path: Path) -> None:
    model, card = small()
    path = tmp_path / f"a{suffix}"
    export_model(model, path, card)
    content = bytearray(path.read_bytes())
    state = model.state_dict() if suffix == ".safetensors" else fold(model).state_dict()
    weight = next(each for each in state.values() if each.numel() > 50)
    place = bytes(content).index(weight.contiguous().numpy().tobytes())
    content[place + 8] ^= 1
    path.write_bytes(content)
    assert_refused(path, "bytes of it have changed since it was written; export or copy it again")


@pytest.mark.slow
@pytest.mark.unchecked
def test_an_operation_that_fails_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, card = small()
    path = tmp_path / "a.pt2"
    export_model(model, path, card)
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        graph = next(each for each in archive.namelist() if each.endswith("models/model.json"))
        text = archive.read(graph).decode()
    program = json.loads(text)
    nodes = program["graph_module"]["graph"]["nodes"]
    last = next(node for node in reversed(nodes) if node["target"].endswith("linear.default"))
    first = next(node for node in nodes if node["target"].endswith("conv2d.default"))
    last["inputs"][0]["arg"] = first["inputs"][0]["arg"]  # an image where features are wanted
    path.write_bytes(changed(content, "models/model.json", json.dumps(program)))
    with pytest.raises(ConfigError) as refused:
        load_model(path)(torch.rand(1, 2, 12, 12))
    assert re.match(rf"{path}: an operation in it fails \(.+\); export the n", str(refused.value))
    assert "\n" not in str(refused.value)
    relu, linear = (f"torch.ops.aten.{name}.default" for name in ("relu", "linear"))
    path.write_bytes(changed(content, "models/model.json", text.replace(relu, linear)))
    capfd.readouterr()
    assert_refused(path, "it is not a torch.export file, or only a part of one")
    assert capfd.readouterr() == ("", "")


def operations_of(model: nn.Module, path: Path, size: int) -> set[str]:
    """Return the operations in an exported program."""
    write_program(model, ModelCard(("a", "b"), (size, size), 1), path)
    with zipfile.ZipFile(path) as archive:
        graph = next(each for each in archive.namelist() if each.endswith("models/model.json"))
        return set(re.findall(r'"target": "([^"]*)"', archive.read(graph).decode()))


def ordinary_layers() -> nn.Module:
    """Return a network of the layers of torch that people put around a head."""
    activations = [
        kind(inplace=inplace)
        for kind in (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Hardswish, nn.Hardsigmoid)
        for inplace in (False, True)
    ]
    smooth = nn.LeakyReLU(), nn.ELU(), nn.GELU(), nn.Sigmoid(), nn.Tanh(), nn.Softplus(), nn.Mish()
    pools = nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)
    end = nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 2)
    norm = nn.GroupNorm(2, 4)
    pad = nn.ZeroPad2d(1)
    return nn.Sequential(
        pad, nn.Conv2d(1, 4, 3), *activations, *smooth, nn.PReLU(), norm, *pools, *end
    )


@pytest.mark.slow
@pytest.mark.unchecked
def test_the_operations_that_are_read_are_those_of_our_exports(tmp_path: Path) -> None:
    path, small = tmp_path / "a.pt2", partial(create_model, "sfcnn-small", image_size=20)
    orbit = partial(create_model, "orbit-efficientnet-lite0", image_size=32)
    scale_free = {"head": "joint-monomials", "head_options": {"scale_free": True}}
    kinds: list[tuple[Callable[..., nn.Module], dict[str, Any], int]] = [
        *((small, {"head": head}, 20) for head in HEADS),
        *((small, {"group_pool": "bispectrum", "group": group}, 20) for group in ("C4", "D4")),
        *((orbit, {"group": group}, 32) for group in ("C8", "D4")),
        (small, scale_free, 20),
        (partial(create_model, "cnn-small"), {}, 20),
        (partial(create_model, "sf-wrn16-4", image_size=20, widths=(4, 8, 8)), {}, 20),
    ]
    found = operations_of(ordinary_layers(), path, 20)
    for build, options, side in kinds:
        model = build(num_classes=2, in_channels=1, **options)
        found |= operations_of(model, path, side)
    assert found == OPERATIONS


@pytest.mark.slow
@pytest.mark.unchecked
def test_torch_files_cannot_bring_code(tmp_path: Path) -> None:
    model, card = small()
    path, trace = tmp_path / "a.pt2", tmp_path / "trace"
    export_model(model, path, card)
    content = path.read_bytes()
    buffer = io.BytesIO()
    torch.save(Planted(trace), buffer)
    path.write_bytes(changed(content, "data/sample_inputs/model.pt", buffer.getvalue()))
    assert_refused(path, "data/sample_inputs/model.pt in it is damaged, or more than tensors")
    path.write_bytes(changed(content, "data/constants/opaque_obj_0", pickle.dumps(Planted(trace))))
    assert_refused(path, "'data/constants/opaque_obj_0' has no place in a torch.export file")
    path.write_bytes(changed(content, "data/aotinductor/model/a.so", b"code"))
    assert_refused(path, "has no place in a torch.export file")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        texts = {entry.partition("/")[2]: archive.read(entry) for entry in archive.namelist()}
    graph, weights = "models/model.json", "data/weights/model_weights_config.json"
    for name, old, new, match in [
        (weights, '"use_pickle": false', '"use_pickle": true', "has use_pickle True, which could"),
        (graph, '"guards_code": []', '"guards_code": ["exit()"]', r"has guards_code \['exit"),
        (graph, "torch.ops.aten.relu.default", "torch.hub.load", "has target 'torch.hub.load'"),
        (graph, "torch.ops.aten.relu.default", "torch.ops.aten.save", "not among the operations"),
        (graph, "Symbol('", "__import__('os').system('", "has expr_str .* which could run code"),
    ]:
        text = texts[name].decode()
        assert old in text
        path.write_bytes(changed(content, name, text.replace(old, new)))
        assert_refused(path, match)
    assert not trace.exists()


def changed(content: bytes, name: str, new: str | bytes | None) -> bytes:
    """Return a zip archive with one entry replaced, added or left out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as copy:
        root = old.namelist()[0].partition("/")[0]
        for entry in old.namelist():
            if entry != f"{root}/{name}":
                copy.writestr(entry, old.read(entry))
        if new is not None:
            copy.writestr(f"{root}/{name}", new)
    return buffer.getvalue()


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, card = small()
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"needs onnxscript; pip install 'invint\[onnx\]'"):
        export_model(model, tmp_path / "a.onnx", card)
    assert list(tmp_path.iterdir()) == []


def test_what_onnx_cannot_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, card = small()
    monkeypatch.setattr("invint.export.files.ONNX_LIMIT", 1000)
    with pytest.raises(ConfigError, match="GiB of weights do not fit one ONNX file, which holds 2"):
        export_model(model, tmp_path / "a.onnx", card)
