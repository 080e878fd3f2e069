"""Name the files that a command reaches, and those through which images pass.

usage: python benchmarks/walk.py train digits/local-ws --set train.scale=0.02 --size 40 --quiet

A file is reached if one of its functions is called. Images pass through it if one of its functions
takes or returns them: as a tensor or an array, as a picture, or as a data set.
"""

import contextlib
import importlib
import pkgutil
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import numpy as np
import torch
from PIL import Image

import invint
from invint.data import Dataset, Split
from invint.errors import ConfigError

PACKAGE = Path(invint.__file__).parent
SIDE = 8  # pixels of the smallest image, which tells images from other tensors
ENOUGH = 20  # calls of a function that are looked at: looking is slow
LAYERS = ("groups", "ops", "nn", "models")  # the mathematics, the same for every command


def holds_images(value: object) -> bool:
    """Whether a value is images, or has them in it."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.ndim >= 3 and min(value.shape[-2:]) >= SIDE
    if isinstance(value, Dataset | Split | Image.Image):
        return True
    return isinstance(value, tuple) and any(map(holds_images, value))


def walk(arguments: list[str]) -> dict[str, bool]:
    """Run a command; return the files in the order they are reached, and if images pass."""
    for module in pkgutil.walk_packages(invint.__path__, "invint."):
        if module.name != "invint.__main__":
            with contextlib.suppress(ConfigError):  # of an extra that is not installed
                importlib.import_module(module.name)  # what is only imported does not count
    files: dict[str, bool] = {}
    looks = Counter[CodeType]()

    def note(frame: FrameType, event: str, result: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or PACKAGE not in path.parents:
            return
        file = str(path.relative_to(PACKAGE))
        files.setdefault(file, False)
        looks[frame.f_code] += 1
        if not files[file] and looks[frame.f_code] <= ENOUGH:
            values = frame.f_locals.values() if event == "call" else [result]
            files[file] = any(map(holds_images, values))

    sys.argv = ["invint", *arguments]
    threading.setprofile(note)
    sys.setprofile(note)
    with contextlib.suppress(SystemExit):
        importlib.import_module("invint.cli").main()
    sys.setprofile(None)
    return files


if __name__ == "__main__":
    reached = walk(sys.argv[1:])
    images = [file for file, passed in reached.items() if passed]
    own = [file for file in images if not file.startswith(LAYERS)]
    for file, passed in reached.items():
        print("images" if passed else "      ", file)
    print(f"{len(reached)} files; images pass through {len(images)}, {len(own)} of them not layers")
