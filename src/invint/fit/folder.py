"""A folder of pictures in, a classifier and advice out.

Four networks are trained on the same pictures for the same number of steps, as large and as often
as the time allows. So what is measured is what invariance gains or costs on these pictures.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from invint.data.dataset import Dataset, holdout
from invint.data.folder import Scan, refuse, scan
from invint.data.listing import read_layout
from invint.data.pictures import shown
from invint.errors import ConfigError, DataError, InvintError
from invint.export import export_model, load_network
from invint.files import write_atomically
from invint.fit.advice import NAMES, Findings, advise, counted, findings_of, summaries_of
from invint.fit.plan import SIDES, VALIDATION, Plan, candidate_sides, make_plan, recipes, stopwatch
from invint.recipes.recipe import DataChoice, Recipe
from invint.report import measure_turns, store_of, write_report
from invint.study.records import RunRecord, read_run
from invint.train import Callback, Execution, train_run
from invint.train.setup import load_data

FORMAT = 2  # of plan.json


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """What to fit; the same again resumes what was begun.

    Attributes:
        folder: Pictures in one of the layouts of `read_layout`, or a CSV file that lists them.
        minutes: Time for everything, about.
        side: Side of the images in pixels, even; chosen for the time if not given.
        skip_bad: Leave out pictures that cannot be read.
        seed: Of the test split, and the first one of training.
        test_share: Fraction held out for testing where the folder has no test split.
    """

    folder: Path
    minutes: float = 10.0
    side: int | None = None
    skip_bad: bool = False
    seed: int = 0
    test_share: float = 0.2

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise ConfigError(f"fit: expected minutes above 0, got {self.minutes:g}")
        if self.side is not None and (self.side < SIDES[0] or self.side % 2):
            raise ConfigError(f"fit: expected an even side of {SIDES[0]} or more, got {self.side}")

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON can hold it."""
        return asdict(self) | {"folder": str(self.folder.resolve())}

    def data(self, side: int) -> DataChoice:
        """Return the pictures as a data set of recipes, at the given side."""
        return DataChoice(
            name=f"folder:{self.folder}",
            side=side,
            skip_bad=self.skip_bad,
            test_share=self.test_share,
            split_seed=self.seed,
        )


@dataclass(frozen=True)
class FitResult:
    """What `fit_folder` made.

    Attributes:
        plan: What was trained.
        findings: What was measured.
        advice: The same in words.
        files: The files written, by kind: report, advice, safetensors, onnx.
    """

    plan: Plan
    findings: Findings
    advice: str
    files: dict[str, Path]


def fit_folder(
    config: FitConfig, out: Path, *, plan: Plan | None = None, callback: Callback | None = None
) -> FitResult:
    """Find out whether rotation invariance helps on pictures, and keep the best network.

    Called again with the same configuration it resumes where it was stopped.

    Args:
        config: Which pictures, how long, how split.
        out: Folder for what is written.
        plan: Sizes and times, where they are not to be measured.
        callback: Receives progress.
    """
    callback = callback or Callback()
    read_layout(config.folder)  # refuses what holds no classes before anything is written
    with _folder_for(out, config.folder):
        begun, fingerprint = _begun(out, config)
        found = _scanned(config, callback)
        plan = begun or plan or _measured_plan(config, found, callback)
        data = config.data(plan.side)
        dataset = load_data(data, None, progress=callback.on_decode)
        if fingerprint not in (None, dataset.fingerprint):
            raise DataError(
                f"{shown(str(config.folder))}: the pictures have changed since this was begun; "
                "choose another folder for --out"
            )
        for run in range(plan.seeds):
            _check_split(dataset, config.seed + run)
        noted = {"format": FORMAT, "config": config.to_dict(), "plan": asdict(plan)}
        noted["fingerprint"] = dataset.fingerprint
        write_atomically(out / "plan.json", json.dumps(noted, indent=1) + "\n")
        runs = _train(recipes(plan, data, len(dataset.train)), plan, config, out, dataset, callback)
        callback.on_note("writing the report and the network")
        return _write(runs, dataset, plan, config, out)


def name_of(folder: Path) -> str:
    """Return what to call the pictures: the folder's name, or that of the CSV file."""
    place = folder.resolve()
    return (place.name if place.is_dir() else place.stem) or "images"


