"""What the networks of `invint fit` did, compared, and what it means in plain words.

A direction is named only where neither chance among the test images nor chance among the seeds is
enough to explain it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
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

INVARIANT, POOLED, TURNED, ORDINARY = "fit/local-ws", "fit/pooling", "fit/cnn-turned", "fit/cnn"
NAMES = {
    ORDINARY: "ordinary network",
    TURNED: "ordinary network trained on turned copies",
    POOLED: "steerable network with pooling",
    INVARIANT: "steerable network with integration",
}
PREFERRED = (INVARIANT, POOLED, TURNED, ORDINARY)  # where validation ties
LEVEL = 0.05  # of significance
FEW = 100  # test images, below which little can be shown
LARGE = 0.02  # difference of errors on turned images worth a sentence
UNEVEN = 4  # times the images of the smallest class: worth a warning
SHOWN = 5  # pairs of classes
SHOWN_HEADING = "What invariance did here"


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
    """The integrated network and another one on the same test images and the same splits.

    Attributes:
        other: Name of the recipe it is compared with.
        difference: Of the errors over seeds; negative if the integrated network makes fewer.
        better: Test images, or groups of them, on which it is right more often.
        worse: Those on which the other one is.
        p_value: Of the exact sign test on these; McNemar's test where there is one seed.
    """

    other: str
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


@dataclass(frozen=True)
class Findings:
    """Everything the advice rests on.

    Attributes:
        summaries: How each network did, by recipe.
        comparisons: Of the integrated network with each other one.
        confusions: Pairs of classes it confuses more often than the ordinary one.
        turned: Difference to the ordinary network on turned images.
        best: The run chosen by validation.
        learned: Whether the best network does better than guessing.
    """

    summaries: dict[str, Summary]
    comparisons: tuple[Comparison, ...]
    confusions: tuple[Excess, ...]
    turned: Difference | None
    best: RunRecord
    learned: bool


def findings_of(summaries: Sequence[Summary], dataset: Dataset) -> Findings:
    """Compare the integrated network with all others."""
    own = {each.recipe: each for each in summaries}
    first, ordinary = own[INVARIANT], own[ORDINARY]
    return Findings(
        summaries=own,
        comparisons=tuple(
            compare(first, own[name], dataset.test) for name in (ORDINARY, TURNED, POOLED)
        ),
        confusions=tuple(confused(first, ordinary)),
        turned=_difference(first, ordinary, turned_error),
        best=best_run(summaries),
        learned=beats_guessing(summaries, dataset.test),
    )


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


def best_run(summaries: Sequence[Summary]) -> RunRecord:
    """Choose by validation error alone; on a tie, the network that keeps its answers when turned.

    Test images have no say in it.
    """
    best = min(summaries, key=lambda each: (each.validation, PREFERRED.index(each.recipe)))
    return min(best.runs, key=lambda run: (validation_error(run), run.seed))


def beats_guessing(summaries: Sequence[Summary], test: Split) -> bool:
    """Tell whether the best network is right more often than naming the largest class would be."""
    from scipy.stats import binomtest  # slow to import

    images, largest = len(test), int(test.labels.bincount().max())
    right = round((1 - min(each.error for each in summaries)) * images)
    found = binomtest(right, images, largest / images, alternative="greater")
    return bool(found.pvalue < LEVEL)


def compare(first: Summary, second: Summary, test: Split) -> Comparison:
    """Compare the errors of two networks on test images as they are."""
    from scipy.stats import binomtest  # slow to import

    difference = _difference(first, second, lambda run: run.error)
    if difference is None:
        raise RunError(f"{first.recipe} and {second.recipe} share no seed; remove their runs")
    gaps = _wrong(second) - _wrong(first)
    if test.groups is not None:  # images of one group stand or fall together
        _, members = test.groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        gaps = torch.zeros(int(members.max()) + 1).index_add(0, members, gaps)
    better, worse = int((gaps > 1e-6).sum()), int((gaps < -1e-6).sum())
    uneven = better + worse
    p_value = float(binomtest(better, uneven).pvalue) if uneven else 1.0
    return Comparison(second.recipe, difference, better, worse, p_value)


def confused(first: Summary, second: Summary) -> list[Excess]:
    """Find pairs of classes the first network confuses significantly more often.

    The probabilities of all seeds are averaged, so that each test image counts once.
    """
    matrices = []
    for summary in (first, second):
        found = [_predictions(run) for run in summary.runs]
        probabilities = torch.stack([logits.softmax(dim=1) for logits, _ in found])
        matrices.append(confusion_matrix(probabilities.mean(dim=0), found[0][1]))
    return confusion_excess(*matrices, level=LEVEL)


def _difference(
    first: Summary, second: Summary, error: Callable[[RunRecord], float]
) -> Difference | None:
    """Compare errors of two networks over seeds."""
    return paired_difference(
        *({run.pair: error(run) for run in each.runs} for each in (first, second))
    )


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


@dataclass(frozen=True)
class Advice:
    """What came out in plain words, for a text file and for a page.

    Attributes:
        short: What to do, in one sentence.
        networks: How each network did.
        shown: What invariance gained or cost.
        others: Lines of further sections, by heading.
    """

    short: str
    networks: tuple[Summary, ...]
    shown: tuple[str, ...]
    others: dict[str, list[str]]

    def text(self) -> str:
        """Return all of it as a text file holds it."""
        sections = {
            "The networks": table_lines(self.networks),
            SHOWN_HEADING: [*self.shown, f"In short: {self.short}"],
            **self.others,
        }
        return "\n\n".join("\n".join([name, *lines]) for name, lines in sections.items()) + "\n"

    def sections(self) -> list[tuple[str, list[str]]]:
        """Return all of it as the report shows it: what to do first, no table drawn with spaces."""
        right = [
            f"{_capital(NAMES[each.recipe])} ({each.recipe.removeprefix('fit/')}): "
            f"{percent(1 - each.error)}, turned {percent(1 - each.turned)}"
            for each in self.networks
        ]
        return [
            ("In short", [_capital(self.short)]),
            ("Right answers on the test images as they are, and turned", right),
            (SHOWN_HEADING, list(self.shown)),
            *self.others.items(),
        ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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
    compared = [comparison_line(each, groups=groups) for each in findings.comparisons]
    return Advice(
        short=short_advice(findings, plan),
        networks=tuple(findings.summaries.values()),
        shown=(*compared, turned_line(findings)),
        others={
            "Where it is the wrong tool": confusion_lines(findings, dataset.class_names, plan),
            "What was saved": [saved_line(findings), *not_saved],
            "How far to trust this": [*caution_lines(dataset, plan), *warnings],
        },
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
    other = f"the {NAMES[comparison.other]}"
    points = 100 * abs(comparison.difference.mean)
    kind = "fewer" if comparison.difference.mean < 0 else "more"
    what = f"{points:.1f} percentage points {kind} errors" if points else "as many errors"
    unit = "group of test images" if groups else "test image"
    chance = (
        f"{_interval(comparison.difference)}; right more often on "
        f"{counted(comparison.better, unit)}, less often on {comparison.worse:,}, "
        f"p = {comparison.p_value:.2g}"
    )
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
    ordinary, copies, integrated = (
        percent(1 - findings.summaries[name].turned) for name in (ORDINARY, TURNED, INVARIANT)
    )
    text = (
        f"On turned test images the ordinary network is right on {ordinary}, trained on turned "
        f"copies on {copies}, the integrated one on {integrated}."
    )
    found = findings.turned
    if found is not None and found.verdict in (BETTER, WORSE):
        kind = "fewer" if found.mean < 0 else "more"
        text += (
            f" That is {100 * abs(found.mean):.1f} points {kind} errors than the ordinary one "
            f"({_interval(found)})."
        )
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
    if findings.confusions:
        return (
            "some images here differ by their orientation, which an invariant network "
            "cannot see. Use it only if mixing up the classes named here does little harm."
        )
    verdict = findings.comparisons[0].verdict
    if verdict == BETTER:
        return "rotation invariance helps on these images."
    if verdict == WORSE:
        return (
            "rotation invariance costs accuracy on these images as they are. Use it only "
            "if yours will come turned."
        )
    steady = min(findings.summaries.values(), key=lambda each: each.turned)
    if findings.summaries[ORDINARY].turned - steady.turned > LARGE:
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
    meaning = (
        "They may be turned copies of each other: do not use an invariant network to tell them "
        "apart."
        if plan.whole and findings.learned
        else "Networks that have not learned show nothing by it."
    )
    lines = [
        f"{names[each.classes[0]]} and {names[each.classes[1]]}: confused {each.count} times by "
        f"the integrated network, {each.other} by the ordinary one (p = {each.p_value:.1g}). "
        f"{meaning}"
        for each in findings.confusions[:SHOWN]
    ]
    left = len(findings.confusions) - SHOWN
    return [*lines, f"and {left} more pairs, in the report"] if left > 0 else lines


def saved_line(findings: Findings) -> str:
    """Say which network was saved, and why."""
    run = findings.best
    lowest = findings.summaries[run.recipe].validation
    tied = sum(each.validation == lowest for each in findings.summaries.values())
    why = "the lowest error on the validation images"
    if tied > 1:
        why += f", shared by {tied} networks: of these the one made for turned images"
    text = (
        f"The {NAMES[run.recipe]}, seed {run.seed}: {why} ({percent(lowest)}). It is "
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
    own, counts = dataset.validation, dataset.train.labels.bincount().tolist()
    by = "a fifth of these" if own is None else f"{len(own):,} of the folder's own"
    lines = [
        f"{counted(len(dataset.test), 'test image')} of {plan.side} x {plan.side} pixels, never "
        f"used to choose anything; {len(dataset.train):,} to learn from, {by} to choose by; each "
        f"network trained with {counted(plan.seeds, 'seed')}, {counted(plan.steps, 'step')} each.",
        "Turned images are masked with the inscribed disc, which takes the corners away.",
    ]
    if len(dataset.test) < FEW:
        lines.append("So few test images show only large differences.")
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
