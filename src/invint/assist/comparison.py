"""What the finished runs say: errors upright and turned, differences, excess confusions."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from invint.data.dataset import Part
from invint.errors import RunError
from invint.study.predictions import confusion_matrix, read_predictions
from invint.study.record import RunRecord
from invint.study.statistics import (
    BETTER,
    UNDECIDED,
    WORSE,
    Difference,
    Excess,
    confusion_excess,
    paired_difference,
)

LEVEL = 0.05
PREFERRED = ("fit/local-ws", "fit/pooling", "fit/cnn-turned", "fit/cnn")  # where validation ties


@dataclass(frozen=True)
class Standing:
    """One network over its seeds. Errors are fractions.

    Attributes:
        recipe: Name of its recipe.
        parameters: Their number.
        error: Mean on test images as they are.
        turned: Mean on turned test images, over angles.
        validation: Mean on validation images.
        runs: Its runs.
    """

    recipe: str
    parameters: int
    error: float
    turned: float
    validation: float
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True)
class Comparison:
    """Two networks on the same test images and the same splits.

    Attributes:
        first: Name of a recipe.
        second: Name of the recipe to compare with.
        difference: Of the errors over seeds; negative if the first makes fewer.
        better: Test images, or groups of them, on which the first is right more often.
        worse: Those on which the second is.
        p_value: Of the exact sign test on these; McNemar's test where there is one seed.
    """

    first: str
    second: str
    difference: Difference
    better: int
    worse: int
    p_value: float

    @property
    def verdict(self) -> str:
        """A direction only where chance among the images and among the seeds leaves one."""
        sign = self.difference.mean
        if self.p_value >= LEVEL or (self.better > self.worse) != (sign < 0) or sign == 0:
            return UNDECIDED
        direction = BETTER if sign < 0 else WORSE
        if self.difference.pairs == 1:
            return direction
        return direction if self.difference.verdict == direction else UNDECIDED


def standings(runs: Sequence[RunRecord]) -> list[Standing]:
    """Return how the networks did, in the order of the runs."""
    by_recipe: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        by_recipe[run.recipe].append(run)
    return [
        Standing(
            recipe=recipe,
            parameters=mine[0].parameters,
            error=fmean(run.error for run in mine),
            turned=fmean(turned_error(run) for run in mine),
            validation=fmean(validation_error(run) for run in mine),
            runs=tuple(mine),
        )
        for recipe, mine in by_recipe.items()
    ]


def turned_error(run: RunRecord) -> float:
    """Return the mean error over all angles but none."""
    return 1 - fmean(accuracy for angle, accuracy in run.turns if angle)


def validation_error(run: RunRecord) -> float:
    """Return the error of the last weights on the validation images."""
    if run.folder is None:
        raise RunError(f"{run.recipe}: read from a record, which holds no validation error")
    return float(json.loads((run.folder / "result.json").read_text())["validation_error"])


def best_run(standing: Sequence[Standing]) -> RunRecord:
    """Choose by validation error alone; on a tie, the network that keeps its answers when turned.

    Test images have no say in it.
    """

    def place(name: str) -> int:
        return PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)

    best = min(standing, key=lambda each: (each.validation, place(each.recipe)))
    return min(best.runs, key=lambda run: (validation_error(run), run.seed))


def beats_guessing(standing: Sequence[Standing], test: Part) -> bool:
    """Tell whether the best network is right more often than naming the largest class would be."""
    from scipy.stats import binomtest  # slow to import

    images, largest = len(test), int(test.labels.bincount().max())
    right = round((1 - min(each.error for each in standing)) * images)
    found = binomtest(right, images, largest / images, alternative="greater")
    return bool(found.pvalue < LEVEL)


def compare(first: Standing, second: Standing, test: Part) -> Comparison:
    """Compare the errors of two networks on test images as they are."""
    errors = [{run.pair: run.error for run in each.runs} for each in (first, second)]
    difference = paired_difference(*errors)
    if difference is None:
        raise RunError(f"{first.recipe} and {second.recipe} share no seed; remove their runs")
    gaps = _wrong(second) - _wrong(first)
    if test.groups is not None:  # images of one group stand or fall together
        _, members = test.groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        gaps = torch.zeros(int(members.max()) + 1).index_add(0, members, gaps)
    better, worse = int((gaps > 1e-6).sum()), int((gaps < -1e-6).sum())
    return Comparison(
        first.recipe, second.recipe, difference, better, worse, _sign_test(better, worse)
    )


def compare_turned(first: Standing, second: Standing) -> Difference | None:
    """Compare the errors of two networks on turned test images, over seeds."""
    errors = [{run.pair: turned_error(run) for run in each.runs} for each in (first, second)]
    return paired_difference(*errors)


def confused(first: Standing, second: Standing) -> list[Excess]:
    """Find pairs of classes the first network confuses significantly more often.

    The probabilities of all seeds are averaged, so that each test image counts once.
    """
    matrices = []
    for standing in (first, second):
        probabilities = torch.stack([_predictions(run)[0].softmax(dim=1) for run in standing.runs])
        labels = _predictions(standing.runs[0])[1]
        matrices.append(confusion_matrix(probabilities.mean(dim=0), labels))
    return confusion_excess(*matrices, level=LEVEL)


def _wrong(standing: Standing) -> Tensor:
    """Return for each test image the share of seeds that are wrong about it."""
    found = [_predictions(run) for run in standing.runs]
    wrong = [(logits.argmax(dim=1) != labels).float() for logits, labels in found]
    return torch.stack(wrong).mean(dim=0)


def _predictions(run: RunRecord) -> tuple[Tensor, Tensor]:
    found = read_predictions(run)
    if found is None:
        raise RunError(f"{run.folder}: predictions.safetensors is gone; remove the run and go on")
    return found


def _sign_test(better: int, worse: int) -> float:
    """Return the probability of so uneven a split, or more, if both were equally likely."""
    if better + worse == 0:
        return 1.0
    from scipy.stats import binomtest  # slow to import

    return float(binomtest(better, better + worse).pvalue)
