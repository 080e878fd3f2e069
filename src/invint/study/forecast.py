"""How long the runs of a study will take on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from invint.data.registry import find_entry, is_here
from invint.recipes.recipe import Recipe, SelectionChoice
from invint.study.grid import Cell
from invint.study.pool import Workspace
from invint.train.run import EVALUATION_BATCH
from invint.train.setup import RunData
from invint.train.timing import random_data, seconds_per_image, seconds_per_step

FEW = 4  # images of a batch that are measured where a whole one takes too long
LONG = 3.0  # seconds of a step that are too long
NOISE = 256  # images that stand for those that are not here


@dataclass(frozen=True)
class Speed:
    """How fast a network is here.

    Attributes:
        step: Seconds of a training step.
        image: Seconds of a test image.
        tests: How many images are evaluated at the end of a run, copies included.
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
        """The state in a word: done, a fraction, or to do."""
        if self.seconds == 0:
            return "done"
        return f"{self.done / self.cell.steps:.0%} done" if self.done else "to do"


def forecast(
    cells: Sequence[Cell],
    workspace: Workspace,
    *,
    threads: int | None = None,
    on_recipe: Callable[[Recipe], None] = lambda _: None,
) -> list[Forecast]:
    """Say of each run how long it will take on this machine.

    Each network is measured once with its batch size; sizes and seeds take equally long.

    Args:
        cells: The runs.
        workspace: Where they are, or will be, and how they are executed.
        threads: Of each process, unless `workspace` says so.
        on_recipe: Receives each recipe before it is measured.
    """
    speeds: dict[Recipe, Speed] = {}
    forecasts = []
    for cell in cells:
        done = workspace.steps_done(cell)
        if not workspace.unfinished([cell]):
            forecasts.append(Forecast(cell, done, 0.0))
            continue
        recipe = representative(cell.recipe)
        if recipe not in speeds:
            on_recipe(cell.recipe)
            speeds[recipe] = measure(recipe, workspace, threads=threads)
        forecasts.append(Forecast(cell, done, speeds[recipe].seconds(cell.steps - done)))
    return forecasts


def representative(recipe: Recipe) -> Recipe:
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


def measure(recipe: Recipe, workspace: Workspace, *, threads: int | None = None) -> Speed:
    """Make a few real steps and evaluate a few test images; nothing of it is kept.

    Where a step takes seconds, a part of a batch stands for the whole; where the images are not
    here, noise of their size.
    """
    asked = workspace.execution
    execution = replace(asked, threads=asked.threads or threads).decided()
    data, tests = _images(recipe, workspace)
    batch, turns = recipe.train.batch_size, recipe.data.test_turns
    tests *= 1 if turns == 1 else 1 + turns
    if not execution.compile and batch > FEW:  # compiling again would take longer than it saves
        part = recipe.replace(train={"batch_size": FEW})
        step = seconds_per_step(part, data, execution) * batch / FEW
        if step > LONG:
            return Speed(step, seconds_per_image(recipe, data, execution, most=FEW), tests)
    step = seconds_per_step(recipe, data, execution)
    return Speed(step, seconds_per_image(recipe, data, execution, most=EVALUATION_BATCH), tests)


def _images(recipe: Recipe, workspace: Workspace) -> tuple[RunData, int]:
    """Return images to measure with, and how many there will be to test on."""
    name = recipe.data.name
    if not is_here(name, workspace.data_dir):
        entry = find_entry(name)
        if entry.counts is not None and entry.image_shape is not None:
            channels, side, _ = entry.image_shape
            images = max(recipe.train.batch_size, NOISE)
            noise = random_data(images, side=side, channels=channels, classes=int(entry.classes))
            return noise, entry.counts[1]
    data = RunData.of(recipe, 0, workspace.data_dir)
    return data, len(data.dataset.test)
