"""Records: finished runs in small files that are kept, and both kinds found again."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from invint.audit import Audit
from invint.errors import ConfigError, InvintError, RunError
from invint.files import write_atomically
from invint.train.evaluate import Bin, calibration_bins, calibration_error
from invint.train.store import RunStore
from invint.version import COMPARABLE

FORMAT = 1
POINTS = 60  # of a learning curve that are kept in a record


@dataclass(frozen=True)
class ClassError:
    """Error on the test images of one class.

    Attributes:
        name: Name of the class.
        images: Its test images.
        error: Fraction of them with a wrong answer.
    """

    name: str
    images: int
    error: float


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
        validation_error: Of the last weights, if the recipe holds out validation images.
        cross_entropy: On test images.
        per_class: Error by class.
        parameters: Of the network.
        steps: Steps of training.
        scale: Fraction of the recipe's iterations that ran.
        seconds: Of training.
        test_images: Number of test images.
        train_images: Number of images trained on.
        held_out: Number of training images held out for validation.
        version: Of invint.
        environment: What it ran on.
        curve: Lines of the log, one for each epoch logged.
        selections: Lines of the log about the selection of monomials.
        confusion: Test images by true class and answer; empty if predictions are gone.
        calibration: Test images by confidence; empty if predictions are gone.
        turns: Pairs of angle in degrees and accuracy, where they were measured.
        folder: The run folder; `None` if read from a record.
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
    validation_error: float | None = None
    cross_entropy: float
    per_class: tuple[ClassError, ...] = ()
    parameters: int
    steps: int
    scale: float
    seconds: float
    test_images: int
    train_images: int
    held_out: int = 0
    version: str
    environment: dict[str, Any] = field(default_factory=dict)
    curve: tuple[dict[str, Any], ...] = ()
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
        return calibration_error(self.calibration)


RECORD = TypeAdapter(RunRecord)
OUTCOME = (  # what is the same in two records of one run
    *("data", "fingerprint", "subset", "steps"),
    *("error", "averaged_error", "validation_error", "cross_entropy"),
)


def check_alike(runs: Sequence[RunRecord]) -> None:
    """Refuse runs that do not belong into one table.

    Raises:
        ConfigError: They come from several versions, from several data under one name, or from
            several recipes under one name and size.
    """
    versions = sorted({run.version for run in runs})
    if len(versions) > 1 and not set(versions) <= set(COMPARABLE):
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


def read_predictions(run: RunRecord) -> tuple[Tensor, Tensor] | None:
    """Return logits `(n, classes)` and labels of the test images, if they are still there."""
    return None if run.folder is None else RunStore(run.folder).predictions


def confusion_matrix(logits: Tensor, labels: Tensor) -> tuple[tuple[int, ...], ...]:
    """Count test images: one row for each true class, one column for each answer."""
    classes = logits.shape[1]
    cells = torch.bincount(labels * classes + logits.argmax(dim=1), minlength=classes**2)
    counts: list[int] = cells.tolist()
    return tuple(tuple(counts[start : start + classes]) for start in range(0, classes**2, classes))


def read_run(folder: Path) -> RunRecord:
    """Read the folder of a complete run.

    Raises:
        RunError: The run is not complete, or a file of it is damaged.
    """
    store = RunStore(folder)
    result = store.result
    if result is None:
        raise RunError(f"{folder}: not complete, there is no result.json; run it again to resume")
    recipe, environment, subset = map(
        store.require, ("recipe.json", "environment.json", "subset.json")
    )
    log, predictions, turns = store.log(), store.predictions, store.turns
    # What a result and a record call alike; one that lacks a number is no record below.
    copied = {each.name: result[each.name] for each in fields(RunRecord) if each.name in result}
    try:
        own = {
            "about": recipe.get("about", ""),
            "choices": recipe["choices"],
            "size": subset["size"] or result["train_images"],
            "subset": subset["hash"],
            "held_out": len(subset.get("validation", ())),
            "data": result["data"]["name"],
            "note": result["data"].get("note") or "",
            "fingerprint": result["data"]["fingerprint"],
            "per_class": tuple(ClassError(**each) for each in result["per_class"]),
            "version": result["invint"],
            "environment": environment,
            "curve": tuple(line for line in log if "event" not in line),
            "selections": tuple(line for line in log if line.get("event") == "selection"),
            "confusion": () if predictions is None else confusion_matrix(*predictions),
            "calibration": () if predictions is None else calibration_bins(*predictions),
            "turns": () if turns is None else accuracy_by_angle(turns),
            "folder": folder,
        }
        return RunRecord(**(copied | own))
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder}: its files are not those of a run ({error!r})") from error


def accuracy_by_angle(audit: Audit) -> tuple[tuple[float, float], ...]:
    """Return pairs of angle and accuracy of the rotations, mirrored ones left out."""
    return tuple((turn.angle, turn.accuracy or 0.0) for turn in audit.turns if not turn.mirrored)


def find_runs(paths: Iterable[Path], notes: list[str] | None = None) -> list[RunRecord]:
    """Read all finished runs in and below folders, and all runs in files of records.

    A run that is found several times, as in its folder and in a record of it, is one run.

    Args:
        paths: Folders, run folders or JSON files that `write_records` wrote.
        notes: Receives one line for each run that was left out, and why.

    Returns:
        The runs, in order of recipe, size and seed.

    Raises:
        ConfigError: Something given is neither, or two runs should be the same and are not.
    """
    found, skipped = list[tuple[Path, RunRecord]](), [] if notes is None else notes
    for path in paths:
        if path.is_file() and path.suffix == ".json":
            found += [(path, run) for run in read_records(path)]
        elif not path.is_dir():
            raise ConfigError(f"{path}: expected a folder of runs or a .json file of records")
        for file in sorted(path.rglob("recipe.json")):
            try:
                found.append((file.parent, read_run(file.parent)))
            except InvintError as error:
                skipped.append(f"left out {error}")
    return sorted(_merged(found), key=lambda run: (run.recipe, run.size, run.seed))


def _merged(found: Iterable[tuple[Path, RunRecord]]) -> list[RunRecord]:
    """Return each run once, the first of those that are the same, or refuse those that are not."""
    runs: dict[tuple[str, str, int], tuple[Path, RunRecord]] = {}
    for path, run in found:
        before, first = runs.setdefault((run.recipe, run.hash, run.seed), (path, run))
        for name in OUTCOME:
            one, other = getattr(first, name), getattr(run, name)
            if one != other:
                raise ConfigError(
                    f"{run.recipe}, {run.size:,} images, seed {run.seed}: two runs that should be "
                    f"the same differ, {name} is {one} in {before} and {other} in {path}; leave "
                    "one of them out"
                )
    return [run for _, run in runs.values()]


def to_record(run: RunRecord) -> dict[str, Any]:
    """Return everything tables and figures need as JSON can hold it, a few kilobytes."""
    values = {each.name: getattr(run, each.name) for each in fields(run) if each.name != "folder"}
    values["per_class"] = [asdict(each) for each in run.per_class]
    values["calibration"] = [
        [each.count, round(each.confidence, 5), round(each.accuracy, 5)] for each in run.calibration
    ]
    step = -(-len(run.curve) // POINTS) or 1
    values["curve"] = [
        {
            key: float(f"{value:.5g}") if isinstance(value, float) else value
            for key, value in line.items()
        }
        for index, line in enumerate(run.curve, start=1)
        if index % step == 0 or index == len(run.curve)
    ]
    return {"format": FORMAT} | values


def from_record(values: dict[str, Any]) -> RunRecord:
    """Read what `to_record` returned."""
    if values.get("format") != FORMAT:
        raise ConfigError(f"not a record of format {FORMAT}; write it again")
    try:
        bins = [Bin(*each) for each in values.get("calibration", ())]
        return RECORD.validate_python(values | {"calibration": bins})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"not a record of a run ({place}: {first['msg']})") from error


def write_records(runs: Sequence[RunRecord], path: Path) -> None:
    """Write a JSON file of records, one run a line."""
    lines = (json.dumps(to_record(run), ensure_ascii=False) for run in runs)
    write_atomically(path, '{"format": 1, "runs": [\n' + ",\n".join(lines) + "\n]}\n")


def read_records(path: Path) -> list[RunRecord]:
    """Read a file that `write_records` wrote, or one holding a single record."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return [from_record(each) for each in values.get("runs", [values])]
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise RunError(f"{path}: damaged, it is not a file of records ({error})") from error
