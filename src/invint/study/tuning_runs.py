"""Trials as runs: a configuration and a share of the iterations, trained in a run folder."""

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from invint.errors import RunError
from invint.files import write_whole
from invint.recipes import Recipe
from invint.run import Execution, train_run
from invint.run.folder import RunFolder
from invint.study.engine import Place
from invint.study.space import Configuration, Space, configured
from invint.study.trials import Measured, Trial
from invint.study.tuning_outcome import share

VALIDATION = 0.2  # of the training images, as in the appendix
WEIGHTS = ("last.safetensors", "best.safetensors", "model.safetensors")


@dataclass(frozen=True, kw_only=True)
class TrainedTrial:
    """Trains a configuration and returns its validation error; can be sent to other processes.

    Attributes:
        recipe: What is tuned.
        seed: Of subset, validation images, weights and batches; the same for all trials.
        place: Where and how runs are carried out.
        keep_weights: Whether to leave the weights of a trial that has ended in its folder.
    """

    recipe: Recipe
    seed: int
    place: Place
    keep_weights: bool = False

    def recipe_of(self, configuration: Configuration, fidelity: float) -> Recipe:
        """Return the recipe of a trial; rotated copies of test images are left out."""
        recipe = configured(self.recipe, configuration)
        data = replace(recipe.data, validation=VALIDATION, test_turns=1)
        train = replace(recipe.train, scale=round(fidelity, 6))
        return replace(recipe, data=data, train=train)

    def __call__(self, configuration: Configuration, fidelity: float) -> Measured:
        """Train; a loss that is no number or exhausted memory is a failure of the trial."""
        recipe = self.recipe_of(configuration, fidelity)
        folder, began = RunFolder.of(self.place.runs, recipe, self.seed), time.monotonic()
        finished_before = folder.result is not None
        try:
            self._train(recipe, folder)
        except RunError as error:
            if isinstance(error.__cause__, OSError):  # the machine's fault, not the trial's
                raise
            seconds = time.monotonic() - began
            return Measured(None, seconds, str(folder.path), str(error))
        result = folder.result or {}
        if "validation_error" not in result:
            raise RunError(
                f"{folder.path}: the run has no validation error; remove the folder to try again"
            )
        if not (finished_before or self.keep_weights):
            for name in WEIGHTS:
                (folder.path / name).unlink(missing_ok=True)
        return Measured(result["validation_error"], result["seconds"], str(folder.path))

    def _train(self, recipe: Recipe, folder: RunFolder) -> None:
        begun = folder.read("environment.json") is not None  # then it keeps its threads
        train_run(
            recipe,
            seed=self.seed,
            runs=self.place.runs,
            data_dir=self.place.data_dir,
            execution=Execution() if begun else self.place.execution,
        )


def tuning_folder(
    runs: Path, recipe: Recipe, seed: int, scales: tuple[float, float], space: Space
) -> RunFolder:
    """Return the folder of a tuning; it differs with anything that its proposals depend on."""
    text = repr((recipe.hash, scales, space))
    key = hashlib.sha256(text.encode()).hexdigest()[:8]
    return RunFolder(runs / recipe.name / f"tuning-{key}-{seed}")


def tuned_recipe(recipe: Recipe, trial: Trial, method: str, trials: int) -> Recipe:
    """Return the recipe with the values of a trial, to be trained on all images in full."""
    error = "no" if trial.validation_error is None else f"{trial.validation_error:.2%}"
    about = (
        f"{recipe.name} tuned by {method}: {error} validation error with "
        f"{share(trial.fidelity)}, best of {trials} trials"
    )
    found = configured(recipe, trial.configuration)
    return replace(found, name=f"{recipe.name}-tuned", about=about)


def describe(folder: RunFolder, **values: object) -> None:
    """Write down what is tuned, for whoever looks into the folder."""
    write_whole(folder.path / "tuning.json", json.dumps(values, indent=1) + "\n")
