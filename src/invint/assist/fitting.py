"""From a folder of pictures to runs, a report, a network and advice."""

import io
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from invint.assist.advice import (
    NAMES,
    Findings,
    advice,
    as_text,
    counted,
    find_out,
    for_page,
)
from invint.assist.comparison import standings
from invint.assist.plan import (
    LADDER,
    VALIDATION,
    Plan,
    candidate_sides,
    make_plan,
    recipes,
    stopwatch,
)
from invint.data.arrays import load_arrays
from invint.data.dataset import Dataset, Progress
from invint.data.file_names import shown
from invint.data.findings import Scan, refuse
from invint.data.folder import load_folder
from invint.data.layout import read_layout
from invint.data.scan import scan
from invint.data.subsets import split
from invint.errors import ConfigError, DataError, InvintError
from invint.export import export_model, load_network
from invint.files import write_whole
from invint.report import write_report
from invint.report.networks import measure_turns, weights_of
from invint.run import Execution, Watch, train_run
from invint.study.folders import read_run
from invint.study.record import RunRecord

FORMAT = 1
LEAST = LADDER[0]  # pixels: smaller images leave the network no map to integrate over


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for; the same again goes on with what was begun.

    Attributes:
        folder: Pictures in one of the layouts of `read_layout`, or a CSV file that lists them.
        minutes: Time for everything, about.
        side: Side of the images in pixels, even; chosen for the time if not given.
        skip_bad: Leave out pictures that cannot be read.
        seed: Of the test split, and the first one of training.
        test_share: Share held out for testing where the folder has no test split.
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
        if self.side is not None and (self.side < LEAST or self.side % 2):
            raise ConfigError(f"fit: expected an even side of {LEAST} or more, got {self.side}")

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON can hold it."""
        return asdict(self) | {"folder": str(self.folder.resolve())}


class Onlooker:
    """Hears of the progress; this one keeps silent."""

    def say(self, text: str) -> None:
        """Something is to be told."""

    def decoded(self, count: int, total: int) -> None:
        """So many pictures of all are decoded."""

    def watch(self) -> Watch:
        """Return who looks on at the next run."""
        return Watch()


@dataclass(frozen=True)
class Fitted:
    """What `fit_folder` made.

    Attributes:
        plan: What was trained.
        findings: What came out.
        advice: The same in words.
        files: The files written, by kind: report, advice, safetensors, onnx.
    """

    plan: Plan
    findings: Findings
    advice: str
    files: dict[str, Path]


def fit_folder(
    wish: Wish, out: Path, *, plan: Plan | None = None, onlooker: Onlooker | None = None
) -> Fitted:
    """Find out whether rotation invariance helps on pictures, and keep the best network.

    Called again with the same wish it goes on where it was stopped.

    Args:
        wish: Which pictures, how long, how split.
        out: Folder for what is written.
        plan: Sizes and times, where they are not to be measured.
        onlooker: Hears of the progress.
    """
    onlooker = onlooker or Onlooker()
    read_layout(wish.folder)  # refuses what holds no classes before anything is written
    _check_out(wish.folder, out)
    begun = _begun(out, wish)
    found = _scanned(wish, onlooker)
    plan = begun or plan or _measured_plan(wish, found, onlooker)
    pictures = _load(wish, plan.side, onlooker.decoded)
    dataset, name = _stored(pictures, out, wish.folder)
    for number in range(plan.seeds):
        _check_split(dataset, wish.seed + number)
    noted = {"format": FORMAT, "wish": wish.to_dict(), "plan": asdict(plan)}
    write_whole(out / "plan.json", json.dumps(noted, indent=1) + "\n")
    runs = _train(plan, dataset, name, wish.seed, out / "runs", onlooker)
    onlooker.say("writing the report and the network")
    return _write(runs, dataset, plan, out, pictures.note)


def name_of(folder: Path) -> str:
    """Return what to call the pictures: the folder's name, or that of the CSV file."""
    place = folder.resolve()
    return (place.name if place.is_dir() else place.stem) or "images"


def _check_out(folder: Path, out: Path) -> None:
    inside = folder.is_dir() and out.resolve().is_relative_to(folder.resolve())
    if inside:
        raise ConfigError(
            f"--out {out}: lies in the folder of the pictures and would be taken for a class; "
            "choose a folder elsewhere"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / ".writable", "")
        (out / ".writable").unlink()
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written to ({error.strerror})") from error


