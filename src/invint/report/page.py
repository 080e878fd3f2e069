"""Writes the page: gathers figures and tables, says what is missing and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from invint.errors import ConfigError, InvintError
from invint.figures.charts import (
    calibration_drawing,
    class_error_drawing,
    confusion_drawing,
    difference_drawing,
    error_drawing,
    learning_drawings,
)
from invint.figures.circles import angle_drawing
from invint.figures.selections import monomial_drawing, score_drawing
from invint.figures.sheets import (
    filter_drawing,
    hardest_drawing,
    missed_drawing,
    saliency_drawing,
    unsure_drawing,
)
from invint.figures.style import Drawing, Series, series_of
from invint.files import write_atomically
from invint.report.measure import (
    IMAGES,
    Loader,
    audit_run,
    confidence_by_angle,
    hardest_images,
    learned_monomials,
    least_sure,
    load_test_images,
    measure_turns,
    missed_images,
    relevance_of,
    scaled_calibration,
    store_of,
    turning_filter,
)
from invint.study.records import RunRecord, check_alike
from invint.study.tables import Table, decimals, make_table, ordered_recipes, signed
from invint.train.setup import load_data


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
    names: Mapping[str, str] | None = None,
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
        names: What to call recipes, everywhere on the page; by default what they are called.

    Returns:
        The path.

    Raises:
        ConfigError: There is no run, or runs do not belong together.
    """
    if not runs:
        raise ConfigError("no finished run to report on; `invint train` makes some")
    check_alike(runs)
    runs = [replace(run, size=run.size + run.held_out) for run in runs]
    # Imported where a page is written: it is slow, and records can be read without it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    engine = Environment(
        loader=PackageLoader("invint.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    series = series_of(ordered_recipes(runs), names)
    sets = sorted({run.data for run in runs})
    tables = [make_table(runs, data=name) for name in sets]
    groups = [[run for run in runs if run.data == name] for name in sets]
    loader = cache(load or partial(load_data, data_dir=data_dir))
    text = engine.get_template("page.html.j2").render(
        title=title,
        facts=_facts(runs),
        tables=tables,
        decimals=decimals,
        signed=signed,
        notes=[*_held_out(runs), *notes],
        names=names or {},
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
    yield errors.or_reason("one number of training images alone; the table above has its errors")
    learning = Section("learning", "Learning curves", "How training went.")
    learning.figures = [each for runs in groups for each in learning_drawings(runs, series)]
    yield learning.or_reason("the logs hold no epochs")
    yield _angles(groups, series, load)
    largest = list(_largest(groups, series))
    confusions = Section("confusion", "Confusions", "Which classes are mistaken for which.")
    confusions.figures = _drawn(confusion_drawing(*each) for each in largest)
    yield confusions.or_reason("the runs hold no predictions")
    yield _classes(groups, series, load)
    calibration = Section("calibration", "Calibration", "Can the confidence be trusted?")
    calibration.figures = _drawn(map(_calibrated, largest))
    yield calibration.or_reason("the runs hold no predictions")
    yield _hardest(groups, load)
    yield _saliency(largest, load)
    yield from _networks(largest)


def _drawn(drawings: Iterable[Drawing | None]) -> list[Drawing]:
    return [drawing for drawing in drawings if drawing is not None]


def _calibrated(each: tuple[Sequence[RunRecord], Series]) -> Drawing | None:
    runs, own = each
    found = map(scaled_calibration, runs)
    return calibration_drawing(runs, own, [pair for pair in found if pair is not None])


def _angles(
    groups: Sequence[Sequence[RunRecord]], series: dict[str, Series], load: Loader
) -> Section:
    section = Section(
        "angles", "Accuracy against angle", "Does the answer survive when the image turns?"
    )
    for runs in groups:
        accuracies, confidences, unsure = {}, {}, []
        for own_runs, own in _largest([runs], series):
            try:
                accuracies[own.recipe] = measure_turns(own_runs[0], load)
                unsure.append((own, least_sure(own_runs[0], load)))
                confidences[own.recipe] = confidence_by_angle(audit_run(own_runs[0], load))
            except InvintError as error:
                section.miss(error)
        section.figures += _circles(accuracies, confidences, series, runs[0].data)
        if unsure:
            names = [each.name for each in runs[0].per_class]
            section.figures.append(unsure_drawing(unsure, names, runs[0].data))
    return section


Circle = tuple[tuple[float, float], ...]


def _circles(
    accuracies: dict[str, Circle],
    confidences: dict[str, Circle],
    series: dict[str, Series],
    data: str,
) -> Iterator[Drawing]:
    images = (
        f"up to {IMAGES} test images as they are turned, masked with the inscribed disc; one seed "
        "of each recipe, most training images. "
    )
    if accuracies:
        caption = f"Fraction with the right label of {images}"
        caption += "Large dots: turns that permute pixels, without interpolation."
        yield angle_drawing(accuracies, series, data=data, caption=caption)
    if confidences:
        caption = f"Mean probability of the answer, right or wrong, over {images}Least sure: "
        lowest = {recipe: min(circle, key=lambda p: p[1]) for recipe, circle in confidences.items()}
        caption += ", ".join(
            f"{series[recipe].name} at {angle:g}° ({value:.1%})"
            for recipe, (angle, value) in lowest.items()
        )
        yield angle_drawing(
            confidences, series, data=data, caption=f"{caption}.", what="confidence"
        )


def _classes(
    groups: Sequence[Sequence[RunRecord]], series: dict[str, Series], load: Loader
) -> Section:
    section = Section("classes", "Errors by class", "Which classes are hard, and on which images.")
    for runs in groups:
        section.figures += _drawn([class_error_drawing(list(_largest([runs], series)))])
        try:
            missed, images = missed_images(runs), load_test_images(runs[0], load)
        except InvintError as error:
            section.miss(error)
            continue
        if missed:
            names = [each.name for each in runs[0].per_class]
            section.figures.append(missed_drawing(missed, images.images, names, runs[0].data))
    return section.or_reason("no test image is answered wrongly")


def _saliency(largest: Sequence[tuple[Sequence[RunRecord], Series]], load: Loader) -> Section:
    section = Section("saliency", "What answers rest on", "Where in an image the network looks.")
    for (run, *_), own in largest:
        try:
            images, relevance, labels, found = relevance_of(run, load)
        except InvintError as error:
            section.miss(error)
            continue
        names = [each.name for each in run.per_class]
        own_names = [
            names[label] if label == answer else f"{names[label]}\n→ {names[answer]}"
            for label, answer in zip(labels, found, strict=True)
        ]
        section.figures.append(saliency_drawing(images, relevance, own_names, run, own))
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


def _held_out(runs: Sequence[RunRecord]) -> list[str]:
    """Say what the numbers of training images hold, where some are not learned from."""
    counts = sorted({(run.size, run.held_out) for run in runs if run.held_out})
    return [
        f"of {size:,} training images {size - held_out:,} are learned from and {held_out:,} held "
        "out to choose by"
        for size, held_out in counts
    ]


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
