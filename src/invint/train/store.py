"""The folder of a run: recipe, environment, subset, log, checkpoints, result."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from invint.errors import ConfigError, RunError, RunLockedError
from invint.files import write_atomically
from invint.recipes.recipe import Recipe

FORMAT_VERSION = 1
LOCK = "lock"
TRIES = 100  # to make and lock a folder that other processes remove


class RunFolder:
    """A folder that belongs to one recipe and one seed.

    Args:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, runs: Path, recipe: Recipe, seed: int) -> "RunFolder":
        """Return the folder of a recipe and a seed; two recipes never share one."""
        return cls(runs / recipe.name / recipe.hash / str(seed))

    @property
    def result(self) -> dict[str, Any] | None:
        """What came out, if the run is complete."""
        found = self.read("result.json")
        if found is not None and "error" not in found:
            raise RunError(f"{self.path}/result.json: not a result; remove it and start again")
        return found

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file of the folder, if it is there."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            values: dict[str, Any] = json.loads(path.read_text())
        except (ValueError, RecursionError) as error:
            raise RunError(f"{path}: not JSON; remove the file and start the run again") from error
        if not isinstance(values, dict):
            raise RunError(f"{path}: no object; remove the file and start the run again")
        return values

    def write(self, name: str, values: dict[str, Any], *, indent: int | None = 1) -> None:
        """Write a JSON file into the folder, whole or not at all."""
        write_atomically(self.path / name, json.dumps(values, indent=indent) + "\n")

    def log(self, entry: dict[str, Any]) -> None:
        """Add a line to the log."""
        with (self.path / "log.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def log_lines(self) -> list[str]:
        """Return the lines of the log that were written to their end."""
        path = self.path / "log.jsonl"
        text = path.read_text() if path.exists() else ""
        return text.splitlines()[: text.count("\n")]

    def cut_log(self, lines: int) -> None:
        """Forget what was logged after a checkpoint, since it will be done again."""
        kept = self.log_lines()[:lines]
        write_atomically(self.path / "log.jsonl", "".join(f"{line}\n" for line in kept))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out until this one is done or dead.

        If nothing is written into the folder meanwhile, what was made for the lock goes with it.
        """
        made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        with self._lock():
            for draft in self.path.glob(".*.*"):  # left by a kill while a file was written
                draft.unlink()
            try:
                yield
            finally:
                self._clear(made)

    def _lock(self) -> IO[str]:
        """Return the lock's file, locked; another process may remove it until then."""
        for tries_left in reversed(range(TRIES)):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                file = (self.path / LOCK).open("w")
            except (FileNotFoundError, FileExistsError):  # the latter if it was there, but is gone
                if not tries_left:
                    raise
                continue
            if _is_ours(file, self.path / LOCK):
                return file
            file.close()
            if (self.path / LOCK).exists():
                break
        raise RunLockedError(
            f"{self.path}: another process is at work on this run; wait for it or stop it"
        )

    def _clear(self, made: list[Path]) -> None:
        """Remove the lock and the folders that were made for it, unless there is more in them."""
        with suppress(OSError):
            if [each.name for each in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                for folder in made:
                    folder.rmdir()


def _is_ours(file: IO[str], path: Path) -> bool:
    """Lock a file, and return whether that worked and it still is the one others find."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


CHECKPOINT_FORMAT = 1
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
        write_atomically(draft, content)
        if last.exists():
            last.replace(folder / PREVIOUS)
        draft.replace(last)

    def _serialised(self) -> bytes:
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        facts = {"format_version": CHECKPOINT_FORMAT, **self.facts}
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
    if version != CHECKPOINT_FORMAT:
        raise ConfigError(
            f"{path}: format version {version}, this invint reads {CHECKPOINT_FORMAT}; go on with "
            "the version that wrote it"
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
