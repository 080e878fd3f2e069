"""A run from its start, or from where it was left, to its result."""

from contextlib import ExitStack
from pathlib import Path

from invint.recipes.recipe import Recipe
from invint.run.building import Images
from invint.run.execution import Execution
from invint.run.faults import explained
from invint.run.folder import RunFolder
from invint.run.processes import team
from invint.run.training import Run
from invint.run.watch import Watch


def train_run(
    recipe: Recipe,
    *,
    seed: int = 0,
    runs: Path = Path("runs"),
    data_dir: Path | None = None,
    execution: Execution | None = None,
    watch: Watch | None = None,
) -> Path:
    """Carry out a run, or what is left of it, and return its folder.

    A finished run is not run again. Killed at any moment and called again, it ends in the same
    weights: batches and random numbers are functions of the seed and the step.

    Args:
        recipe: Every choice.
        seed: Of the subset, the weights, the batches and dropout.
        runs: Where the folders of runs are.
        data_dir: Where data sets are; by default `INVINT_DATA` or the user's cache.
        execution: Device, precision, threads.
        watch: Hears of the progress.
    """
    folder, watch = RunFolder.of(runs, recipe, seed), watch or Watch()
    result = folder.result
    if result is not None:
        watch.noted(f"{folder.path} is complete; nothing to do")
        watch.finished(result)
        return folder.path
    execution = execution or Execution()
    begun = folder.read("environment.json")
    execution = execution.as_begun(begun, folder.path) if begun else execution.decided()
    with ExitStack() as stack:
        stack.callback(watch.ended)
        stack.enter_context(explained(folder.path))
        stack.enter_context(execution.applied())
        processes = stack.enter_context(team(execution.torch_device))
        if processes.leads:
            stack.enter_context(folder.locked())
        images = Images.of(recipe, seed, data_dir, progress=watch.decoded)
        run = Run(recipe, seed, folder, images, execution, processes)
        run.complete(watch)
    return folder.path
