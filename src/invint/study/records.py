"""Records: finished runs in small files that are kept, and both kinds found again."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from invint.errors import ConfigError, InvintError
from invint.files import write_whole
from invint.study.folders import read_json, read_run
from invint.study.record import Bin, ClassError, RunRecord

FORMAT = 1
POINTS = 60  # of a learning curve that are kept in a record


def find_runs(paths: Iterable[Path], notes: list[str] | None = None) -> list[RunRecord]:
    """Read all finished runs in and below folders, and all runs in files of records.

    Args:
        paths: Folders, run folders or JSON files that `write_records` wrote.
        notes: Receives one line for each run that was left out, and why.

    Returns:
        The runs, in order of recipe, size and seed.
    """
    skipped = [] if notes is None else notes
    runs: dict[tuple[str, str, int], RunRecord] = {}
    for path in paths:
        for run in _runs_at(path, skipped):
            runs.setdefault((run.recipe, run.hash, run.seed), run)
    return sorted(runs.values(), key=lambda run: (run.recipe, run.size, run.seed))


def _runs_at(path: Path, notes: list[str]) -> list[RunRecord]:
    if path.is_file() and path.suffix == ".json":
        return read_records(path)
    if not path.is_dir():
        raise ConfigError(f"{path}: expected a folder of runs or a .json file of records")
    runs = []
    for file in sorted(path.rglob("recipe.json")):
        try:
            runs.append(read_run(file.parent))
        except InvintError as error:
            notes.append(f"left out {error}")
    return runs


def to_record(run: RunRecord) -> dict[str, Any]:
    """Return everything tables and figures need as JSON can hold it, a few kilobytes."""
    values = {each.name: getattr(run, each.name) for each in fields(run) if each.name != "folder"}
    values["per_class"] = [asdict(each) for each in run.per_class]
    values["calibration"] = [
        [each.count, round(each.confidence, 5), round(each.accuracy, 5)] for each in run.calibration
    ]
    step = -(-len(run.curve) // POINTS) or 1
    values["curve"] = [
        {key: _shorter(value) for key, value in line.items()}
        for number, line in enumerate(run.curve, start=1)
        if number % step == 0 or number == len(run.curve)
    ]
    return {"format": FORMAT} | values


def from_record(values: dict[str, Any]) -> RunRecord:
    """Read what `to_record` returned."""
    try:
        values = dict(values)
        if values.pop("format") != FORMAT:
            raise ConfigError(f"not a record of format {FORMAT}; write it again")
        values["per_class"] = tuple(ClassError(**each) for each in values["per_class"])
        values["calibration"] = tuple(Bin(*each) for each in values["calibration"])
        for name in ("curve", "selections"):
            values[name] = tuple(values[name])
        for name in ("confusion", "turns"):
            values[name] = tuple(tuple(row) for row in values[name])
        return RunRecord(**values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"not a record of a run ({error!r})") from error


def write_records(runs: Sequence[RunRecord], path: Path) -> None:
    """Write a JSON file of records, one run a line."""
    lines = (json.dumps(to_record(run), ensure_ascii=False) for run in runs)
    write_whole(path, '{"format": 1, "runs": [\n' + ",\n".join(lines) + "\n]}\n")


def read_records(path: Path) -> list[RunRecord]:
    """Read a file that `write_records` wrote, or one holding a single record."""
    values = read_json(path)
    try:
        return [from_record(each) for each in values.get("runs", [values])]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _shorter(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
