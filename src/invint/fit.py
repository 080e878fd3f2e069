"""How large, how long, how often: what fits the time given, measured on this machine."""

import io
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invint.data.arrays import load_arrays
from invint.data.dataset import Dataset, Progress, Split, holdout
from invint.data.folder import Scan, load_folder, refuse, scan
from invint.data.listing import read_layout
from invint.data.pictures import shown
from invint.errors import ConfigError, DataError, InvintError, RunError
from invint.export import export_model, load_network
from invint.files import write_atomically
from invint.models.registry import create_model
from invint.recipes.digits import cnn, local_ws, pooling
from invint.recipes.recipe import Recipe
from invint.report import measure_turns, store_of, write_report
from invint.study.records import RunRecord, confusion_matrix, read_predictions, read_run
from invint.study.statistics import (
    BETTER,
    UNDECIDED,
    WORSE,
    Difference,
    Excess,
    confusion_excess,
    paired_difference,
)
from invint.train import Callback, Execution, train_run
from invint.train.loop import Objective, make_optimizer

LADDER = (16, 20, 24, 28, 32, 40, 48, 56, 64)  # sides of images worth trying
EPOCHS = 20  # passes over the images that make a whole training
FEWEST, ENOUGH, MOST = 30, 300, 2000  # steps
SEEDS = 5  # at most
WANTED_SEEDS = 3  # images are made smaller for their sake, down to half the side
EVALUATION = 40  # steps that take as long as testing a network, upright and turned
OVERHEAD = 20.0  # seconds for the report and the exported files
VALIDATION = 0.2

