"""What came out, in plain words: what invariance gained or cost, and when it is the wrong tool."""

from collections.abc import Sequence
from dataclasses import dataclass

from invint.assist.comparison import (
    Comparison,
    Standing,
    beats_guessing,
    best_run,
    compare,
    compare_turned,
    confused,
)
from invint.assist.plan import Plan
from invint.data.dataset import Dataset
from invint.study.record import RunRecord
from invint.study.statistics import BETTER, UNDECIDED, WORSE, Difference, Excess

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
