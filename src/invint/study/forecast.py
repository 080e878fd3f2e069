"""How long runs will take, from a few real steps on this machine."""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from invint.recipes.recipe import Recipe, SelectionChoice
from invint.study.grid import Cell
from invint.study.pool import Place
from invint.train import Execution
from invint.train.device import ProcessGroup
from invint.train.loop import fit
from invint.train.run import EVALUATION_BATCH, Run
from invint.train.setup import RunData
from invint.train.store import RunStore

WARM_UP = 2  # steps that are not counted: caches, compilation
ENOUGH = 1.0  # seconds of steps that are counted, at least one step
MOST = 20  # steps that are counted
FEW = 4  # images of a batch that are measured where a whole one takes too long
LONG = 3.0  # seconds of a step that are too long


@dataclass(frozen=True)
class Speed:
    """How fast a network is here.

    Attributes:
        step: Seconds of a training step.
        image: Seconds of a test image.
        tests: How many images are answered at the end of a run, copies included.
    """

    step: float
    image: float
    tests: int

    def seconds(self, steps: int) -> float:
        """Return the time of a run that has this many steps left."""
        return steps * self.step + self.tests * self.image


@dataclass(frozen=True)
class Forecast:
    """What is left of a run.

    Attributes:
        cell: The run.
        done: Steps that are done.
        seconds: Time left; 0 of a finished run.
    """

    cell: Cell
    done: int
    seconds: float

    @property
    def state(self) -> str:
        """The state in a word: done, a share, or to do."""
        if self.seconds == 0:
            return "done"
        return f"{self.done / self.cell.steps:.0%} done" if self.done else "to do"


def forecast(
    cells: Sequence[Cell],
    place: Place,
    *,
    threads: int | None = None,
    watch: Callable[[Recipe], None] = lambda _: None,
) -> list[Forecast]:
    """Say of each run how long it will take on this machine.

    Each network is measured once with its batch size; sizes and seeds take equally long.

    Args:
        cells: The runs.
        place: Where they are, or will be, and how they are carried out.
        threads: Of each process, unless `place` says so.
        watch: Hears of each recipe before it is measured.
    """
    speeds: dict[Recipe, Speed] = {}
    forecasts = []
    for cell in cells:
        done = place.steps_done(cell)
        if not place.unfinished([cell]):
            forecasts.append(Forecast(cell, done, 0.0))
            continue
        recipe = what_is_measured(cell.recipe)
        if recipe not in speeds:
            watch(cell.recipe)
            speeds[recipe] = measured(recipe, place, threads=threads)
        forecasts.append(Forecast(cell, done, speeds[recipe].seconds(cell.steps - done)))
    return forecasts


def what_is_measured(recipe: Recipe) -> Recipe:
    """Return the recipe without what does not matter for the time of a step.

    Of monomials it keeps as many as are left after their selection, that is for most of a run.
    """
    selection = recipe.selection
    left = selection.steps[-1][1] if selection.steps else selection.start
    return recipe.replace(
        name="measured",
        about="",
        data={"size": None},
        train={"epochs": 1, "lr": 1e-6, "decay": "step", "lr_decay_epochs": (1.0,), "scale": 1.0},
        selection=SelectionChoice(start=left) if recipe.model.head == "monomials" else selection,
    )


def measured(recipe: Recipe, place: Place, *, threads: int | None = None) -> Speed:
    """Make a few real steps and answer a few test images; nothing of it is kept.

    Where a step takes seconds, a part of a batch stands for the whole.
    """
    wanted = place.execution
    execution = replace(wanted, threads=wanted.threads or threads).decided()
    with execution.applied():
        images = RunData.of(recipe, 0, place.data_dir)
        if not execution.compile and recipe.train.batch_size > FEW:
            part = _speed(recipe, images, execution, batch=FEW, tests=FEW)
            if part.step > LONG:
                return part
        batch = recipe.train.batch_size
        return _speed(recipe, images, execution, batch=batch, tests=EVALUATION_BATCH)


def _speed(
    recipe: Recipe, images: RunData, execution: Execution, *, batch: int, tests: int
) -> Speed:
    """Measure batches of a size, and multiply."""
    smaller = recipe.replace(train={"batch_size": batch})
    turns = recipe.data.test_turns
    with tempfile.TemporaryDirectory() as folder:
        run = Run(smaller, 0, RunStore(Path(folder)), images, execution, ProcessGroup())
        return Speed(
            step=_seconds_per_step(run) * recipe.train.batch_size / batch,
            image=_seconds_per_image(run, tests),
            tests=len(images.dataset.test) * (1 if turns == 1 else 1 + turns),
        )


def _seconds_per_step(run: Run) -> float:
    """Return the median time of steps after the warm-up."""
    times = [time.perf_counter()]

    def enough(step: int) -> bool:
        _wait_for(run.execution)
        times.append(time.perf_counter())
        return step > WARM_UP and times[-1] - times[WARM_UP] > ENOUGH

    fit(
        run.objective,
        run.optimizer,
        run.batches,
        steps=range(WARM_UP + MOST),
        rate=run.rate,
        meter=run.meter,
        accumulate=run.recipe.train.accumulate,
        after_step=enough,
    )
    return statistics.median(after - before for before, after in pairwise(times[WARM_UP:]))


def _seconds_per_image(run: Run, tests: int) -> float:
    part = run.data.dataset.test
    few = part[torch.arange(min(len(part), tests))]
    dataset = replace(run.data.dataset, test=few)
    run.data = replace(run.data, dataset=dataset)
    run.test_logits(run.network, turns=1)
    began = time.perf_counter()
    run.test_logits(run.network, turns=1)
    return (time.perf_counter() - began) / len(few)


def _wait_for(execution: Execution) -> None:
    if execution.device == "cuda":
        torch.cuda.synchronize()
