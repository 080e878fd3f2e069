"""Checkpoints: one safetensors file each, whole or noticed, the one before it kept."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from invint.errors import ConfigError, RunError
from invint.files import write_whole

FORMAT_VERSION = 1
KEY = "invint-checkpoint"
LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two steps.

    Attributes:
        tensors: Weights, moments, random states, sums, by name.
        facts: Counters and everything else, as plain data.
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names start with a prefix, without it."""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix)
        }

    def write(self, folder: Path) -> None:
        """Put this checkpoint in place of the last one, which is kept as the previous one."""
        content = self._serialised()
        last = folder / LAST
        draft = folder / "next.safetensors"
        write_whole(draft, content)
        if last.exists():
            last.replace(folder / PREVIOUS)
        draft.replace(last)

    def _serialised(self) -> bytes:
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        facts = {"format_version": FORMAT_VERSION, **self.facts}
        header = {KEY: json.dumps(facts), "sha256": _digest(tensors, json.dumps(facts))}
        return save(tensors, metadata=header)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        RunError: It is not as it was written.
        ConfigError: Another version of invint wrote it.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: cut off or not a checkpoint") from error
    text = header.get(KEY, "")
    if header.get("sha256") != _digest(tensors, text):
        raise RunError(f"{path}: altered since it was written")
    facts = json.loads(text)
    version = facts.pop("format_version")
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: format version {version}, this invint reads {FORMAT_VERSION}; go on with the "
            "version that wrote it"
        )
    return Checkpoint(tensors, facts)


def latest_checkpoint(folder: Path) -> tuple[Checkpoint | None, dict[Path, str]]:
    """Return the newest checkpoint that is whole, and what is wrong with newer files."""
    problems: dict[Path, str] = {}
    for name in (LAST, PREVIOUS):
        if (folder / name).exists():
            try:
                return read_checkpoint(folder / name), problems
            except RunError as error:
                problems[folder / name] = str(error)
    return None, problems


def optimizer_tensors(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer, named by the parameters of the network."""
    return {
        f"{name}/{key}": value
        for name, parameter in network.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_optimizer(
    network: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Put back what `optimizer_tensors` returned."""
    parameters = dict(network.named_parameters())
    for name, tensor in tensors.items():
        owner, key = name.rsplit("/", maxsplit=1)
        parameter = parameters[owner]
        if tensor.shape == parameter.shape:  # with the strides of the parameter, as it was made
            optimizer.state[parameter][key] = torch.empty_like(parameter).copy_(tensor)
        else:  # Adam counts steps on the CPU unless it is fused
            device = parameter.device if parameter.is_cuda else "cpu"
            optimizer.state[parameter][key] = tensor.to(device, copy=True)


def _digest(tensors: dict[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data))
    return digest.hexdigest()
