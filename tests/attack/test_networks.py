"""Networks as files: cut off, damaged, with cards that ask for the impossible."""

import json
import os
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save
from support.attack import Judge, cut, damaged
from support.pictures import encoded
from torch import nn

from invint.export import KEY, ModelCard, export_model

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]


@pytest.fixture
def picture(at_home: Path) -> str:
    (at_home / "picture.png").write_bytes(encoded(Image.new("L", (20, 20)), "PNG"))
    return "picture.png"


# safetensors


def raw(header: bytes, body: bytes = b"", *, length: int | None = None) -> bytes:
    """Return a safetensors file with a header of one's own."""
    return struct.pack("<Q", len(header) if length is None else length) + header + body


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
HEADERS: dict[str, bytes] = {
    "no header": b"",
    "half a length": b"\x01\0\0",
    "an enormous length": raw(b"{}", length=2**63),
    "a length beyond the file": raw(b"{}", length=1000),
    "no JSON": raw(b"hello"),
    "a list": raw(b"[]"),
    "deep": raw(b"[" * 100_000),
    "not text": raw(b'{"\xff": 1}'),
    "offsets the wrong way": raw(
        json.dumps({"a": ONE | {"data_offsets": [4, 0]}}).encode(), bytes(4)
    ),
    "offsets beyond the file": raw(
        json.dumps({"a": ONE | {"data_offsets": [0, 2**60], "shape": [2**58]}}).encode(), bytes(4)
    ),
    "an overflowing shape": raw(
        json.dumps({"a": ONE | {"shape": [2**33, 2**33]}}).encode(), bytes(4)
    ),
    "a negative shape": raw(json.dumps({"a": ONE | {"shape": [-1]}}).encode(), bytes(4)),
    "a type nobody knows": raw(json.dumps({"a": ONE | {"dtype": "PICKLE"}}).encode(), bytes(4)),
    "overlapping": raw(json.dumps({"a": ONE, "b": ONE}).encode(), bytes(4)),
    "metadata that is a number": raw(json.dumps({"__metadata__": {KEY: 7}}).encode()),
}


@pytest.mark.parametrize("name", HEADERS)
def test_safetensors_headers(judge: Judge, at_home: Path, picture: str, name: str) -> None:
    (at_home / "own.safetensors").write_bytes(HEADERS[name])
    judge.refused("predict", "own.safetensors", picture)


@pytest.mark.parametrize("seed", range(4))
def test_safetensors_cut_off(
    judge: Judge, network: Path, at_home: Path, picture: str, seed: int
) -> None:
    (at_home / "own.safetensors").write_bytes(cut(network.read_bytes(), seed))
    judge.refused("predict", "own.safetensors", picture)


@pytest.mark.parametrize("seed", range(10))
def test_damaged_safetensors(
    judge: Judge, network: Path, at_home: Path, picture: str, seed: int
) -> None:
    content = network.read_bytes()
    (at_home / "own.safetensors").write_bytes(
        damaged(content[:4000], seed) + content[4000:] if seed % 2 else damaged(content, seed)
    )
    judge.refused("predict", "own.safetensors", picture)


CARDS: dict[str, dict[str, Any]] = {
    "no classes": {"class_names": []},
    "classes that are a number": {"class_names": 10},
    "classes that are numbers": {"class_names": [1, 2, 3]},
    "too many classes": {"class_names": ["a"] * 10_000},
    "an enormous image": {"image_size": [10**6, 10**6]},
    "a negative image": {"image_size": [-20, -20]},
    "a flat image": {"image_size": [20]},
    "an image of words": {"image_size": ["20", "20"]},
    "no image": {"image_size": [0, 0]},
    "a broken image": {"image_size": [20.5, 20.5]},
    "enormous channels": {"in_channels": 10**9},
    "no channels": {"in_channels": 0},
    "channels in words": {"in_channels": "one"},
    "another network": {"name": "sfcnn-small"},
    "no network": {"name": None},
    "a network of code": {"name": "__import__('os')"},
    "a name that is a list": {"name": []},
    "an enormous group": {"name": "sfcnn-small", "group": "C1000000000"},
    "a group nobody knows": {"name": "sfcnn-small", "group": "\x1b[2J"},
    "a group that is a number": {"name": "sfcnn-small", "group": 4},
    "a head nobody knows": {"name": "sfcnn-small", "head": "[/]"},
    "a head that is a list": {"name": "sfcnn-small", "head": ["max"]},
    "deviations of zero": {"std": [0.0]},
    "negative deviations": {"std": [-1.0]},
    "a deviation that is none": {"std": [float("nan")]},
    "an endless mean": {"mean": [float("inf")]},
    "means in words": {"mean": ["0.5"]},
    "options that are a list": {"options": [1]},
    "options nobody knows": {"options": {"__class__": 1}},
    "endless widths": {"options": {"widths": [10**9, 10**9, 10**9]}},
    "negative widths": {"options": {"widths": [-1, 2, 3]}},
    "no widths": {"options": {"widths": []}},
    "widths in words": {"options": {"widths": "abc"}},
    "endless dense layers": {"options": {"n_fc": 10**12}},
    "monomials of nothing": {"options": {"head_options": {"Monomials": {}}}},
    "rings of nothing": {"options": {"rings": {"Rings": {"radii": 3}}}},
    "a key nobody knows": {"__init__": {}},
    "a newer version": {"format_version": 2},
    "a version in words": {"format_version": "one"},
}