def _begun(out: Path, wish: Wish) -> Plan | None:
    """Return the plan of an earlier start, if there was one for the same wish."""
    path = out / "plan.json"
    if not path.exists():
        return None
    try:
        noted = json.loads(path.read_text())
        before, plan = noted["wish"], Plan(**noted["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: damaged; remove it to begin anew") from error
    now = wish.to_dict()
    changed = [each.name for each in fields(wish) if before.get(each.name) != now[each.name]]
    if changed:
        what = ", ".join(f"{key} {before.get(key)}" for key in changed)
        raise ConfigError(
            f"--out {out}: holds what was begun with {what}; choose another folder, or repeat that"
        )
    return plan


def _scanned(wish: Wish, onlooker: Onlooker) -> Scan:
    found = scan(
        wish.folder,
        side=wish.side,
        seed=wish.seed,
        test_share=wish.test_share,
        progress=onlooker.decoded,
    )
    onlooker.say(found.report() + "\n")
    refuse(found, skip_bad=wish.skip_bad)
    if not sum(found.counts["test"]):
        raise DataError(f"{shown(str(wish.folder))}: no picture to test on; add some")
    return found


def _measured_plan(wish: Wish, found: Scan, onlooker: Onlooker) -> Plan:
    onlooker.say("measuring how fast this machine is")
    device = Execution().decided().torch_device.type
    images = sum(found.counts["train"])
    clock = stopwatch(images, found.shape.channels, len(found.classes), device)
    sides = [wish.side] if wish.side else candidate_sides(found.shape.side)
    plan = make_plan(images, sides, 60 * wish.minutes, clock)
    smaller = ", made smaller to fit the time" if plan.side < found.shape.side else ""
    times = "once" if plan.seeds == 1 else f"{plan.seeds} times, with other seeds"
    onlooker.say(
        f"images of {plan.side} x {plan.side} pixels{smaller}; {len(NAMES)} networks, each trained "
        f"{times}, for {counted(plan.steps, 'step')}: about {plan.seconds / 60:.1f} minutes"
    )
    return plan


def _load(wish: Wish, side: int, progress: Progress) -> Dataset:
    return load_folder(
        wish.folder,
        skip_bad=wish.skip_bad,
        side=side,
        seed=wish.seed,
        test_share=wish.test_share,
        progress=progress,
    )


def _stored(pictures: Dataset, out: Path, folder: Path) -> tuple[Dataset, str]:
    """Keep the images as the runs read them, and return them with their name."""
    path = out.resolve() / f"{name_of(folder)}.npz"
    if not path.exists():
        buffer = io.BytesIO()
        np.savez(buffer, **_arrays(pictures))
        write_whole(path, buffer.getvalue())
    dataset = load_arrays(path)
    if dataset.fingerprint != pictures.fingerprint:
        raise DataError(
            f"{shown(str(folder))}: the pictures have changed since this was begun; choose another "
            "folder for --out"
        )
    return dataset, f"arrays:{path}"


def _arrays(pictures: Dataset) -> dict[str, Any]:
    arrays: dict[str, Any] = {"class_names": np.array(pictures.class_names)}
    parts = {"train": pictures.train, "validation": pictures.validation, "test": pictures.test}
    for name, part in parts.items():
        if part is None:
            continue
        arrays |= {f"{name}_images": part.images.numpy(), f"{name}_labels": part.labels.numpy()}
        if part.groups is not None:
            arrays[f"{name}_groups"] = part.groups.numpy()
    return arrays


def _check_split(dataset: Dataset, seed: int) -> None:
    """Raise `DataError` before anything is trained if images to choose by cannot be held out."""
    train = dataset.train
    counts = train.labels.bincount(minlength=len(dataset.class_names)).tolist()
    fewest = min(counts)
    rare = dataset.class_names[counts.index(fewest)]
    try:
        if dataset.validation is None:
            split(train.labels, VALIDATION, seed, name=dataset.name, groups=train.groups)
    except InvintError as error:
        raise DataError(
            f"too few pictures to learn from and to choose by: class {rare!r} has {fewest}; add "
            f"pictures or groups of it, or leave it out ({error})"
        ) from error


def _train(
    plan: Plan, dataset: Dataset, name: str, seed: int, runs: Path, onlooker: Onlooker
) -> list[RunRecord]:
    """Train every network with every seed, and turn the test images."""
    chosen = recipes(plan, name, len(dataset.train))
    jobs = [(recipe, seed + number) for number in range(plan.seeds) for recipe in chosen]
    records: dict[tuple[str, int], RunRecord] = {}
    for place, (recipe, own) in enumerate(jobs, start=1):
        onlooker.say(f"[{place}/{len(jobs)}] {NAMES[recipe.name]}, seed {own}")
        execution = Execution(compile=False)
        path = train_run(recipe, seed=own, runs=runs, execution=execution, watch=onlooker.watch())
        measure_turns(read_run(path), lambda _: dataset)
        records[recipe.name, own] = read_run(path)
    order = sorted(jobs, key=lambda job: [each.name for each in chosen].index(job[0].name))
    return [records[recipe.name, own] for recipe, own in order]


def _write(runs: list[RunRecord], dataset: Dataset, plan: Plan, out: Path, note: str) -> Fitted:
    findings = find_out(standings(runs), dataset)
    sections = advice(findings, dataset, plan)
    if note:
        sections[-1][1].append(f"The scan of the folder warns: {note}.")
    files = {"safetensors": out / "model.safetensors", "onnx": out / "model.onnx"}
    network, card = load_network(weights_of(findings.best))
    for kind in ("safetensors", "onnx"):
        try:
            export_model(network, files[kind], card)
        except ConfigError as error:  # what ONNX needs may not be installed
            sections[-2][1].append(f"{files.pop(kind).name} was not written: {error}")
    text = as_text(sections)
    files["advice"], files["report"] = out / "advice.txt", out / "report.html"
    write_whole(files["advice"], text)
    name = dataset.name.partition(":")[2]
    write_report(
        [replace(run, data=name) for run in runs],
        files["report"],
        title=f"{name}: does rotation invariance help?",
        load=lambda _: dataset,
        advice=for_page(sections, findings, plan),
    )
    return Fitted(plan, findings, text, files)
