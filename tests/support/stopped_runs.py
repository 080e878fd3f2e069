"""Runs that take a second, and what is left of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from invint.recipes import Recipe, changed, find_recipe
from invint.train import Callback, Execution, train_run
from invint.train.store import RunStore

TINY = (
    "data.size=40 model.widths=2,3,4 model.n_fc=6 model.group=C4 train.batch_size=16 "
    "train.epochs=4 train.scale=0.08"
)


class Noting(Callback):
    """Keeps what it hears; may interfere after a step."""

    def __init__(self, after: Callable[[int], None] | None = None) -> None:
        self.after = after
        self.notes: list[str] = []
        self.entries: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.began: list[int] = []
        self.ends = 0

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        assert folder.is_dir()
        assert step <= steps
        self.began.append(step)

    def on_step(self, step: int) -> None:
        if self.after is not None:
            self.after(step)

    def on_log(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def on_finish(self, result: dict[str, Any]) -> None:
        self.results.append(result)

    def on_end(self) -> None:
        self.ends += 1


class Stop(Exception):
    """Raised in the middle of a run: as sudden as a kill, as far as the folder goes."""


class TinyRun:
    """A recipe of twenty steps in a folder of its own."""

    def __init__(self, runs: Path, name: str, *assignments: str) -> None:
        self.runs = runs
        self.recipe: Recipe = changed(find_recipe(name), [*TINY.split(), *assignments])
        self.watch = Noting()

    def folder(self, seed: int = 0) -> Path:
        return RunStore.at(self.runs, self.recipe, seed).path

    def train(
        self,
        *,
        seed: int = 0,
        after: Callable[[int], None] | None = None,
        execution: Execution | None = None,
    ) -> Noting:
        self.watch = Noting(after)
        execution = execution or Execution(device="cpu", threads=1)
        train_run(self.recipe, seed=seed, runs=self.runs, execution=execution, callback=self.watch)
        return self.watch

    def stop(self, *steps: int) -> None:
        """Train until a step and stop there; then go on until the next."""
        for last in steps:

            def after(step: int, last: int = last) -> None:
                if step >= last:
                    raise Stop

            with pytest.raises(Stop):
                self.train(after=after)

    def outcome(self, seed: int = 0) -> dict[str, Any]:
        """Everything in the folder, times aside."""
        folder = self.folder(seed)
        return {path.name: _timeless(path) for path in sorted(folder.iterdir())}


def _timeless(path: Path) -> object:
    if path.name == "log.jsonl":
        return [{**json.loads(line), "seconds": 0} for line in path.read_text().splitlines()]
    if path.suffix == ".json":
        return {**json.loads(path.read_text()), "seconds": 0}
    if path.name == "last.safetensors":
        from invint.train.store import read_checkpoint

        last = read_checkpoint(path)
        tensors = {name: tensor.numpy().tobytes() for name, tensor in last.tensors.items()}
        return {**last.facts, "seconds": 0}, tensors
    return path.read_bytes()