@pytest.mark.parametrize("name", CARDS)
def test_cards(judge: Judge, network: Path, at_home: Path, picture: str, name: str) -> None:
    (at_home / "own.safetensors").write_bytes(
        save(load_file(network), metadata={KEY: json.dumps(card_of(network) | CARDS[name])})
    )
    judge.refused("predict", "own.safetensors", picture)


def card_of(network: Path) -> dict[str, Any]:
    """Return the card of a safetensors file as JSON has it."""
    content = network.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    card: dict[str, Any] = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][KEY])
    return card


@pytest.mark.parametrize("kind", ["another shape", "one is missing", "one too many", "none"])
def test_weights_of_another_network(
    judge: Judge, network: Path, at_home: Path, picture: str, kind: str
) -> None:
    tensors = load_file(network)
    first = next(name for name, each in tensors.items() if each.ndim > 1)
    content = {
        "another shape": tensors | {first: torch.zeros(3)},
        "one is missing": {name: each for name, each in tensors.items() if name != first},
        "one too many": tensors | {"more": torch.zeros(3)},
        "none": {},
    }[kind]
    metadata = {KEY: json.dumps(card_of(network))}
    (at_home / "own.safetensors").write_bytes(save(content, metadata=metadata))
    judge.refused("predict", "own.safetensors", picture)


# ONNX and torch.export


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A torch.export file for grey images of 20 x 20."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    path = tmp_path_factory.mktemp("programs") / "good.pt2"
    export_model(model, path, ModelCard(("a", "b"), (20, 20), 1))
    return path


def sound() -> onnx.ModelProto:
    """Return a program that gives the mean of an image twice."""
    mean = node("ReduceMean", output="mean", keepdims=0, axes=[2, 3])
    return graph(mean, node("Concat", "mean", "mean", axis=1), opset=13)


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
@pytest.mark.parametrize("seed", range(3))
def test_programs_cut_off(
    judge: Judge, program: Path, at_home: Path, picture: str, seed: int, suffix: str
) -> None:
    content = program.read_bytes() if suffix == ".pt2" else sound().SerializeToString()
    (at_home / f"own{suffix}").write_bytes(cut(content, seed))
    judge.refused("predict", f"own{suffix}", picture)


@pytest.mark.parametrize("seed", range(12))
def test_damaged_onnx_programs(judge: Judge, at_home: Path, picture: str, seed: int) -> None:
    (at_home / "own.onnx").write_bytes(damaged(sound().SerializeToString(), seed))
    judge.refused_or_taken("predict", "own.onnx", picture)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_torch_programs(
    judge: Judge, program: Path, at_home: Path, picture: str, seed: int
) -> None:
    """In the text of the program, behind the checksum of its archive."""
    with zipfile.ZipFile(program) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("models/model.json"))
        text = archive.read(name)
    changes: dict[str, bytes | None] = {"models/model.json": damaged(text, seed)}
    (at_home / "own.pt2").write_bytes(rewritten(program, changes))
    judge.refused_or_taken("predict", "own.pt2", picture)


def graph(*nodes: onnx.NodeProto, opset: int = 18, **card: Any) -> onnx.ModelProto:
    """Return a program with a card, for images of 20 x 20."""
    floats = onnx.TensorProto.FLOAT
    images = onnx.helper.make_tensor_value_info("images", floats, ["batch", 1, 20, 20])
    logits = onnx.helper.make_tensor_value_info("logits", floats, None)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([*nodes], "hostile", [images], [logits]),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
        ir_version=8,
    )
    values = {"class_names": ["a", "b"], "image_size": [20, 20], "in_channels": 1}
    values |= {"format_version": 1, "mean": [0.0], "std": [1.0]}
    onnx.helper.set_model_props(model, {KEY: json.dumps(values | card)})
    return model


def node(kind: str, *inputs: str, output: str = "logits", **options: Any) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs or ["images"], [output], **options)