@contextmanager
def _folder_for(out: Path, pictures: Path) -> Iterator[None]:
    """Make the folder for results; take it away again if nothing came into it."""
    if pictures.is_dir() and out.resolve().is_relative_to(pictures.resolve()):
        raise ConfigError(
            f"--out {out}: lies in the folder of the pictures and would be taken for a class; "
            "choose a folder elsewhere"
        )
    made = [each for each in (out, *out.parents) if not each.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()  # better refused now than after the training
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written to ({error.strerror})") from error
    try:
        yield
    finally:
        if not any(out.iterdir()):
            for folder in made:
                folder.rmdir()


def _begun(out: Path, config: FitConfig) -> tuple[Plan | None, str | None]:
    """Return plan and fingerprint of an earlier start with the same configuration."""
    path = out / "plan.json"
    if not path.exists():
        return None, None
    try:
        noted = json.loads(path.read_text())
        if noted["format"] != FORMAT:
            raise ConfigError(f"{path}: begun by another version; choose another folder for --out")
        before, plan = noted["config"], Plan(**noted["plan"])
        fingerprint = str(noted["fingerprint"])
    except ConfigError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: damaged; remove it to start over") from error
    changed = [key for key, value in config.to_dict().items() if before.get(key) != value]
    if changed:
        what = ", ".join(f"{key} {before.get(key)}" for key in changed)
        raise ConfigError(
            f"--out {out}: holds what was begun with {what}; choose another folder, or repeat that"
        )
    return plan, fingerprint


def _scanned(config: FitConfig, callback: Callback) -> Scan:
    found = scan(
        config.folder,
        side=config.side,
        seed=config.seed,
        test_share=config.test_share,
        progress=callback.on_decode,
    )
    callback.on_note(found.report() + "\n")
    refuse(found, skip_bad=config.skip_bad)
    if not sum(found.counts["test"]):
        raise DataError(f"{shown(str(config.folder))}: no picture to test on; add some")
    return found


def _measured_plan(config: FitConfig, found: Scan, callback: Callback) -> Plan:
    callback.on_note("measuring how fast this machine is")
    images = sum(found.counts["train"])
    clock = stopwatch(images, found.shape.channels, len(found.classes))
    sides = [config.side] if config.side else candidate_sides(found.shape.side)
    plan = make_plan(images, sides, 60 * config.minutes, clock)
    smaller = ", made smaller to fit the time" if plan.side < found.shape.side else ""
    times = "once" if plan.seeds == 1 else f"{plan.seeds} times, with other seeds"
    callback.on_note(
        f"images of {plan.side} x {plan.side} pixels{smaller}; {len(NAMES)} networks, each trained "
        f"{times}, for {counted(plan.steps, 'step')}: about {plan.seconds / 60:.1f} minutes"
    )
    return plan


def _check_split(dataset: Dataset, seed: int) -> None:
    """Raise `DataError` before anything is trained if no validation images can be held out."""
    train = dataset.train
    if dataset.validation is not None:
        return
    try:
        holdout(train.labels, VALIDATION, seed, name=dataset.name, groups=train.groups)
    except InvintError as error:
        counts = train.labels.bincount(minlength=len(dataset.class_names)).tolist()
        fewest = min(counts)
        rare = dataset.class_names[counts.index(fewest)]
        raise DataError(
            f"too few pictures to learn from and to choose by: class {rare!r} has {fewest}; add "
            f"pictures or groups of it, or leave it out ({error})"
        ) from error


def _train(
    chosen: Sequence[Recipe],
    plan: Plan,
    config: FitConfig,
    out: Path,
    dataset: Dataset,
    callback: Callback,
) -> list[RunRecord]:
    """Train every network with every seed, turn the test images, and return runs by network."""
    seeds = range(config.seed, config.seed + plan.seeds)
    jobs = [(recipe, seed) for seed in seeds for recipe in chosen]
    records = []
    for index, (recipe, seed) in enumerate(jobs, start=1):
        callback.on_note(f"[{index}/{len(jobs)}] {NAMES[recipe.name]}, seed {seed}")
        store = train_run(
            recipe,
            seed=seed,
            runs=out / "runs",
            execution=Execution(compile=False),
            callback=callback,
        )
        measure_turns(read_run(store.path), lambda _: dataset)
        records.append(read_run(store.path))
    order = [recipe.name for recipe in chosen]
    return sorted(records, key=lambda run: order.index(run.recipe))  # stable: seeds keep theirs


def _write(
    runs: list[RunRecord], dataset: Dataset, plan: Plan, config: FitConfig, out: Path
) -> FitResult:
    findings = findings_of(summaries_of(runs), dataset)
    files = {"safetensors": out / "model.safetensors", "onnx": out / "model.onnx"}
    network, card = load_network(store_of(findings.best).model)
    not_saved = []
    for kind in ("safetensors", "onnx"):
        try:
            export_model(network, files[kind], card)
        except ConfigError as error:  # what ONNX needs may not be installed
            not_saved.append(f"{files.pop(kind).name} was not written: {error}")
    warnings = [f"The scan of the folder warns: {dataset.note}."] if dataset.note else []
    advice = advise(findings, dataset, plan, not_saved=not_saved, warnings=warnings)
    files["advice"], files["report"] = out / "advice.txt", out / "report.html"
    write_atomically(files["advice"], advice.text())
    name = name_of(config.folder)
    write_report(
        [replace(run, data=name) for run in runs],
        files["report"],
        title=f"{name}: does rotation invariance help?",
        load=lambda _: dataset,
        advice=advice.sections(),
        names=NAMES,
    )
    return FitResult(plan, findings, advice.text(), files)
