"""Writes the page: gathers figures and tables, says what is missing and why."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint.audit import audit_model
from invint.data.batches import scaled
from invint.data.dataset import Dataset, Split
from invint.errors import ConfigError, InvintError
from invint.export import load_model
from invint.figures.charts import (
    calibration_drawing,
    confusion_drawing,
    difference_drawing,
    error_drawing,
    learning_drawings,
)
from invint.figures.circles import angle_drawing
from invint.figures.selections import monomial_drawing, score_drawing
from invint.figures.sheets import Hard, filter_drawing, hardest_drawing
from invint.figures.style import Drawing, Series, series_of
from invint.files import write_atomically
from invint.groups import Group
from invint.models.networks import Network
from invint.nn import LiftConv2d, MonomialIntegration, Monomials
from invint.recipes.recipe import DataChoice
from invint.study.records import RunRecord, accuracy_by_angle, check_alike, read_predictions
from invint.study.tables import Table, decimals, make_table, ordered_recipes, signed
from invint.train.setup import load_data
from invint.train.store import RunStore

Loader = Callable[[DataChoice], Dataset]
IMAGES = 200  # turned through the circle, at most
HARDEST = 20  # images shown


@dataclass
class Section:
    """One part of the page.

    Attributes:
        anchor: Its address within the page.
        title: Its heading.
        about: A sentence on what it shows.
        figures: Its figures.
        missing: What could not be shown, and why.
    """

    anchor: str
    title: str
    about: str
    figures: list[Drawing] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def miss(self, reason: object) -> None:
        """Say once why something is not shown."""
        if str(reason) not in self.missing:
            self.missing.append(str(reason))

    def or_reason(self, why: str) -> "Section":
        """Return the section, which says why where it would be empty."""
        if not self.figures and not self.missing:
            self.miss(why)
        return self


def write_report(
    runs: Sequence[RunRecord],
    path: Path,
    *,
    title: str = "Report",
    data_dir: Path | None = None,
    load: Loader | None = None,
    notes: Sequence[str] = (),
    advice: Sequence[tuple[str, Sequence[str]]] = (),
) -> Path:
    """Write one HTML page about finished runs; it needs no other file and no network.

    Nothing is trained. Accuracy on turned images is measured once for one run of each recipe and
    kept in its folder as `turns.json`.

    Args:
        runs: What `find_runs` found.
        path: Where the page goes.
        title: Its title.
        data_dir: Where data sets lie; by default where `load_dataset` looks.
        load: Takes the choice of a data set to the set; by default `load_data`.
        notes: Lines to say beside the summary, as on runs left out.
        advice: Headings with their paragraphs, shown first; the first one stands out.

    Returns:
        The path.

    Raises:
        ConfigError: There is no run, or runs do not belong together.
    """
    if not runs:
        raise ConfigError("no finished run to report on; `invint train` makes some")
    check_alike(runs)
    # Imported where a page is written: it is slow, and records can be read without it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    engine = Environment(
        loader=PackageLoader("invint.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    series = series_of(ordered_recipes(runs))
    names = sorted({run.data for run in runs})
    tables = [make_table(runs, data=name) for name in names]
    groups = [[run for run in runs if run.data == name] for name in names]
    loader = cache(load or partial(load_data, data_dir=data_dir))
    text = engine.get_template("page.html.j2").render(
        title=title,
        facts=_facts(runs),
        tables=tables,
        decimals=decimals,
        signed=signed,
        notes=notes,
        advice=advice,
        sections=list(_sections(groups, tables, series, loader)),
        runs=runs,
        series=series,
        environment=_environment(runs),
    )
    write_atomically(path, text)
    return path


def _sections(
    groups: Sequence[Sequence[RunRecord]],
    tables: Sequence[Table],
    series: dict[str, Series],
    load: Loader,
) -> Iterator[Section]:
    errors = Section("errors", "Error against samples", "How many labels does a network need?")
    for table in tables:
        errors.figures += _drawn([error_drawing(table, series), difference_drawing(table, series)])
    yield errors
    learning = Section("learning", "Learning curves", "How training went.")
    learning.figures = [each for runs in groups for each in learning_drawings(runs, series)]
    yield learning.or_reason("the logs hold no epochs")
    yield _angles(groups, series, load)
    largest = list(_largest(groups, series))
    confusions = Section("confusion", "Confusions", "Which classes are mistaken for which.")
    confusions.figures = _drawn(confusion_drawing(*each) for each in largest)
    yield confusions.or_reason("the runs hold no predictions")
    calibration = Section("calibration", "Calibration", "Can the confidence be trusted?")
    calibration.figures = _drawn(calibration_drawing(*each) for each in largest)
    yield calibration.or_reason("the runs hold no predictions")
    yield _hardest(groups, load)
    yield from _networks(largest)


def _drawn(drawings: Iterable[Drawing | None]) -> list[Drawing]:
    return [drawing for drawing in drawings if drawing is not None]


def _angles(
    groups: Sequence[Sequence[RunRecord]], series: dict[str, Series], load: Loader
) -> Section:
    section = Section(
        "angles", "Accuracy against angle", "Does the answer survive when the image turns?"
    )
    for runs in groups:
        turns = {}
        for own_runs, own in _largest([runs], series):
            try:
                turns[own.recipe] = measure_turns(own_runs[0], load)
            except InvintError as error:
                section.miss(error)
        if turns:
            caption = (
                f"Fraction of up to {IMAGES} test images with the right label as they are turned, "
                "masked with the inscribed disc; one seed of each recipe, most training images. "
                "Large dots: turns that permute pixels, without interpolation."
            )
            section.figures.append(angle_drawing(turns, series, data=runs[0].data, caption=caption))
    return section


def _hardest(groups: Sequence[Sequence[RunRecord]], load: Loader) -> Section:
    section = Section(
        "hardest", "Hardest test images", "What is left to learn, or labelled wrongly."
    )
    for runs in groups:
        try:
            hard = hardest_images(runs)
            images = load_test_images(runs[0], load)
        except InvintError as error:
            section.miss(error)
            continue
        names = [each.name for each in runs[0].per_class]
        section.figures.append(hardest_drawing(hard, images.images, names, runs[0].data))
    return section


def _networks(largest: Sequence[tuple[Sequence[RunRecord], Series]]) -> Iterator[Section]:
    monomials = Section("monomials", "Surviving monomials", "What the selection kept.")
    filters = Section("filters", "Filters turning", "One learned filter at every angle.")
    for (run, *_), own in largest:
        try:
            network = store_of(run).network()
        except InvintError as error:
            filters.miss(error)
            continue
        learned, turning = learned_monomials(network), turning_filter(network)
        if learned is not None:
            monomials.figures.append(monomial_drawing(learned, run, own))
        if turning is not None:
            filters.figures.append(filter_drawing(*turning, run, own))
    monomials.figures += _drawn(score_drawing(run, own) for (run, *_), own in largest)
    yield monomials.or_reason("no trained network with the head monomials among these runs")
    yield filters.or_reason("no trained steerable network among these runs")


def store_of(run: RunRecord) -> RunStore:
    """Return the store of a run, unless the run is known from a record only."""
    if run.folder is None:
        raise ConfigError(f"{run.recipe}: read from a record, which holds no network")
    return RunStore(run.folder)


def turning_filter(network: Network) -> tuple[Group, Tensor] | None:
    """Return the strongest filter of the first steerable layer, `(g, k, k)`; none if there is none.

    Colours are averaged.
    """
    layer = next((each for each in network.modules() if isinstance(each, LiftConv2d)), None)
    if layer is None:
        return None
    filters = rearrange(
        layer.filters().detach(), "(o g) c y x -> o g c y x", g=layer.group.order
    ).mean(dim=2)
    strongest = filters.square().sum(dim=(1, 2, 3)).argmax()
    return layer.group, filters[strongest]


def learned_monomials(network: Network) -> Monomials | None:
    """Return the monomials with their learned exponents; none if the head has none."""
    heads = (each for each in network.modules() if isinstance(each, MonomialIntegration))
    head = next(heads, None)
    return None if head is None else head.monomials


def load_test_images(run: RunRecord, load: Loader) -> Split:
    """Return the test images of a run, made sure to be the ones it was tested on.

    Raises:
        InvintError: They are not there, or others.
    """
    dataset = load(DataChoice.of(run.choices))
    if dataset.fingerprint != run.fingerprint:
        raise ConfigError(
            f"the data set {run.data!r} is not the one of the runs (fingerprint "
            f"{dataset.fingerprint}, expected {run.fingerprint})"
        )
    return dataset.test


def measure_turns(run: RunRecord, load: Loader) -> tuple[tuple[float, float], ...]:
    """Return pairs of angle and accuracy on turned test images; kept as `turns.json` in the run.

    Raises:
        InvintError: The network or the images are not there.
    """
    if run.turns:
        return run.turns
    store = store_of(run)
    images = load_test_images(run, load)
    chosen = torch.linspace(0, len(images) - 1, min(IMAGES, len(images))).long()
    some = images[chosen]
    audit = audit_model(load_model(store.model), scaled(some.images), some.labels, border="disc")
    store.write_turns(replace(audit, name=run.recipe))
    return accuracy_by_angle(audit)


def hardest_images(runs: Sequence[RunRecord], count: int = HARDEST) -> list[Hard]:
    """Return the test images most runs get wrong, and among those the ones with the largest loss.

    Raises:
        ConfigError: No run has predictions.
    """
    pairs = [pair for pair in map(read_predictions, runs) if pair is not None]
    if not pairs:
        raise ConfigError("the predictions are not there: records do not hold them")
    labels = pairs[0][1]
    found = torch.stack([logits.argmax(dim=1) for logits, _ in pairs])
    losses = [cross_entropy(logits, labels, reduction="none") for logits, _ in pairs]
    wrong_by_run = found != labels
    loss = torch.stack(losses).nan_to_num(posinf=1e3).mean(dim=0)
    score = (
        wrong_by_run.sum(dim=0) + loss.clamp(max=1e3) / 1e4
    )  # the loss only decides among equals
    chosen: list[int] = score.argsort(descending=True, stable=True)[:count].tolist()
    hard = []
    for index in chosen:
        others = found[wrong_by_run[:, index], index]
        most = int(others.mode().values) if len(others) else None
        hard.append(Hard(index, int(labels[index]), most, len(others), len(pairs)))
    return hard


def _largest(
    groups: Sequence[Sequence[RunRecord]], series: dict[str, Series]
) -> Iterator[tuple[list[RunRecord], Series]]:
    """Yield the runs of each recipe with the most training images, by data set."""
    for runs in groups:
        for recipe, own in series.items():
            mine = [run for run in runs if run.recipe == recipe]
            if mine:
                size = max(run.size for run in mine)
                yield [run for run in mine if run.size == size], own


def _facts(runs: Sequence[RunRecord]) -> list[tuple[str, str]]:
    hours = sum(run.seconds for run in runs) / 3600
    spent = f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
    return [
        ("runs", f"{len(runs):,}"),
        ("recipes", str(len({run.recipe for run in runs}))),
        ("seeds", str(len({run.seed for run in runs}))),
        ("training images", _range([run.size for run in runs])),
        ("test images", _range([run.test_images for run in runs])),
        ("time of training", spent),
    ]


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _environment(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    table = [
        (
            key,
            list(
                dict.fromkeys(str(run.environment[key]) for run in runs if key in run.environment)
            ),
        )
        for key in dict.fromkeys(key for run in runs for key in run.environment)
    ]
    prints = dict.fromkeys(f"{run.data}: {run.fingerprint}" for run in runs)
    return [*table, ("data fingerprint", list(prints))]
