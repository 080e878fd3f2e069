"""Runs that take a second: a small network, few steps, one thread."""

from pathlib import Path

from invint.recipes import changed, find_recipe
from invint.study.grid import Cell
from invint.study.pool import Workspace
from invint.train import Execution

IMAGES = 1000


def tiny(
    name: str = "digits/cnn",
    *,
    seed: int = 0,
    scale: float = 0.1,
    size: int = 50,
    epochs: int = 4,
) -> Cell:
    """Return a run of a few steps on few digits."""
    choices = [f"data.size={size}", "data.test_turns=1"]
    choices += [f"train.epochs={epochs}", f"train.scale={scale}"]
    return Cell(changed(find_recipe(name), choices), seed, IMAGES)


def workspace_in(folder: Path) -> Workspace:
    """Return a workspace with one thread, so that bits repeat."""
    return Workspace(runs=folder / "runs", execution=Execution(device="cpu", threads=1))


def weights(workspace: Workspace, cell: Cell) -> bytes:
    """Return the file of the trained network."""
    return (workspace.folder(cell) / "model.safetensors").read_bytes()
