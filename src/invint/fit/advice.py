"""What the networks of `invint fit` did, compared, and what it means in plain words.

A direction is named only where neither chance among the test images nor chance among the seeds is
enough to explain it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from invint.data.dataset import Dataset, Split
from invint.errors import RunError
from invint.fit.plan import Plan
from invint.study.records import RunRecord, confusion_matrix, read_predictions
from invint.study.statistics import (
    BETTER,
    UNDECIDED,
    WORSE,
    Difference,
    Excess,
    confusion_excess,
    paired_difference,
)

LEVEL = 0.05
PREFERRED = ("fit/local-ws", "fit/pooling", "fit/cnn-turned", "fit/cnn")  # where validation ties


@dataclass(frozen=True)
class Summary:
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


def summaries_of(runs: Sequence[RunRecord]) -> list[Summary]:
    """Return how the networks did, in the order of the runs."""
    by_recipe: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        by_recipe[run.recipe].append(run)
    return [
        Summary(
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


def best_run(summary: Sequence[Summary]) -> RunRecord:
    """Choose by validation error alone; on a tie, the network that keeps its answers when turned.

    Test images have no say in it.
    """

    def place(name: str) -> int:
        return PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)

    best = min(summary, key=lambda each: (each.validation, place(each.recipe)))
    return min(best.runs, key=lambda run: (validation_error(run), run.seed))


def beats_guessing(summary: Sequence[Summary], test: Split) -> bool:
    """Tell whether the best network is right more often than naming the largest class would be."""
    from scipy.stats import binomtest  # slow to import

    images, largest = len(test), int(test.labels.bincount().max())
    right = round((1 - min(each.error for each in summary)) * images)
    found = binomtest(right, images, largest / images, alternative="greater")
    return bool(found.pvalue < LEVEL)


def compare(first: Summary, second: Summary, test: Split) -> Comparison:
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


def compare_turned(first: Summary, second: Summary) -> Difference | None:
    """Compare the errors of two networks on turned test images, over seeds."""
    errors = [{run.pair: turned_error(run) for run in each.runs} for each in (first, second)]
    return paired_difference(*errors)


def confused(first: Summary, second: Summary) -> list[Excess]:
    """Find pairs of classes the first network confuses significantly more often.

    The probabilities of all seeds are averaged, so that each test image counts once.
    """
    matrices = []
    for summary in (first, second):
        probabilities = torch.stack([_predictions(run)[0].softmax(dim=1) for run in summary.runs])
        labels = _predictions(summary.runs[0])[1]
        matrices.append(confusion_matrix(probabilities.mean(dim=0), labels))
    return confusion_excess(*matrices, level=LEVEL)


def _wrong(summary: Summary) -> Tensor:
    """Return for each test image the fraction of seeds that are wrong about it."""
    found = [_predictions(run) for run in summary.runs]
    wrong = [(logits.argmax(dim=1) != labels).float() for logits, labels in found]
    return torch.stack(wrong).mean(dim=0)


def _predictions(run: RunRecord) -> tuple[Tensor, Tensor]:
    found = read_predictions(run)
    if found is None:
        raise RunError(
            f"{run.folder}: predictions.safetensors is gone; remove the folder and start again"
        )
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
SHOWN_HEADING = "What invariance did here"


@dataclass(frozen=True)
class Findings:
    """Everything the advice rests on.

    Attributes:
        summaries: How each network did.
        comparisons: Of the integrated network with each other one.
        confusions: Pairs of classes it confuses more often than the ordinary one.
        turned: Difference to the ordinary network on turned images.
        best: The run chosen by validation.
        learned: Whether the best network does better than guessing.
    """

    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    confusions: tuple[Excess, ...]
    turned: Difference | None
    best: RunRecord
    learned: bool = True


def findings_of(summaries: Sequence[Summary], dataset: Dataset) -> Findings:
    """Compare the integrated network with all others."""
    own = {each.recipe: each for each in summaries}
    first = own[INVARIANT]
    return Findings(
        tuple(summaries),
        tuple(compare(first, own[name], dataset.test) for name in (ORDINARY, TURNED, POOLED)),
        tuple(confused(first, own[ORDINARY])),
        compare_turned(first, own[ORDINARY]),
        best_run(summaries),
        beats_guessing(summaries, dataset.test),
    )


@dataclass(frozen=True)
class Advice:
    """What came out in plain words, for a text file and for a page.

    Attributes:
        short: What to do, in one sentence.
        networks: How each network did.
        shown: What invariance gained or cost.
        limits: Classes that an invariant network confuses.
        saved: Which network was saved, and what of it could not be.
        cautions: What the figures do not show.
    """

    short: str
    networks: tuple[Summary, ...]
    shown: tuple[str, ...]
    limits: tuple[str, ...]
    saved: tuple[str, ...]
    cautions: tuple[str, ...]

    def text(self) -> str:
        """Return all of it as a text file holds it."""
        sections = {
            "The networks": table_lines(self.networks),
            SHOWN_HEADING: [*self.shown, f"In short: {self.short}"],
            **self._others(),
        }
        return "\n\n".join("\n".join([name, *lines]) for name, lines in sections.items()) + "\n"

    def sections(self) -> list[tuple[str, list[str]]]:
        """Return all of it as the report shows it: what to do first, no table drawn with spaces."""
        right = "Right answers on the test images as they are, and turned"
        return [
            ("In short", [self.short[:1].upper() + self.short[1:]]),
            (right, [summary_sentence(each) for each in self.networks]),
            (SHOWN_HEADING, list(self.shown)),
            *self._others().items(),
        ]

    def _others(self) -> dict[str, list[str]]:
        return {
            "Where it is the wrong tool": list(self.limits),
            "What was saved": list(self.saved),
            "How far to trust this": list(self.cautions),
        }


def advise(
    findings: Findings,
    dataset: Dataset,
    plan: Plan,
    *,
    not_saved: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> Advice:
    """Put findings into words.

    Args:
        findings: What was measured.
        dataset: The images.
        plan: What was trained.
        not_saved: Why a file is missing.
        warnings: More that limits what the figures show.
    """
    groups = dataset.test.groups is not None
    return Advice(
        short=short_advice(findings, plan),
        networks=findings.summaries,
        shown=(
            *(comparison_line(each, groups=groups) for each in findings.comparisons),
            turned_line(findings),
        ),
        limits=tuple(confusion_lines(findings, dataset.class_names, plan)),
        saved=(saved_line(findings), *not_saved),
        cautions=(*caution_lines(dataset, plan), *warnings),
    )


def summary_sentence(summary: Summary) -> str:
    """Say how often a network is right, with its name in the tables of the report."""
    name = NAMES[summary.recipe]
    return (
        f"{name[:1].upper()}{name[1:]} ({summary.recipe.partition('/')[2]}): "
        f"{percent(1 - summary.error)}, turned {percent(1 - summary.turned)}"
    )


def table_lines(networks: Sequence[Summary]) -> list[str]:
    """Return a table: right answers as the images are and turned."""
    width = max(len(name) for name in NAMES.values())
    lines = [f"{'right answers':<{width}}  as they are   turned   parameters"]
    for each in networks:
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
    own = {each.recipe: each for each in findings.summaries}
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


def short_advice(findings: Findings, plan: Plan) -> str:
    """Say in one sentence what to do."""
    if not plan.whole:
        return (
            "the time was too short for all the steps that these networks need, so "
            "nothing should be concluded from them; give more --minutes."
        )
    if not findings.learned:
        return (
            "no network does better than always naming the largest class, so nothing "
            "should be concluded; look at the labels, or add images."
        )
    verdict = findings.comparisons[0].verdict
    own = {each.recipe: each for each in findings.summaries}
    steady = min(findings.summaries, key=lambda each: each.turned)
    if findings.confusions:
        return (
            "some images here differ by their orientation, which an invariant network "
            "cannot see. Use it only if mixing up the classes named here does little harm."
        )
    if verdict == BETTER:
        return "rotation invariance helps on these images."
    if verdict == WORSE:
        return (
            "rotation invariance costs accuracy on these images as they are. Use it only "
            "if yours will come turned."
        )
    if own[ORDINARY].turned - steady.turned > LARGE:
        return (
            "on images as they are, nothing speaks for or against invariance. If yours "
            f"may come turned, use the {NAMES[steady.recipe]}; otherwise the ordinary one will do."
        )
    return "nothing was shown for or against invariance here; the simplest network will do."


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
    own = {each.recipe: each for each in findings.summaries}
    run, chosen = findings.best, own[findings.best.recipe]
    tied = [each for each in findings.summaries if each.validation == chosen.validation]
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


def percent(fraction: float) -> str:
    """Return a fraction as percent."""
    return f"{100 * fraction:.1f} %"
