"""The folder of a run: the one place that knows which files are in it and how they are read.

runs/<recipe>/<hash of the recipe>/<seed>/
recipe.json  environment.json  subset.json   what it is, where it began, on which images
log.jsonl                                    a line for each epoch and each selection
last.safetensors  previous.safetensors       checkpoints
best.safetensors                             the weights with the lowest validation error
model.safetensors  predictions.safetensors   the last weights, and their test logits
result.json                                  there only when the run is complete
turns.json                                   accuracy by angle, measured for a report
trackers.json                                what trackers of experiments call the run
problem.txt                                  the traceback of an unexpected error
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from invint.audit import Audit
from invint.errors import ConfigError, RunError, RunLockedError
from invint.export import load_network
from invint.files import write_atomically
from invint.models import Network
from invint.recipes.recipe import DataChoice, Recipe
from invint.selection.history import History, history_of, trained_monomials

FORMAT_VERSION = 1
CHECKPOINT_FORMAT = 1
CHECKPOINT_KEY = "invint-checkpoint"
LOG, LOCK = "log.jsonl", "lock"
MODEL, BEST = "model.safetensors", "best.safetensors"
LAST, PREVIOUS, DRAFT = "last.safetensors", "previous.safetensors", "next.safetensors"
TRIES = 100  # to make and lock a folder that other processes remove
TAIL = 1 << 16  # bytes of a log that hold its last line, however many monomials are in it


class RunStore:
    """Everything that is kept of one recipe with one seed.

    Args:
        path: Folder of the run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def at(cls, runs: Path, recipe: Recipe, seed: int) -> "RunStore":
        """Return the store of a recipe and a seed; two recipes never share one."""
        return cls(runs / recipe.name / recipe.hash / str(seed))

    @property
    def recipe(self) -> dict[str, Any] | None:
        """Name, choices and hash of the recipe, and the seed."""
        return self.read("recipe.json")

    @property
    def recipe_name(self) -> str | None:
        """Name of the recipe; `None` where there is no run."""
        recipe = self.recipe
        try:
            return None if recipe is None else str(recipe["name"])
        except KeyError as error:
            raise self._not_a_recipe(error) from error

    @property
    def data_choice(self) -> DataChoice:
        """The data set of the run."""
        recipe = self.recipe
        if recipe is None:
            raise ConfigError(f"{self.path}: a file does not say its data set; give --data NAME")
        try:
            return DataChoice.of(recipe["choices"])
        except (KeyError, TypeError) as error:
            raise self._not_a_recipe(error) from error

    @property
    def environment(self) -> dict[str, Any] | None:
        """Where and with which versions the run began."""
        return self.read("environment.json")

    @property
    def subset(self) -> dict[str, Any] | None:
        """Which images the run trains on."""
        return self.read("subset.json")

    @property
    def is_complete(self) -> bool:
        """Whether there is a result, without reading it."""
        return (self.path / "result.json").exists()

    @property
    def result(self) -> dict[str, Any] | None:
        """Test error and everything else that came out, if the run is complete."""
        result = self.read("result.json")
        if result is not None and "error" not in result:
            raise RunError(f"{self.path}/result.json: not a result; remove it and start again")
        return result

    @property
    def model(self) -> Path:
        """File of the last weights.

        Raises:
            ConfigError: The run is not complete, or the file is gone.
        """
        if (self.path / MODEL).exists():
            return self.path / MODEL
        if self.is_complete:
            raise ConfigError(
                f"{self.path}: the run is complete, but its {MODEL} is gone; train it again with "
                "another --runs folder, or remove this one first"
            )
        if (self.path / "recipe.json").exists():
            raise ConfigError(f"{self.path}: the run is not complete; resume with `invint train`")
        raise ConfigError(
            f"{self.path}: expected the folder of a run, with recipe.json in it, or a file"
        )

    def network(self) -> Network:
        """Return the network with its last weights."""
        path = self.path / MODEL
        if not path.is_file():
            raise ConfigError(f"{path}: there is no such file")
        try:
            return load_network(path)[0]
        except ConfigError as error:
            raise ConfigError(f"{path}: damaged, or not the network of a run ({error})") from error

    def write_model(self, content: bytes) -> None:
        """Keep the last weights."""
        write_atomically(self.path / MODEL, content)

    def write_best(self, content: bytes) -> None:
        """Keep the weights with the lowest validation error so far."""
        write_atomically(self.path / BEST, content)

    @property
    def predictions(self) -> tuple[Tensor, Tensor] | None:
        """Logits and labels of the test images; `None` before the run is complete."""
        path = self.path / "predictions.safetensors"
        if not path.is_file():
            return None
        try:
            tensors = load_file(path)
            logits, labels = tensors["logits"].float(), tensors["labels"].long()
        except (SafetensorError, KeyError, OSError) as error:
            raise RunError(f"{path}: damaged ({error})") from error
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            shapes = tuple(logits.shape), tuple(labels.shape)
            raise RunError(f"{path}: expected logits (n, classes) and n labels, got {shapes}")
        return logits, labels

    def write_predictions(self, logits: Tensor, labels: Tensor) -> None:
        """Keep logits and labels of the test images."""
        content = save({"logits": logits, "labels": labels})
        write_atomically(self.path / "predictions.safetensors", content)

    @property
    def turns(self) -> Audit | None:
        """Accuracy by angle; `None` where it was not measured, or must be measured again."""
        path = self.path / "turns.json"
        try:
            return Audit.load(path) if path.is_file() else None
        except ConfigError:
            return None

    def write_turns(self, audit: Audit) -> None:
        """Keep the accuracy by angle, unless the folder may only be read."""
        with suppress(OSError):
            audit.save(self.path / "turns.json")

    def write_problem(self, traceback: str) -> Path:
        """Keep the traceback of an error that is not ours, and return its file."""
        path = self.path / "problem.txt"
        write_atomically(path, traceback)
        return path

    def tracked_as(self, tracker: str) -> str | None:
        """Return the id under which a tracker of experiments knows the run, if it does."""
        return (self.read("trackers.json") or {}).get(tracker)

    def track_as(self, tracker: str, id: str) -> None:
        """Keep the id that a tracker of experiments gave the run."""
        self.write("trackers.json", (self.read("trackers.json") or {}) | {tracker: id})

    def complete(self, result: dict[str, Any]) -> None:
        """Write the result, which makes the run complete, and remove all but one checkpoint."""
        for name in (PREVIOUS, DRAFT):
            (self.path / name).unlink(missing_ok=True)
        self.write("result.json", result)

    def discard_weights(self) -> None:
        """Remove everything of a complete run that takes room."""
        for name in (LAST, BEST, MODEL):
            (self.path / name).unlink(missing_ok=True)

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file of the folder, if it is there."""
        path = self.path / name
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RunError(f"{path}: cannot be read ({error.strerror})") from error
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{path}: damaged, it is not JSON; remove the file and start the run again"
            ) from error
        if not isinstance(values, dict):
            raise RunError(
                f"{path}: damaged, expected a JSON object, got {type(values).__name__}; remove the "
                "file and start the run again"
            )
        return values

    def require(self, name: str) -> dict[str, Any]:
        """Return a JSON file of the folder, or raise `RunError` where it is missing."""
        values = self.read(name)
        if values is None:
            raise RunError(f"{self.path / name}: cannot be read; it is missing from a complete run")
        return values

    def write(self, name: str, values: dict[str, Any], *, indent: int | None = 1) -> None:
        """Write a JSON file into the folder, whole or not at all."""
        write_atomically(self.path / name, json.dumps(values, indent=indent) + "\n")

    def append(self, entry: dict[str, Any]) -> None:
        """Add a line to the log."""
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the log, but for a last one that a kill has cut off.

        Raises:
            RunError: Another line is damaged.
        """
        entries = []
        for number, line in enumerate(self._whole_lines(), start=1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if not isinstance(entry, dict):
                raise RunError(f"{self.path / LOG}: line {number} is damaged")
            entries.append(entry)
        return entries

    def steps_logged(self) -> int:
        """Return the step of the last line of the log, found from its end; 0 if there is none."""
        try:
            with (self.path / LOG).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return 0
        for line in reversed(lines):
            with suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["step"])
        return 0

    def count_log_lines(self) -> int:
        """Return how many whole lines the log has."""
        return len(self._whole_lines())

    def cut_log(self, lines: int) -> None:
        """Forget what was logged after a checkpoint, since it will be done again."""
        kept = self._whole_lines()[:lines]
        write_atomically(self.path / LOG, "".join(f"{line}\n" for line in kept))

    def _whole_lines(self) -> list[str]:
        path = self.path / LOG
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        return text.splitlines()[: text.count("\n")]

    def history(self) -> History:
        """Return which monomials were selected, of a complete run or one under way."""
        if not (self.path / LOG).is_file():
            raise ConfigError(f"{self.path / LOG}: cannot be read; expected the folder of a run")
        return history_of(self.path, self.log(), trained_monomials(self.path / MODEL))

    def latest_checkpoint(self) -> tuple["Checkpoint | None", dict[Path, str]]:
        """Return the newest checkpoint that is whole, and what is wrong with newer files."""
        problems: dict[Path, str] = {}
        for name in (LAST, PREVIOUS):
            if (self.path / name).exists():
                try:
                    return read_checkpoint(self.path / name), problems
                except RunError as error:
                    problems[self.path / name] = str(error)
        return None, problems

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out until this one is done or dead.

        If nothing is written into the folder meanwhile, what was made for the lock goes with it.
        """
        made = [each for each in (self.path, *self.path.parents) if not each.exists()]
        lock = self._lock()
        try:
            for draft in self.path.glob(".*.*"):  # left by a kill while a file was written
                draft.unlink()
            yield
        finally:
            self._release(lock, made)

    def _lock(self) -> FileLock:
        """Lock the folder; another process may remove it until then."""
        for tries_left in reversed(range(TRIES)):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = FileLock(self.path / LOCK, timeout=0)
                lock.acquire()
            except (FileNotFoundError, FileExistsError):  # the latter if it was there, but is gone
                if not tries_left:
                    raise
                continue
            except Timeout:
                if (self.path / LOCK).exists():
                    break
                continue
            return lock
        raise RunLockedError(
            f"{self.path}: another process is working on this run; wait for it or stop it"
        )

    def _release(self, lock: FileLock, made: list[Path]) -> None:
        """Give the lock back, and remove the folders made for it unless there is more in them."""
        with suppress(OSError):
            if [each.name for each in self.path.iterdir()] == [LOCK]:
                (self.path / LOCK).unlink()
                for folder in made:
                    folder.rmdir()
        lock.release()

    def _not_a_recipe(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path}/recipe.json: not the recipe of a run ({error!r})")


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
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in self.tensors.items()
        }
        facts = json.dumps({"format_version": CHECKPOINT_FORMAT, **self.facts})
        header = {CHECKPOINT_KEY: facts, "sha256": _digest(tensors, facts)}
        draft, last = folder / DRAFT, folder / LAST
        write_atomically(draft, save(tensors, metadata=header))
        if last.exists():
            last.replace(folder / PREVIOUS)
        draft.replace(last)


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
    text = header.get(CHECKPOINT_KEY, "")
    if header.get("sha256") != _digest(tensors, text):
        raise RunError(f"{path}: altered since it was written")
    facts = json.loads(text)
    version = facts.pop("format_version")
    if version != CHECKPOINT_FORMAT:
        raise ConfigError(
            f"{path}: format version {version}, this invint reads {CHECKPOINT_FORMAT}; resume "
            "with the version that wrote it"
        )
    return Checkpoint(tensors, facts)


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
