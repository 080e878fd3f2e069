"""The folder of a run: recipe, environment, subset, log, checkpoints, result."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from invint.errors import RunError, RunLockedError
from invint.files import write_whole
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
        write_whole(self.path / name, json.dumps(values, indent=indent) + "\n")

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
        write_whole(self.path / "log.jsonl", "".join(f"{line}\n" for line in kept))

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