def outside() -> onnx.ModelProto:
    """Return a program whose weights are said to be in a file of the system."""
    model = graph(node("Add", "images", "weights"))
    weights = onnx.TensorProto(name="weights", data_type=onnx.TensorProto.FLOAT, dims=[4])
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../../etc/passwd")
    model.graph.initializer.append(weights)
    return model


PROGRAMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "the wrong number of logits": lambda: graph(node("Flatten")),
    "logits without a batch": lambda: graph(node("ReduceSum", keepdims=0)),
    "logits in four axes": lambda: graph(node("Identity")),
    "logits that are numbers": lambda: graph(node("Shape")),
    "an operation nobody knows": lambda: graph(node("System", output="logits", domain="evil")),
    "an input that is not there": lambda: graph(node("Identity", "secret")),
    "weights in another file": outside,
    "a loop": lambda: graph(node("Identity", "b", output="a"), node("Identity", "a", output="b")),
    "other names": lambda: graph(node("Identity", output="other")),
    "other images than the card says": lambda: graph(node("Flatten"), in_channels=3),
    "a card of lies": lambda: graph(node("Flatten"), image_size=[10**6, 10**6]),
    "a card of nothing": lambda: graph(node("Flatten"), class_names=[]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_onnx_programs(judge: Judge, at_home: Path, picture: str, name: str) -> None:
    (at_home / "own.onnx").write_bytes(PROGRAMS[name]().SerializeToString())
    judge.refused("predict", "own.onnx", picture)


def rewritten(path: Path, changes: dict[str, bytes | None], *, packed: bool = False) -> bytes:
    """Return a torch.export archive with entries replaced, added or left out."""
    buffer, how = BytesIO(), zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w", how) as new:
        root = old.namelist()[0].partition("/")[0]
        for entry in old.namelist():
            if entry.partition("/")[2] not in changes:
                new.writestr(entry, old.read(entry))
        for name, content in changes.items():
            if content is not None:
                new.writestr(f"{root}/{name}", content)
    return buffer.getvalue()


ARCHIVES: dict[str, dict[str, bytes | None]] = {
    "no program": {"models/model.json": None},
    "an empty program": {"models/model.json": b""},
    "a program that is a list": {"models/model.json": b"[]"},
    "a program that is a number": {"models/model.json": b"7"},
    "a deep program": {"models/model.json": b"[" * 100_000},
    "a program without anything": {"models/model.json": b"{}"},
    "no card": {"extra/invint.json": None},
    "a card that is no text": {"extra/invint.json": b"\xff\xfe"},
    "a deep card": {"extra/invint.json": b"[" * 100_000},
    "weights nobody has": {"data/weights/weight_0": None},
    "weights that are short": {"data/weights/weight_0": b"\0"},
    "no list of weights": {"data/weights/model_weights_config.json": b"{}"},
    "a library": {"data/aotinductor/model.so": b"\x7fELF"},
    "a path out": {"../../../../etc/cron.d/own": b"* * * * * root true"},
    "a pickle": {"data/sample_inputs/model.pt": b"\x80\x04cos\nsystem\n(S'true'\ntR."},
    "another version": {"archive_version": b"999"},
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_torch_archives(
    judge: Judge, program: Path, at_home: Path, picture: str, name: str
) -> None:
    (at_home / "own.pt2").write_bytes(rewritten(program, ARCHIVES[name]))
    judge.refused("predict", "own.pt2", picture)


def test_a_bomb_of_a_torch_archive(
    judge: Judge, program: Path, at_home: Path, picture: str
) -> None:
    bomb: dict[str, bytes | None] = {"extra/more.json": bytes(2**26)}
    (at_home / "own.pt2").write_bytes(rewritten(program, bomb, packed=True))
    assert "it is compressed" in judge.refused("predict", "own.pt2", picture)


# What is no file


@pytest.mark.parametrize("suffix", [".safetensors", ".onnx", ".pt2", ".pt", ""])
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a loop", "a device"])
def test_networks_that_are_no_files(
    judge: Judge, at_home: Path, picture: str, kind: str, suffix: str
) -> None:
    path = at_home / f"own{suffix}"
    make: dict[str, Callable[[], object]] = {
        "a folder": path.mkdir,
        "a pipe": lambda: os.mkfifo(path),
        "a loop": lambda: path.symlink_to(path),
        "a device": lambda: path.symlink_to("/dev/zero"),
    }
    make[kind]()
    judge.refused("predict", str(path), picture)


def test_whole_networks_answer(
    judge: Judge, network: Path, program: Path, at_home: Path, picture: str
) -> None:
    """Otherwise nothing could be learned from what becomes of damaged ones."""
    (at_home / "own.onnx").write_bytes(sound().SerializeToString())
    (at_home / "own.pt2").write_bytes(rewritten(program, {}))
    for path in (network, program, "own.onnx", "own.pt2"):
        assert judge.command("predict", str(path), picture).status == 0
