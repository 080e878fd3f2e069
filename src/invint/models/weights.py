"""Weights from files: known by their hash, never unpickled, and loaded whole or refused."""

import hashlib
import io
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn

from invint.errors import ConfigError

NESTED = ("state_dict", "model")  # under which checkpoints keep what is asked for
SHOWN = 2  # names in a message


def read_checked(path: Path, sha256: str | None = None) -> bytes:
    """Read a file, if it has this SHA-256 where one is given."""
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise ConfigError(
            f"{path}: the SHA-256 is {found[:16]}…, expected {sha256[:16]}…; get the file again"
        )
    return content


def read_state(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Read the weights in a safetensors file or in one of `torch.save`, tensors and no more.

    Args:
        path: The file; a checkpoint may have them under `state_dict` or `model`.
        sha256: What the file must hash to.
    """
    content = read_checked(path, sha256)
    try:
        state = load(content) if path.suffix == ".safetensors" else _tensors(content)
    except Exception as error:  # whatever reading raises
        raise ConfigError(
            f"{path}: it is damaged, or holds more than tensors; save a state dict alone"
        ) from error
    for key in NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(x, Tensor) for x in state.values()):
        raise ConfigError(f"{path}: expected a state dict, tensors by name, got {type(state)}")
    return dict(state)


def _tensors(content: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles that are refused anyway
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def load_state(network: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load weights that have the names and shapes of the network's, or say which have not.

    The counters of batch normalisation may be missing, as in files of old.

    Args:
        network: Gets the weights.
        state: The weights.
        source: Where they come from, for the message.
    """
    own = network.state_dict()
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    misshapen = [
        f"{name} {tuple(state[name].shape)} for {tuple(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    problems = {
        "lacks": own.keys() - state.keys() - counters,
        "has besides": state.keys() - own.keys(),
        "has in another shape": misshapen,
    }
    found = [f"{verb} {_listed(names)}" for verb, names in problems.items() if names]
    if found:
        raise ConfigError(
            f"{source}: not the weights of this {type(network).__name__}: it {'; '.join(found)}"
        )
    network.load_state_dict(own | dict(state))


def _listed(names: Iterable[str]) -> str:
    first, *more = sorted(names)
    shown = ", ".join([first, *more[: SHOWN - 1]])
    left = len(more) - SHOWN + 1
    return f"{shown} and {left} more" if left > 0 else shown
