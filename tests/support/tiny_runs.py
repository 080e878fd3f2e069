"""Runs that take a second: a small network, few steps, one thread."""

from pathlib import Path

from invint.recipes import changed, find_recipe
from invint.study.grid import Cell
from invint.study.pool import Place
from invint.train import Execution

IMAGES = 1000


def tiny(name: str = "digits/cnn", *, seed: int = 0, scale: float = 0.1, size: int = 50) -> Cell:
    """Return a run of a few steps on few digits."""
    choices = [f"data.size={size}", "data.test_turns=1", "train.epochs=4", f"train.scale={scale}"]
    return Cell(changed(find_recipe(name), choices), seed, IMAGES)


def place_in(folder: Path) -> Place:
    """Return a place with one thread, so that bits repeat."""
    return Place(runs=folder / "runs", execution=Execution(device="cpu", threads=1))


def weights(place: Place, cell: Cell) -> bytes:
    """Return the file of the trained network."""
    return (place.folder(cell) / "model.safetensors").read_bytes()
