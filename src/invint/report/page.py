"""Writes the page: gathers figures and tables, says what is missing and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from invint.data.dataset import Dataset
from invint.errors import ConfigError, InvintError
from invint.files import write_atomically
from invint.recipes.recipe import DataChoice
from invint.report.answers import angle_figure, calibration_figure, confusion_figure
from invint.report.curves import difference_figure, error_figure, learning_figures
from invint.report.figures import Figure, Series, series_of
from invint.report.networks import (
    IMAGES,
    Loader,
    learned_monomials,
    load_test_images,
    measure_turns,
    store_of,
    turning_filter,
)
from invint.report.pictures import (
    filter_figure,
    hardest_figure,
    hardest_images,
    monomial_figure,
    selection_figure,
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
    figures: list[Figure] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def miss(self, error: InvintError) -> None:
        """Say once why something is not shown."""
        if str(error) not in self.missing:
            self.missing.append(str(error))


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
    series = series_of(ordered_recipes(runs))
    loader = _remembering(load or partial(load_data, data_dir=data_dir))
    names = sorted({run.data for run in runs})
    tables = [make_table(runs, data=name) for name in names]
    groups = [[run for run in runs if run.data == name] for name in names]
    sections = list(_sections(groups, tables, series, loader))
    text = _template().render(
        title=title,
        style=_resource("page.css"),
        script=_resource("page.js"),
        facts=_facts(runs),
        tables=tables,
        decimals=decimals,
        signed=signed,
        notes=notes,
        advice=advice,
        sections=sections,
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
        differences = difference_figure(table, series)
        errors.figures += [error_figure(table, series), *([differences] if differences else [])]
    yield errors
    learning = Section("learning", "Learning curves", "How training went.")
    learning.figures = [figure for runs in groups for figure in learning_figures(runs, series)]
    yield _or_reason(learning, "the logs hold no epochs")
    yield _angles(groups, series, load)
    confusions = Section("confusion", "Confusions", "Which classes are mistaken for which.")
    calibration = Section("calibration", "Calibration", "Can the confidence be trusted?")
    for runs, own in _largest(groups, series):
        for section, draw in ((confusions, confusion_figure), (calibration, calibration_figure)):
            figure = draw(runs, own)
            section.figures += [figure] if figure else []
    yield _or_reason(confusions, "the runs hold no predictions")
    yield _or_reason(calibration, "the runs hold no predictions")
    yield _hardest(groups, load)
    yield from _networks(groups, series)


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
                f"Share of up to {IMAGES} test images with the right label as they are turned, "
                "masked with the inscribed disc; one seed of each recipe, most training images. "
                "Large dots: turns that permute pixels, without interpolation."
            )
            section.figures.append(angle_figure(turns, series, data=runs[0].data, caption=caption))
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
        section.figures.append(hardest_figure(hard, images, names, runs[0].data))
    return section


def _networks(
    groups: Sequence[Sequence[RunRecord]], series: dict[str, Series]
) -> Iterator[Section]:
    monomials = Section("monomials", "Surviving monomials", "What the selection kept.")
    filters = Section("filters", "Filters turning", "One learned filter at every angle.")
    for runs, own in _largest(groups, series):
        run = runs[0]
        try:
            network = store_of(run).network()
        except InvintError as error:
            filters.miss(error)
            continue
        learned, turning = learned_monomials(network), turning_filter(network)
        if learned is not None:
            monomials.figures.append(monomial_figure(learned, run, own))
        if turning is not None:
            filters.figures.append(filter_figure(*turning, run, own))
    for runs, own in _largest(groups, series):
        selection = selection_figure(runs[0], own)
        monomials.figures += [selection] if selection else []
    yield _or_reason(monomials, "no trained network with the head monomials among these runs")
    yield _or_reason(filters, "no trained steerable network among these runs")


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


def _or_reason(section: Section, why: str) -> Section:
    if not section.figures and not section.missing:
        section.missing.append(why)
    return section


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
    keys = dict.fromkeys(key for run in runs for key in run.environment)
    table = []
    for key in keys:
        values = (str(run.environment[key]) for run in runs if key in run.environment)
        table.append((key, list(dict.fromkeys(values))))
    prints = dict.fromkeys(f"{run.data}: {run.fingerprint}" for run in runs)
    return [*table, ("data fingerprint", list(prints))]


def _remembering(load: Loader) -> Loader:
    """Load each set once, and say the same each time it cannot be."""
    known: dict[DataChoice, Dataset | InvintError] = {}

    def remember(choice: DataChoice) -> Dataset:
        if choice not in known:
            try:
                known[choice] = load(choice)
            except InvintError as error:
                known[choice] = error
        found = known[choice]
        if isinstance(found, InvintError):
            raise found
        return found

    return remember


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    engine = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    engine.lstrip_blocks = True
    return engine.from_string(_resource("page.html.j2"))


def _resource(name: str) -> str:
    return files("invint.report").joinpath(name).read_text(encoding="utf-8")
