"""Weights from files: the right ones are loaded, others refused in one line."""

import hashlib
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from invint import ConfigError
from invint.models.weights import load_state, read_checked, read_state


def network(channels: int = 2) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels))


@pytest.mark.parametrize("kind", ["pth", "safetensors", "state_dict", "model"])
def test_weights_are_read_from_every_kind_of_file(kind: str, tmp_path: Path) -> None:
    state = network().state_dict()
    path = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pth")
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save(state if kind == "pth" else {kind: state, "epoch": 3}, path)
    twin = network()
    load_state(twin, read_state(path, hashlib.sha256(path.read_bytes()).hexdigest()), "weights")
    assert all(torch.equal(value, state[name]) for name, value in twin.state_dict().items())


def test_what_does_not_fit_is_named() -> None:
    state = network().state_dict()
    changes: list[tuple[dict[str, Any], str]] = [
        ({"0.bias": None, "1.bias": None, "1.weight": None}, "it lacks 0.bias, 1.bias and 1 more"),
        ({"fc.weight": torch.zeros(1)}, "it has besides fc.weight"),
        ({"0.bias": torch.zeros(3)}, "it has in another shape 0.bias (3,) for (2,)"),
        (
            {"0.bias": None, "2.x": torch.zeros(1), "3.x": torch.zeros(1)},
            "it lacks 0.bias; has besides 2.x, 3.x",
        ),
    ]
    for change, message in changes:
        changed: dict[str, Any] = {**state, **change}
        kept = {name: value for name, value in changed.items() if value is not None}
        twin = network()
        before = {name: value.clone() for name, value in twin.state_dict().items()}
        expected = f"file: not the weights of this Sequential: {message}"
        with pytest.raises(ConfigError, match=f"^{re.escape(expected)}$"):
            load_state(twin, kept, "file")
        assert all(torch.equal(value, before[name]) for name, value in twin.state_dict().items())


def test_counters_may_be_missing() -> None:
    state = network().state_dict()
    del state["1.num_batches_tracked"]
    other = network()
    load_state(other, state, "file")
    found = other.state_dict()
    assert all(torch.equal(found[name], value) for name, value in state.items())


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('it ran')",)


def test_pickles_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    contents = {
        "evil": pickle.dumps(Evil()),
        "text": b"no weights at all",
        "empty": b"",
    }
    for content in contents.values():
        path.write_bytes(content)
        with pytest.raises(
            ConfigError, match=r"pth: it is damaged, or holds more than tensors; sa"
        ):
            read_state(path)
    torch.save({"a": Evil()}, path)
    with pytest.raises(ConfigError, match="damaged, or holds more than tensors"):
        read_state(path)
    torch.save([torch.zeros(1)], path)
    with pytest.raises(
        ConfigError, match="expected a state dict, tensors by name, got <class 'lis"
    ):
        read_state(path)
    damaged = tmp_path / "weights.safetensors"
    damaged.write_bytes(b"damaged")
    with pytest.raises(ConfigError, match="safetensors: it is damaged, or holds more than tensors"):
        read_state(damaged)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with pytest.raises(ConfigError, match=r"weights\.pth: there is no such file"):
        read_checked(path)
    path.write_bytes(b"other")
    message = "the SHA-256 is d9298a10d1b07358…, expected 0000000000000000…; get the file again"
    with pytest.raises(ConfigError, match=message):
        read_checked(path, "0" * 64)
    digest = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"
    assert read_checked(path, digest.upper()) == b"other"
