"""How long a recipe takes on this machine, from a few real steps; nothing of them is kept."""

import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from invint.data.dataset import Dataset, Split
from invint.recipes.recipe import Recipe
from invint.train.device import Execution, ProcessGroup
from invint.train.loop import fit
from invint.train.run import Run
from invint.train.setup import RunData
from invint.train.store import RunStore

WARM_UP = 2  # steps that are not counted: caches, compilation
MOST = 20  # steps that are counted


def seconds_per_step(
    recipe: Recipe,
    data: RunData,
    execution: Execution,
    *,
    enough: float = 1.0,
    warm_up: int = WARM_UP,
) -> float:
    """Return the median time of a training step.

    Args:
        recipe: What is trained.
        data: What it is trained on; `random_data` where there is nothing yet.
        execution: Device, precision, threads.
        enough: Seconds of steps to measure, at least one step and at most `MOST`.
        warm_up: Steps before that, which are not counted.
    """
    execution = execution.decided()
    with execution.applied():
        run = _unsaved_run(recipe, data, execution)
        times = [time.perf_counter()]

        def is_enough(step: int) -> bool:
            _synchronize(execution)
            times.append(time.perf_counter())
            return step > warm_up and times[-1] - times[warm_up] > enough

        fit(
            run.objective,
            run.optimizer,
            run.batches,
            steps=range(warm_up + MOST),
            rate=run.rate,
            meter=run.meter,
            accumulate=recipe.train.accumulate,
            after_step=is_enough,
        )
    return statistics.median(after - before for before, after in pairwise(times[warm_up:]))


def seconds_per_image(recipe: Recipe, data: RunData, execution: Execution, *, most: int) -> float:
    """Return the time of a test image, measured on so many of them."""
    test = data.dataset.test
    some = test[torch.arange(min(len(test), most))]
    data = replace(data, dataset=replace(data.dataset, test=some))
    execution = execution.decided()
    with execution.applied():
        run = _unsaved_run(recipe, data, execution)
        run.test_logits(run.network)  # the first is slower
        began = time.perf_counter()
        run.test_logits(run.network)
        return (time.perf_counter() - began) / len(some)


def random_data(images: int, *, side: int, channels: int, classes: int) -> RunData:
    """Return noise to measure a network with before there are images of its size."""
    generator = torch.Generator().manual_seed(0)
    shape = (images, channels, side, side)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    split = Split(pixels, torch.arange(images) % classes)
    dataset = Dataset("random", split, split, tuple(map(str, range(classes))))
    normal = ((0.5,) * channels, (0.25,) * channels)
    everything = torch.arange(images)
    return RunData(dataset, everything, torch.arange(0), (split, everything), *normal)


def _unsaved_run(recipe: Recipe, data: RunData, execution: Execution) -> Run:
    """Return a run at its first step; its folder is written only when it is saved."""
    return Run(recipe, 0, RunStore(Path("unsaved")), data, execution, ProcessGroup())


def _synchronize(execution: Execution) -> None:
    """Wait until a GPU has done what it was asked for."""
    if execution.device == "cuda":
        torch.cuda.synchronize()
