"""A folder of pictures in, a classifier and advice out, within the time that was promised."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from invint.data.dataset import Dataset
from invint.data.folder import Scan, refuse, scan
from invint.data.listing import read_layout
from invint.data.pictures import shown
from invint.errors import ConfigError, DataError, Interrupted, RunError
from invint.export import export_model, load_network
from invint.files import write_atomically
from invint.fit.advice import Advice, advise
from invint.fit.answers import Answer, measure_circle
from invint.fit.candidates import SIDES, SMALL_SIDES, find_backbone
from invint.fit.schedule import Budget, Skipped, run_stages
from invint.fit.search import Search
from invint.recipes.recipe import DataChoice
from invint.report import write_report
from invint.train import Callback
from invint.train.device import stop_on_signal

FORMAT = 4  # of plan.json
CIRCLE_SHARE = 0.01  # of all time, for turning the test images of one network
GROWTH = 3  # times as long as of the first answer: a report of several, of larger pictures
ONNX = 2  # times as long as that: the file in that format


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """What to fit; the same again resumes what was begun.

    Attributes:
        folder: Pictures in one of the layouts of `read_layout`, or a CSV file that lists them.
        minutes: Time for everything.
        side: Side of the images in pixels, even; chosen if not given.
        skip_bad: Leave out pictures that cannot be read.
        drop_leaks: Leave training pictures out that the test split has too.
        min_per_class: Leave out classes with fewer pictures.
        skip_class: Names of classes that are left out.
        seed: Of the test split, the folds and training.
        test_share: Fraction held out for testing where the folder has no test split.
        backbone: Name of the pretrained network, or `none`; by default the one installed, if any.
    """

    folder: Path
    minutes: float = 10.0
    side: int | None = None
    skip_bad: bool = False
    drop_leaks: bool = False
    min_per_class: int = 0
    skip_class: tuple[str, ...] = ()
    seed: int = 0
    test_share: float = 0.2
    backbone: str | None = None

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise ConfigError(f"fit: expected minutes above 0, got {self.minutes:g}")
        if self.side is not None and (self.side < SMALL_SIDES[0] or self.side % 2):
            raise ConfigError(
                f"fit: expected an even side of {SMALL_SIDES[0]} or more, got {self.side}"
            )
        if self.seed < 0:
            raise ConfigError(f"fit: expected a seed of 0 or more, got {self.seed}")
        self.data(SIDES[0])  # checks what is asked of the pictures

    def to_dict(self) -> dict[str, Any]:
        """Return this as JSON can hold it."""
        plain = {"folder": str(self.folder.resolve()), "skip_class": list(self.skip_class)}
        return asdict(self) | plain

    def data(self, side: int) -> DataChoice:
        """Return the pictures as a data set of recipes, at the given side."""
        return DataChoice(
            name=f"folder:{self.folder}",
            side=side,
            skip_bad=self.skip_bad,
            drop_leaks=self.drop_leaks,
            min_per_class=self.min_per_class,
            skip_class=self.skip_class,
            test_share=self.test_share,
            split_seed=self.seed,
        )


@dataclass(frozen=True)
class FitResult:
    """What `fit_folder` made.

    Attributes:
        best: The answer that was saved.
        answers: All that have one, cheapest first.
        skipped: What there was no time for.
        advice: What came out, in words.
        files: The files written, by kind: report, advice, safetensors, onnx.
    """

    best: Answer
    answers: tuple[Answer, ...]
    skipped: tuple[Skipped, ...]
    advice: str
    files: dict[str, Path]


def fit_folder(
    config: FitConfig,
    out: Path,
    *,
    callback: Callback | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> FitResult:
    """Find the classifier for pictures that keeps its answers as they turn, in the time given.

    Called again with the same configuration it goes on where it was stopped.

    Args:
        config: Which pictures, how long, how split.
        out: Folder for what is written.
        callback: Receives progress.
        clock: Tells the seconds since whenever.

    Raises:
        Interrupted: It was stopped; what was done by then is written.
    """
    callback, budget = callback or Callback(), Budget(60 * config.minutes, clock)
    read_layout(config.folder)  # refuses what holds no classes before anything is written
    backbone = find_backbone(config.backbone)
    _check_begun(out, config)
    with _folder_for(out, config.folder), stop_on_signal() as asked:
        budget.asked = asked
        found = _scanned(config, backbone, callback)
        search = Search(
            config=config,
            out=out,
            native=max(found.sizes[0][0]),
            channels=found.shape.channels,
            budget=budget,
            callback=callback,
            backbone=backbone,
        )
        search.seconds_to_decode = budget.spent
        search.check_classes()  # refused before anything is measured
        _note_begun(out, config, search)
        writer = Writer(search, found.note, budget)
        search.on_answer = writer.keep
        return _searched(search, writer, budget)


def _searched(search: Search, writer: "Writer", budget: Budget) -> FitResult:
    """Do what fits the time, and write what came out even if it is stopped."""
    skipped: list[Skipped] = []
    try:
        skipped = run_stages(search.stages(), budget)
    except (Interrupted, KeyboardInterrupt) as stop:
        if search.best is None:
            raise Interrupted(
                f"stopped before there was an answer; the same command goes on ({search.out})"
            ) from stop
        writer.write(skipped, last=True)
        raise Interrupted(
            f"stopped; what was done by then is in {search.out}, and the same command goes on"
        ) from stop
    return writer.write(skipped, last=True)


class Writer:
    """Writes the answer there is: the classifier, the report, the advice.

    Args:
        search: What was found so far.
        note: What the scan of the folder warns of.
        budget: Learns how long writing takes.
    """

    def __init__(self, search: Search, note: str, budget: Budget) -> None:
        self.search, self.note, self.budget = search, note, budget
        self.began = False

    def keep(self) -> None:
        """Write the answer there is; the report of the first alone, as it takes a while."""
        best = self.search.best
        if best is not None and self.began:
            self._classifier(best)
            self._advice(best, [])
        elif best is not None:
            self.began, began = True, self.budget.clock()
            self.write([], last=False)
            took = self.budget.clock() - began
            self.budget.writing_took((GROWTH + ONNX) * took)

    def write(self, skipped: list[Skipped], *, last: bool) -> FitResult:
        """Write everything; the ONNX file at the end alone."""
        search = self.search
        if last:
            search.callback.on_note("writing the classifier, the report and the advice")
        best = search.best
        if best is None:
            raise RunError(f"{search.out}: there is no answer to write")
        files = self._classifier(best)
        problems = self._export(files) if last else []
        advice = self._advice(best, skipped, problems)
        for answer in search.answers:
            share = CIRCLE_SHARE * self.budget.seconds
            measure_circle(answer, search.dataset(answer.side).test, seconds=share)
        files["advice"], files["report"] = search.out / "advice.txt", search.out / "report.html"
        self._report(advice, files["report"])
        return FitResult(best, tuple(search.answers), tuple(skipped), advice.text(), files)

    def _advice(self, best: Answer, skipped: list[Skipped], problems: Sequence[str] = ()) -> Advice:
        """Write what came out in words."""
        found = advise(self.search, best, note=self.note, skipped=skipped, problems=problems)
        write_atomically(self.search.out / "advice.txt", found.text())
        return found

    def _classifier(self, best: Answer) -> dict[str, Path]:
        """Write the network, whole or not at all."""
        path = self.search.out / "model.safetensors"
        write_atomically(path, best.store.model.read_bytes())
        return {"safetensors": path}

    def _export(self, files: dict[str, Path]) -> list[str]:
        """Write the ONNX file, or say why there is none."""
        path = self.search.out / "model.onnx"
        try:
            network, card = load_network(files["safetensors"])
            export_model(network, path, card)
        except ConfigError as error:  # what ONNX needs may not be installed
            return [f"model.onnx was not written: {error}"]
        files["onnx"] = path
        return []

    def _report(self, advice: Advice, path: Path) -> None:
        """Write the page: all runs are of one set of pictures, whatever their side."""
        search, name = self.search, name_of(self.search.config.folder)
        fingerprint = search.first.fingerprint
        runs = [
            replace(
                each.run,
                data=name,
                fingerprint=fingerprint,
                turns=_circle(each),
            )
            for each in search.answers
        ]
        write_report(
            runs,
            path,
            title=f"{name}: a classifier that keeps its answers as pictures turn",
            load=lambda choice: Sized.of(search.dataset(choice.side or 0), fingerprint),
            advice=advice.sections(),
        )


@dataclass(frozen=True, eq=False)
class Sized(Dataset):
    """The pictures at one side, under the fingerprint that they have at any side."""

    known: str = ""

    @classmethod
    def of(cls, dataset: Dataset, fingerprint: str) -> "Sized":
        """Return the same pictures under a fingerprint."""
        values = {each.name: getattr(dataset, each.name) for each in fields(Dataset)}
        return cls(**values, known=fingerprint)

    @cached_property
    def fingerprint(self) -> str:
        """The one they were given."""
        return self.known


def _circle(answer: Answer) -> tuple[tuple[float, float], ...]:
    audit = answer.store.turns
    if audit is None:
        return ()
    return tuple((turn.angle, turn.accuracy or 0.0) for turn in audit.turns)


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


def _check_begun(out: Path, config: FitConfig) -> dict[str, Any]:
    """Return what an earlier start noted; raise `ConfigError` if something else was asked."""
    path = out / "plan.json"
    if not path.exists():
        return {}
    try:
        noted: dict[str, Any] = json.loads(path.read_text())
        if noted["format"] != FORMAT:
            raise ConfigError(f"{path}: begun by another version; choose another folder for --out")
        before, _ = noted["config"], noted["fingerprint"]
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
    return noted


def _note_begun(out: Path, config: FitConfig, search: Search) -> None:
    """Note what is begun; raise `DataError` if the pictures are others than those of before."""
    noted = _check_begun(out, config)
    fingerprint = search.first.fingerprint
    if noted.get("fingerprint", fingerprint) != fingerprint:
        raise DataError(
            f"{shown(str(config.folder))}: the pictures have changed since this was begun; "
            "choose another folder for --out"
        )
    content = {"format": FORMAT, "config": config.to_dict(), "fingerprint": fingerprint}
    write_atomically(out / "plan.json", json.dumps(content, indent=1) + "\n")


def _scanned(config: FitConfig, backbone: str | None, callback: Callback) -> Scan:
    data = config.data(config.side or (SIDES[0] if backbone else SMALL_SIDES[-1]))
    found = scan(
        config.folder,
        side=data.side,
        seed=config.seed,
        test_share=config.test_share,
        drop_leaks=config.drop_leaks,
        min_per_class=config.min_per_class,
        skip_class=config.skip_class,
        progress=callback.on_decode,
    )
    callback.on_note(found.report() + "\n")
    refuse(found, skip_bad=config.skip_bad)
    if not sum(found.counts["test"]):
        raise DataError(f"{shown(str(config.folder))}: no picture to test on; add some")
    return found
