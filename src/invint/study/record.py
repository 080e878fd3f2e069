"""What a finished run was and what came out, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invint.errors import ConfigError


@dataclass(frozen=True)
class ClassError:
    """Error on the test images of one class.

    Attributes:
        name: Name of the class.
        images: Its test images.
        error: Share of them with another label.
    """

    name: str
    images: int
    error: float


@dataclass(frozen=True)
class Bin:
    """Test images whose label was given with similar confidence.

    Attributes:
        count: Number of images.
        confidence: Their mean confidence; 0 of none.
        accuracy: Share with the right label; 0 of none.
    """

    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a finished run was and what came out. Errors are fractions.

    Attributes:
        recipe: Name of the recipe.
        about: Its one line.
        hash: Of its choices.
        choices: The choices themselves.
        seed: The seed.
        size: Number of training images asked for.
        subset: Hash of which ones they are.
        data: Name of the data set.
        note: What a table must say of the set.
        fingerprint: Hash of the set.
        error: On test images.
        averaged_error: With predictions averaged over rotated copies, if the recipe has it.
        cross_entropy: On test images.
        per_class: Error by class.
        parameters: Of the network.
        steps: Steps of training.
        scale: Share of the recipe's iterations that ran.
        seconds: Of training.
        test_images: Number of test images.
        train_images: Number of images trained on.
        version: Of invint.
        environment: What it ran on.
        curve: Lines of the log, one for each epoch logged.
        selections: Lines of the log about the selection of monomials.
        confusion: Test images by true class and label; empty if predictions are gone.
        calibration: Test images by confidence; empty if predictions are gone.
        turns: Pairs of angle in degrees and accuracy, where they were measured.
        folder: The run folder; none if read from a record.
    """

    recipe: str
    about: str = ""
    hash: str
    choices: dict[str, Any]
    seed: int
    size: int
    subset: str
    data: str
    note: str
    fingerprint: str
    error: float
    averaged_error: float | None = None
    cross_entropy: float
    per_class: tuple[ClassError, ...] = ()
    parameters: int
    steps: int
    scale: float
    seconds: float
    test_images: int
    train_images: int
    version: str
    environment: dict[str, Any] = field(default_factory=dict)
    curve: tuple[dict[str, float], ...] = ()
    selections: tuple[dict[str, Any], ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()
    calibration: tuple[Bin, ...] = ()
    turns: tuple[tuple[float, float], ...] = ()
    folder: Path | None = None

    @property
    def pair(self) -> tuple[int, str]:
        """What two runs must share to be compared: the seed and the training images."""
        return self.seed, self.subset

    @property
    def calibration_error(self) -> float | None:
        """Mean distance of confidence and accuracy, weighted by images."""
        total = sum(each.count for each in self.calibration)
        if not total:
            return None
        gaps = (each.count * abs(each.confidence - each.accuracy) for each in self.calibration)
        return sum(gaps) / total


def check_alike(runs: Sequence[RunRecord]) -> None:
    """Refuse runs that do not belong into one table.

    Raises:
        ConfigError: They come from several versions, from several data under one name, or from
            several recipes under one name and size.
    """
    versions = sorted({run.version for run in runs})
    if len(versions) > 1:
        raise ConfigError(
            f"runs of invint {' and '.join(versions)} do not belong into one table; "
            "give those of one version"
        )
    prints: dict[str, str] = {}
    hashes: dict[tuple[str, str, int], str] = {}
    for run in runs:
        if prints.setdefault(run.data, run.fingerprint) != run.fingerprint:
            raise ConfigError(
                f"runs on different data, all called {run.data!r} (fingerprints "
                f"{prints[run.data]} and {run.fingerprint}), do not belong into one table"
            )
        if hashes.setdefault((run.recipe, run.data, run.size), run.hash) != run.hash:
            raise ConfigError(
                f"runs of different recipes, all called {run.recipe!r} at {run.size:,} images "
                f"(hashes {hashes[run.recipe, run.data, run.size]} and {run.hash}), do not belong "
                "into one table"
            )
