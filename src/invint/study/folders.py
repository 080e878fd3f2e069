"""Reading the folder of a finished run."""

import json
from pathlib import Path
from typing import Any

from invint.errors import ConfigError, RunError
from invint.study.predictions import calibration_bins, confusion_matrix, predictions_at
from invint.study.record import ClassError, RunRecord

PARTS = ("recipe.json", "environment.json", "subset.json", "result.json")


def read_run(folder: Path) -> RunRecord:
    """Read the folder of a finished run.

    Raises:
        RunError: The run is not finished, or a file of it is damaged.
    """
    if not (folder / "result.json").is_file():
        raise RunError(f"{folder}: not finished, there is no result.json; run it again to go on")
    recipe, environment, subset, result = (read_json(folder / name) for name in PARTS)
    log = _read_log(folder / "log.jsonl")
    predictions = predictions_at(folder / "predictions.safetensors")
    try:
        return RunRecord(
            recipe=result["recipe"],
            about=recipe.get("about", ""),
            hash=result["hash"],
            choices=recipe["choices"],
            seed=result["seed"],
            size=subset["size"] or result["train_images"],
            subset=subset["hash"],
            data=result["data"]["name"],
            note=result["data"].get("note") or "",
            fingerprint=result["data"]["fingerprint"],
            error=result["error"],
            averaged_error=result.get("averaged_error"),
            cross_entropy=result["cross_entropy"],
            per_class=tuple(ClassError(**each) for each in result["per_class"]),
            parameters=result["parameters"],
            steps=result["steps"],
            scale=result["scale"],
            seconds=result["seconds"],
            test_images=result["test_images"],
            train_images=result["train_images"],
            version=result["invint"],
            environment=environment,
            curve=tuple(line for line in log if "event" not in line),
            selections=tuple(line for line in log if line.get("event") == "selection"),
            confusion=() if predictions is None else confusion_matrix(*predictions),
            calibration=() if predictions is None else calibration_bins(*predictions),
            turns=_read_turns(folder / "turns.json"),
            folder=folder,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{folder}: its files are not those of a run ({error!r})") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say in one line what is wrong with the file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise RunError(f"{path}: damaged, it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise RunError(f"{path}: damaged, expected a JSON object, got {type(values).__name__}")
    return values


def _read_log(path: Path) -> list[dict[str, Any]]:
    """Read the lines that are whole: a kill may have cut the last one of each attempt."""
    if not path.is_file():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def _read_turns(path: Path) -> tuple[tuple[float, float], ...]:
    if not path.is_file():
        return ()
    from invint.audit import Audit

    try:
        turns = Audit.load(path).turns
    except ConfigError:
        return ()  # measured again when a report is made
    return tuple((turn.angle, turn.accuracy or 0.0) for turn in turns if not turn.mirrored)