Clock = Callable[[int], dict[str, float]]  # from a side to the seconds of a step, by network


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is trained.

    Attributes:
        side: Of the images, in pixels.
        batch_size: Images per step.
        steps: Of each network.
        seeds: Times each network is trained, on other splits and with other weights.
        seconds: How long all of it will take, by the measurement.
        whole: Whether there is time for a whole training of each network.
    """

    side: int
    batch_size: int
    steps: int
    seeds: int
    seconds: float = 0.0
    whole: bool = True

    def __post_init__(self) -> None:
        if min(self.side, self.batch_size, self.steps, self.seeds) < 1:
            raise ConfigError(f"Plan: everything must be 1 or more, got {self}")


def candidate_sides(native: int) -> list[int]:
    """Return the sides to try, the largest first: that of the pictures if it is not too large."""
    largest = min(max(native + native % 2, LADDER[0]), LADDER[-1])
    smaller = [side for side in LADDER if largest / 2 <= side < largest]
    return [largest, *reversed(smaller)]


def make_plan(images: int, sides: Sequence[int], seconds: float, clock: Clock) -> Plan:
    """Choose side, steps and seeds for the time given.

    The largest images for which every network can be trained whole and three times over; if there
    are none, the largest for which once is possible; if that takes too long too, the smallest, and
    shorter. A whole training is 20 passes over the images, but 300 to 2,000 steps.

    Args:
        images: Number of training images.
        sides: Sides to try, the largest first.
        seconds: Time for everything.
        clock: Measures the seconds of a step, network by network, at a side.
    """
    batch = batch_size_for(images)
    goal = min(max(EPOCHS * images // batch, ENOUGH), MOST)
    left = max(seconds - OVERHEAD, 0.5 * seconds)
    costs: dict[int, float] = {}
    for side in sides:
        costs[side] = sum(clock(side).values())
        if _seeds(left, costs[side], goal) >= WANTED_SEEDS:
            break
    for least in (WANTED_SEEDS, 1):
        for side, cost in costs.items():
            seeds = min(_seeds(left, cost, goal), SEEDS)
            if seeds >= least:
                spent = seeds * cost * (goal + EVALUATION) + OVERHEAD
                return Plan(side=side, batch_size=batch, steps=goal, seeds=seeds, seconds=spent)
    side, cost = list(costs.items())[-1]
    steps = max(FEWEST, int(left / cost) - EVALUATION)
    spent = cost * (steps + EVALUATION) + OVERHEAD
    return Plan(side=side, batch_size=batch, steps=steps, seeds=1, seconds=spent, whole=False)


def batch_size_for(images: int) -> int:
    """Return how many of so many images make a batch."""
    return 64 if images >= 256 else 32 if images >= 64 else 16


def _seeds(seconds: float, cost: float, steps: int) -> int:
    return int(seconds / (cost * (steps + EVALUATION)))


def recipes(plan: Plan, data: str, images: int) -> list[Recipe]:
    """Return the networks to compare: one set of hyper-parameters for all of them.

    Args:
        plan: How long, with which batches.
        data: Name of the data set.
        images: Number of its training images.
    """
    epochs = max(1, round(plan.steps * plan.batch_size / images))
    return [
        replace(
            base,
            name=f"fit/{name}",
            about=about,
            data=replace(
                base.data, name=data, augment=augment, validation=VALIDATION, test_turns=1
            ),
            train=replace(
                base.train,
                epochs=epochs,
                batch_size=plan.batch_size,
                lr_decay_epochs=(0.45 * epochs,),
                class_weights=False,
            ),
        )
        for name, about, base, augment in (
            ("cnn", "Ordinary network, images as they are", cnn(), ()),
            ("cnn-turned", "Ordinary network, trained on turned copies", cnn(), ("rotate",)),
            ("pooling", "Steerable network with the spatial maximum", pooling(), ("rotate",)),
            ("local-ws", "Steerable network with invariant integration", local_ws(), ("rotate",)),
        )
    ]


def stopwatch(images: int, channels: int, classes: int, device: str) -> Clock:
    """Return a clock that times a few training steps of each network.

    Args:
        images: Number of training images.
        channels: Of the images.
        classes: Their number.
        device: What will train.
    """

    def clock(side: int) -> dict[str, float]:
        plan = Plan(side=side, batch_size=batch_size_for(images), steps=1, seeds=1)
        with torch.random.fork_rng(devices=[]):
            return {
                recipe.name: _step_seconds(recipe, side, channels, classes, device)
                for recipe in recipes(plan, "", images)
            }

    return clock


def _step_seconds(
    recipe: Recipe, side: int, channels: int, classes: int, device: str, *, repeats: int = 3
) -> float:
    network = create_model(
        recipe.model.name,
        head=recipe.model.head,
        num_classes=classes,
        in_channels=channels,
        image_size=side,
    ).to(device)
    objective = Objective(network).to(device)
    optimizer = make_optimizer(network, "adam", lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    shape = (recipe.train.batch_size, channels, side, side)
    images = torch.rand(shape, generator=generator).to(device)
    labels = torch.zeros(len(images), dtype=torch.int64, device=device)
    taken = []
    for _ in range(1 + repeats):  # the first is slower
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        terms = objective(images, labels)
        terms[0].backward()
        optimizer.step()
        float(terms[0].detach())  # waits for the device
        taken.append(time.perf_counter() - start)
    return min(taken[1:])  # what else the machine was doing only adds to it


LEVEL = 0.05
PREFERRED = ("fit/local-ws", "fit/pooling", "fit/cnn-turned", "fit/cnn")  # where validation ties


@dataclass(frozen=True)
class Standing:
    """One network over its seeds. Errors are fractions.

    Attributes:
        recipe: Name of its recipe.
        parameters: Their number.
        error: Mean on test images as they are.
        turned: Mean on turned test images, over angles.
        validation: Mean on validation images.
        runs: Its runs.
    """

    recipe: str
    parameters: int
    error: float
    turned: float
    validation: float
    runs: tuple[RunRecord, ...]


@dataclass(frozen=True)
class Comparison:
    """Two networks on the same test images and the same splits.

    Attributes:
        first: Name of a recipe.
        second: Name of the recipe to compare with.
        difference: Of the errors over seeds; negative if the first makes fewer.
        better: Test images, or groups of them, on which the first is right more often.
        worse: Those on which the second is.
        p_value: Of the exact sign test on these; McNemar's test where there is one seed.
    """

    first: str
    second: str
    difference: Difference
    better: int
    worse: int
    p_value: float

    @property
    def verdict(self) -> str:
        """A direction only where chance among the images and among the seeds leaves one."""
        sign = self.difference.mean
        if self.p_value >= LEVEL or (self.better > self.worse) != (sign < 0) or sign == 0:
            return UNDECIDED
        direction = BETTER if sign < 0 else WORSE
        if self.difference.pairs == 1:
            return direction
        return direction if self.difference.verdict == direction else UNDECIDED


def standings(runs: Sequence[RunRecord]) -> list[Standing]:
    """Return how the networks did, in the order of the runs."""
    by_recipe: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        by_recipe[run.recipe].append(run)
    return [
        Standing(
            recipe=recipe,
            parameters=mine[0].parameters,
            error=fmean(run.error for run in mine),
            turned=fmean(turned_error(run) for run in mine),
            validation=fmean(validation_error(run) for run in mine),
            runs=tuple(mine),
        )
        for recipe, mine in by_recipe.items()
    ]


def turned_error(run: RunRecord) -> float:
    """Return the mean error over all angles but none."""
    return 1 - fmean(accuracy for angle, accuracy in run.turns if angle)


def validation_error(run: RunRecord) -> float:
    """Return the error of the last weights on the validation images."""
    if run.validation_error is None:
        raise RunError(f"{run.recipe}: the run has no validation error")
    return run.validation_error


def best_run(standing: Sequence[Standing]) -> RunRecord:
    """Choose by validation error alone; on a tie, the network that keeps its answers when turned.

    Test images have no say in it.
    """

    def place(name: str) -> int:
        return PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)

    best = min(standing, key=lambda each: (each.validation, place(each.recipe)))
    return min(best.runs, key=lambda run: (validation_error(run), run.seed))


def beats_guessing(standing: Sequence[Standing], test: Split) -> bool:
    """Tell whether the best network is right more often than naming the largest class would be."""
    from scipy.stats import binomtest  # slow to import

    images, largest = len(test), int(test.labels.bincount().max())
    right = round((1 - min(each.error for each in standing)) * images)
    found = binomtest(right, images, largest / images, alternative="greater")
    return bool(found.pvalue < LEVEL)


def compare(first: Standing, second: Standing, test: Split) -> Comparison:
    """Compare the errors of two networks on test images as they are."""
    errors = [{run.pair: run.error for run in each.runs} for each in (first, second)]
    difference = paired_difference(*errors)
    if difference is None:
        raise RunError(f"{first.recipe} and {second.recipe} share no seed; remove their runs")
    gaps = _wrong(second) - _wrong(first)
    if test.groups is not None:  # images of one group stand or fall together
        _, members = test.groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        gaps = torch.zeros(int(members.max()) + 1).index_add(0, members, gaps)
    better, worse = int((gaps > 1e-6).sum()), int((gaps < -1e-6).sum())
    return Comparison(
        first.recipe, second.recipe, difference, better, worse, _sign_test(better, worse)
    )


def compare_turned(first: Standing, second: Standing) -> Difference | None:
    """Compare the errors of two networks on turned test images, over seeds."""
    errors = [{run.pair: turned_error(run) for run in each.runs} for each in (first, second)]
    return paired_difference(*errors)


def confused(first: Standing, second: Standing) -> list[Excess]:
    """Find pairs of classes the first network confuses significantly more often.

    The probabilities of all seeds are averaged, so that each test image counts once.
    """
    matrices = []
    for standing in (first, second):
        probabilities = torch.stack([_predictions(run)[0].softmax(dim=1) for run in standing.runs])
        labels = _predictions(standing.runs[0])[1]
        matrices.append(confusion_matrix(probabilities.mean(dim=0), labels))
    return confusion_excess(*matrices, level=LEVEL)


def _wrong(standing: Standing) -> Tensor:
    """Return for each test image the share of seeds that are wrong about it."""
    found = [_predictions(run) for run in standing.runs]
    wrong = [(logits.argmax(dim=1) != labels).float() for logits, labels in found]
    return torch.stack(wrong).mean(dim=0)


def _predictions(run: RunRecord) -> tuple[Tensor, Tensor]:
    found = read_predictions(run)
    if found is None:
        raise RunError(f"{run.folder}: predictions.safetensors is gone; remove the run and go on")
    return found


def _sign_test(better: int, worse: int) -> float:
    """Return the probability of so uneven a split, or more, if both were equally likely."""
    if better + worse == 0:
        return 1.0
    from scipy.stats import binomtest  # slow to import

    return float(binomtest(better, better + worse).pvalue)


NAMES = {
    "fit/cnn": "ordinary network",
    "fit/cnn-turned": "ordinary network trained on turned copies",
    "fit/pooling": "steerable network with pooling",
    "fit/local-ws": "steerable network with integration",
}
INVARIANT, ORDINARY, TURNED, POOLED = "fit/local-ws", "fit/cnn", "fit/cnn-turned", "fit/pooling"
FEW = 100  # test images, below which little can be shown
LARGE = 0.02  # difference of errors on turned images worth a sentence
UNEVEN = 4  # times the images of the smallest class: worth a warning
SHOWN = 5  # pairs of classes


@dataclass(frozen=True)
class Findings:
    """Everything the advice rests on.

    Attributes:
        standings: How each network did.
        comparisons: Of the integrated network with each other one.
        confusions: Pairs of classes it confuses more often than the ordinary one.
        turned: Difference to the ordinary network on turned images.
        best: The run chosen by validation.
        learned: Whether the best network does better than guessing.
    """

    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    confusions: tuple[Excess, ...]
    turned: Difference | None
    best: RunRecord
    learned: bool = True


def find_out(standings: Sequence[Standing], dataset: Dataset) -> Findings:
    """Compare the integrated network with all others."""
    own = {each.recipe: each for each in standings}
    first = own[INVARIANT]
    return Findings(
        tuple(standings),
        tuple(compare(first, own[name], dataset.test) for name in (ORDINARY, TURNED, POOLED)),
        tuple(confused(first, own[ORDINARY])),
        compare_turned(first, own[ORDINARY]),
        best_run(standings),
        beats_guessing(standings, dataset.test),
    )


def advice(findings: Findings, dataset: Dataset, plan: Plan) -> list[tuple[str, list[str]]]:
    """Return headings, each with its lines."""
    with_ordinary, *others = findings.comparisons
    groups = dataset.test.groups is not None
    return [
        ("The networks", standing_lines(findings)),
        (
            "What invariance did here",
            [
                comparison_line(with_ordinary, groups=groups),
                *(comparison_line(each, groups=groups) for each in others),
                turned_line(findings),
                summary_line(findings, plan),
            ],
        ),
        ("Where it is the wrong tool", confusion_lines(findings, dataset.class_names, plan)),
        ("What was saved", [saved_line(findings)]),
        ("How far to trust this", caution_lines(dataset, plan)),
    ]


def as_text(sections: Sequence[tuple[str, list[str]]]) -> str:
    """Return advice as a text file holds it."""
    return "\n\n".join("\n".join([heading, *lines]) for heading, lines in sections) + "\n"


def for_page(
    sections: Sequence[tuple[str, list[str]]], findings: Findings, plan: Plan
) -> list[tuple[str, list[str]]]:
    """Return advice as the report shows it: what to do first, no table drawn with spaces.

    Args:
        sections: What `advice` returned.
        findings: What it rests on.
        plan: What was trained.
    """
    short = summary_line(findings, plan)
    heading, _, text = short.partition(": ")
    rest = [(name, [line for line in lines if line != short]) for name, lines in sections[1:]]
    return [
        (heading, [text[:1].upper() + text[1:]]),
        (
            "Right answers on the test images as they are, and turned",
            [standing_sentence(each) for each in findings.standings],
        ),
        *rest,
    ]


def standing_sentence(standing: Standing) -> str:
    """Say how often a network is right, with its name in the tables of the report."""
    name = NAMES[standing.recipe]
    return (
        f"{name[:1].upper()}{name[1:]} ({standing.recipe.partition('/')[2]}): "
        f"{percent(1 - standing.error)}, turned {percent(1 - standing.turned)}"
    )


def standing_lines(findings: Findings) -> list[str]:
    """Return a table: right answers as the images are and turned."""
    width = max(len(name) for name in NAMES.values())
    lines = [f"{'right answers':<{width}}  as they are   turned   parameters"]
    for each in findings.standings:
        name = NAMES[each.recipe]
        upright, turned = percent(1 - each.error), percent(1 - each.turned)
        lines.append(f"{name:<{width}}  {upright:>11}  {turned:>7}   {each.parameters:>10,}")
    return lines


def comparison_line(comparison: Comparison, *, groups: bool) -> str:
    """Say in one sentence what a comparison shows."""
    other = f"the {NAMES[comparison.second]}"
    points = 100 * abs(comparison.difference.mean)
    kind = "fewer" if comparison.difference.mean < 0 else "more"
    what = f"{points:.1f} percentage points {kind} errors" if points else "as many errors"
    unit = "group of test images" if groups else "test image"
    counts = (
        f"right more often on {counted(comparison.better, unit)}, less often on "
        f"{comparison.worse:,}"
    )
    chance = f"{_interval(comparison.difference)}; {counts}, p = {comparison.p_value:.2g}"
    if comparison.verdict == UNDECIDED:
        measured = f"measured: {what}" if points else f"both make {what}"
        return f"Compared with {other}, no difference is shown ({measured}, {chance})."
    return f"Compared with {other}, integration makes {what} ({chance})."


def _interval(difference: Difference) -> str:
    if difference.low is None or difference.high is None:
        return "one seed"
    low, high = 100 * difference.low, 100 * difference.high
    return f"95 % interval {low:+.1f} to {high:+.1f} over {counted(difference.pairs, 'seed')}"


def turned_line(findings: Findings) -> str:
    """Say what turning the test images does to the networks."""
    own = {each.recipe: each for each in findings.standings}
    integrated, ordinary, copies = (own[name].turned for name in (INVARIANT, ORDINARY, TURNED))
    text = (
        f"On turned test images the ordinary network is right on {percent(1 - ordinary)}, trained "
        f"on turned copies on {percent(1 - copies)}, the integrated one on "
        f"{percent(1 - integrated)}."
    )
    found = findings.turned
    if found is not None and found.verdict in (BETTER, WORSE):
        kind = "fewer" if found.mean < 0 else "more"
        points = f"{100 * abs(found.mean):.1f} points"
        text += f" That is {points} {kind} errors than the ordinary one ({_interval(found)})."
    return text


def summary_line(findings: Findings, plan: Plan) -> str:
    """Say in one sentence what to do."""
    if not plan.whole:
        return (
            "In short: the time was too short for all the steps that these networks need, so "
            "nothing should be concluded from them; give more --minutes."
        )
    if not findings.learned:
        return (
            "In short: no network does better than always naming the largest class, so nothing "
            "should be concluded; look at the labels, or add images."
        )
    verdict = findings.comparisons[0].verdict
    own = {each.recipe: each for each in findings.standings}
    steady = min(findings.standings, key=lambda each: each.turned)
    if findings.confusions:
        return (
            "In short: some images here differ by their orientation, which an invariant network "
            "cannot see. Use it only if mixing up the classes named here does little harm."
        )
    if verdict == BETTER:
        return "In short: rotation invariance helps on these images."
    if verdict == WORSE:
        return (
            "In short: rotation invariance costs accuracy on these images as they are. Use it only "
            "if yours will come turned."
        )
    if own[ORDINARY].turned - steady.turned > LARGE:
        return (
            "In short: on images as they are, nothing speaks for or against invariance. If yours "
            f"may come turned, use the {NAMES[steady.recipe]}; otherwise the ordinary one will do."
        )
    return (
        "In short: nothing was shown for or against invariance here; the simplest network will do."
    )


def confusion_lines(findings: Findings, names: Sequence[str], plan: Plan) -> list[str]:
    """Name the classes that the integrated network confuses more often than the ordinary one."""
    if not findings.confusions:
        return [
            "No pair of classes is confused significantly more often by the integrated network "
            "than by the ordinary one. With few test images that need not mean there is none."
        ]
    lines = []
    meaning = (
        "They may be turned copies of each other: do not use an invariant network to tell them "
        "apart."
        if plan.whole and findings.learned
        else "Networks that have not learned show nothing by it."
    )
    for each in findings.confusions[:SHOWN]:
        first, second = (names[number] for number in each.classes)
        lines.append(
            f"{first} and {second}: confused {each.count} times by the integrated network, "
            f"{each.other} by the ordinary one (p = {each.p_value:.1g}). {meaning}"
        )
    left = len(findings.confusions) - SHOWN
    return [*lines, f"and {left} more pairs, in the report"] if left > 0 else lines


def saved_line(findings: Findings) -> str:
    """Say which network was saved, and why."""
    own = {each.recipe: each for each in findings.standings}
    run, chosen = findings.best, own[findings.best.recipe]
    tied = [each for each in findings.standings if each.validation == chosen.validation]
    why = "the lowest error on the validation images"
    if len(tied) > 1:
        why += f", shared by {len(tied)} networks: of these the one made for turned images"
    text = (
        f"The {NAMES[run.recipe]}, seed {run.seed}: {why} ({percent(chosen.validation)}). It is "
        f"wrong on {percent(run.error)} of the test images. The others are kept in the folder "
        "runs; `invint export` makes a file of one."
    )
    if findings.confusions and findings.learned and run.recipe != ORDINARY:
        text += (
            " Test images had no say in this: if the classes named above must not be mixed up, "
            "take the ordinary network, fit/cnn, instead."
        )
    return text


def caution_lines(dataset: Dataset, plan: Plan) -> list[str]:
    """Say what the figures do not show."""
    own = dataset.validation
    by = "a fifth of these" if own is None else f"{len(own):,} of the folder's own"
    lines = [
        f"{counted(len(dataset.test), 'test image')} of {plan.side} x {plan.side} pixels, never "
        f"used to choose anything; {len(dataset.train):,} to learn from, {by} to choose by; each "
        f"network trained with {counted(plan.seeds, 'seed')}, {counted(plan.steps, 'step')} each.",
        "Turned images are masked with the inscribed disc, which takes the corners away.",
    ]
    if len(dataset.test) < FEW:
        lines.append("So few test images show only large differences.")
    counts = dataset.train.labels.bincount().tolist()
    if max(counts) > UNEVEN * min(counts):
        lines.append(
            f"The largest class has {max(counts) / min(counts):.0f} times the images of the "
            "smallest: the errors of rare classes weigh little in all figures here."
        )
    if plan.seeds == 1:
        lines.append(
            "One seed: another start or split may come out otherwise; give more --minutes."
        )
    if not plan.whole:
        lines.append("The time was too short for a whole training.")
    return lines


def counted(number: int, unit: str) -> str:
    """Return a number with its unit in the singular or plural: the first word takes the s."""
    first, _, rest = unit.partition(" of ")
    words = f"{first}{'' if number == 1 else 's'}" + (f" of {rest}" if rest else "")
    return f"{number:,} {words}"


def percent(share: float) -> str:
    """Return a share as percent."""
    return f"{100 * share:.1f} %"


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

    def on_decode(self, count: int, total: int) -> None:
        """So many pictures of all are decoded."""

    def watch(self) -> Callback:
        """Return who looks on at the next run."""
        return Callback()


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
    pictures = _load(wish, plan.side, onlooker.on_decode)
    dataset, name = _stored(pictures, out, wish.folder)
    for number in range(plan.seeds):
        _check_split(dataset, wish.seed + number)
    noted = {"format": FORMAT, "wish": wish.to_dict(), "plan": asdict(plan)}
    write_atomically(out / "plan.json", json.dumps(noted, indent=1) + "\n")
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
        write_atomically(out / ".writable", "")
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
        progress=onlooker.on_decode,
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
        write_atomically(path, buffer.getvalue())
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
            holdout(train.labels, VALIDATION, seed, name=dataset.name, groups=train.groups)
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
        store = train_run(
            recipe, seed=own, runs=runs, execution=execution, callback=onlooker.watch()
        )
        measure_turns(read_run(store.path), lambda _: dataset)
        records[recipe.name, own] = read_run(store.path)
    order = sorted(jobs, key=lambda job: [each.name for each in chosen].index(job[0].name))
    return [records[recipe.name, own] for recipe, own in order]


def _write(runs: list[RunRecord], dataset: Dataset, plan: Plan, out: Path, note: str) -> Fitted:
    findings = find_out(standings(runs), dataset)
    sections = advice(findings, dataset, plan)
    if note:
        sections[-1][1].append(f"The scan of the folder warns: {note}.")
    files = {"safetensors": out / "model.safetensors", "onnx": out / "model.onnx"}
    network, card = load_network(store_of(findings.best).model)
    for kind in ("safetensors", "onnx"):
        try:
            export_model(network, files[kind], card)
        except ConfigError as error:  # what ONNX needs may not be installed
            sections[-2][1].append(f"{files.pop(kind).name} was not written: {error}")
    text = as_text(sections)
    files["advice"], files["report"] = out / "advice.txt", out / "report.html"
    write_atomically(files["advice"], text)
    name = dataset.name.partition(":")[2]
    write_report(
        [replace(run, data=name) for run in runs],
        files["report"],
        title=f"{name}: does rotation invariance help?",
        load=lambda _: dataset,
        advice=for_page(sections, findings, plan),
    )
    return Fitted(plan, findings, text, files)
