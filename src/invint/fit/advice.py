"""What came out of `invint fit`, in plain words.

A direction is named only where chance among the test pictures is not enough to explain it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from invint.data.dataset import Split
from invint.errors import RunError
from invint.fit.answers import Answer
from invint.fit.candidates import BACKBONE, CANDIDATES
from invint.fit.schedule import Skipped
from invint.study.records import confusion_matrix, read_predictions
from invint.study.statistics import (
    BETTER,
    UNDECIDED,
    WORSE,
    Excess,
    confusion_excess,
)

if TYPE_CHECKING:
    from invint.fit.search import Search

LEVEL = 0.05  # of significance
FEW = 100  # test pictures, below which little can be shown
UNEVEN = 4  # times the pictures of the smallest class: worth a warning
SHOWN = 5  # pairs of classes
NETWORKS, DID = "The networks", "What invariance did here"


@dataclass(frozen=True)
class Comparison:
    """Two answers on the same test pictures.

    Attributes:
        gap: Errors of the first less those of the second, as a fraction of the pictures.
        better: Pictures, or groups of them, on which the first is right more often.
        worse: Those on which the second is.
        p_value: Of the exact sign test on these; McNemar's test where there are no groups.
    """

    gap: float
    better: int
    worse: int
    p_value: float

    @property
    def verdict(self) -> str:
        """A direction, unless chance among the pictures explains it."""
        if self.p_value >= LEVEL or (self.better > self.worse) != (self.gap < 0) or not self.gap:
            return UNDECIDED
        return BETTER if self.gap < 0 else WORSE


@dataclass(frozen=True)
class Advice:
    """What came out in plain words, for a text file and for a page.

    Attributes:
        short: What to do, in one sentence.
        table: How each network did, as lines.
        networks: The same without columns.
        others: Lines of further sections, by heading.
    """

    short: str
    table: tuple[str, ...]
    networks: tuple[str, ...]
    others: dict[str, list[str]]

    def text(self) -> str:
        """Return all of it as a text file holds it."""
        sections = {"In short": [_capital(self.short)], NETWORKS: list(self.table), **self.others}
        return "\n\n".join("\n".join([name, *lines]) for name, lines in sections.items()) + "\n"

    def sections(self) -> list[tuple[str, list[str]]]:
        """Return all of it as the report shows it, with no table drawn with spaces."""
        return [
            ("In short", [_capital(self.short)]),
            (NETWORKS, list(self.networks)),
            *self.others.items(),
        ]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def compare(first: Answer, second: Answer, test: Split) -> Comparison:
    """Compare the errors of two answers on test pictures as they are."""
    from scipy.stats import binomtest  # slow to import

    gaps = _wrong(second) - _wrong(first)
    gap = -gaps.mean().item()
    if test.groups is not None:  # pictures of one group stand or fall together
        _, members = test.groups.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        gaps = torch.zeros(int(members.max()) + 1).index_add(0, members, gaps)
    better, worse = int((gaps > 0).sum()), int((gaps < 0).sum())
    uneven = better + worse
    return Comparison(
        gap, better, worse, float(binomtest(better, uneven).pvalue) if uneven else 1.0
    )


def confused(first: Answer, second: Answer) -> list[Excess]:
    """Find pairs of classes that the first confuses significantly more often."""
    matrices = [confusion_matrix(*_predictions(each)) for each in (first, second)]
    return confusion_excess(*matrices, level=LEVEL)


def beats_guessing(answers: Sequence[Answer], test: Split) -> bool:
    """Tell whether the best is right more often than naming the largest class would be."""
    from scipy.stats import binomtest  # slow to import

    images, largest = len(test), int(test.labels.bincount().max())
    right = round((1 - min(each.run.error for each in answers)) * images)
    return bool(binomtest(right, images, largest / images, alternative="greater").pvalue < LEVEL)


def _wrong(answer: Answer) -> Tensor:
    logits, labels = _predictions(answer)
    return (logits.argmax(dim=1) != labels).float()


def _predictions(answer: Answer) -> tuple[Tensor, Tensor]:
    found = read_predictions(answer.run)
    if found is None:
        raise RunError(
            f"{answer.run.folder}: predictions.safetensors is gone; remove the folder and start "
            "again"
        )
    return found


def advise(
    search: "Search",
    best: Answer,
    *,
    note: str = "",
    skipped: Sequence[Skipped] = (),
    problems: Sequence[str] = (),
) -> Advice:
    """Put into words what was found.

    Args:
        search: Everything that was tried.
        best: The answer that is saved.
        note: What the scan of the folder warns of.
        skipped: What there was no time for.
        problems: Why a file is missing.
    """
    test, names = search.first.test, search.first.class_names
    ordinary = ordinary_of(search.answers)
    found = None if ordinary is None else compare(best, ordinary, test)
    pairs = [] if ordinary is None else confused(best, ordinary)
    learned = beats_guessing(search.answers, test)
    others: dict[str, list[str]] = {}
    if ordinary is not None and found is not None:
        others[DID] = [
            comparison_line(found, best, ordinary, groups=test.groups is not None),
            turned_line(best, ordinary),
        ]
        others["Where it is the wrong tool"] = confusion_lines(pairs, best, ordinary, names)
    others["What was saved"] = [saved_line(search, best), *problems]
    if search.backbone is None:
        others["What would help"] = [
            "No pretrained network was used. pip install 'invint[pretrained]' adds one "
            f"({BACKBONE}), which mostly makes far fewer errors from few pictures."
        ]
    if skipped:
        others["What there was no time for"] = [skipped_line(each) for each in skipped]
    others["How far to trust this"] = caution_lines(search, note)
    return Advice(
        short=short_advice(best, ordinary, found, pairs, learned=learned),
        table=tuple(table_lines(search, best)),
        networks=tuple(network_lines(search)),
        others=others,
    )


def ordinary_of(answers: Sequence[Answer]) -> Answer | None:
    """Return the answer without symmetries that invariance is compared with."""
    return next((each for each in answers if each.candidate.group is None), None)


def table_lines(search: "Search", best: Answer) -> list[str]:
    """Return a table of errors: by cross-validation, on test pictures, turned."""
    width = max(len(name) for name in CANDIDATES)
    head = (
        f"{'errors':<{width}}  cross-validated  test as it is  test turned by 90°  answers change"
    )
    lines = [head]
    for each in search.answers:
        judged = "" if each.judgement is None else percent(each.judgement.error)
        lines.append(
            f"{each.candidate.name:<{width}}  {judged:>15}  {percent(each.run.error):>13}  "
            f"{percent(each.turned.error):>18}  {percent(each.turned.changed):>14}"
            f"{'  saved' if each is best else ''}"
        )
    for name, judgement in search.held.items():
        if all(each.candidate.name != name for each in search.answers):
            lines.append(f"{name:<{width}}  {percent(judgement.error):>15}  not trained on all")
    shown = dict.fromkeys([*(each.candidate.name for each in search.answers), *search.held])
    return [*lines, *(f"{name}: {CANDIDATES[name].title}" for name in shown)]


def network_lines(search: "Search") -> list[str]:
    """Return the same as sentences."""
    return [
        f"{each.candidate.name}, {each.candidate.title}: "
        f"{percent(each.run.error)} errors on test pictures as they are, "
        f"{percent(each.turned.error)} on {each.turned.images:,} turned by quarter turns, where "
        f"{percent(each.turned.changed)} of the answers change"
        for each in search.answers
    ]


def comparison_line(found: Comparison, best: Answer, ordinary: Answer, *, groups: bool) -> str:
    """Say in one sentence what a comparison shows."""
    points = 100 * abs(found.gap)
    kind = "fewer" if found.gap < 0 else "more"
    what = f"{points:.1f} percentage points {kind} errors" if points else "as many errors"
    unit = "group of test pictures" if groups else "test picture"
    chance = (
        f"right on {counted(found.better, unit)} where the other is wrong, wrong on "
        f"{found.worse:,} where it is right, p = {found.p_value:.2g}"
    )
    pair = f"Of {best.candidate.name} and {ordinary.candidate.name}, the first"
    if found.verdict == UNDECIDED:
        return f"{pair} makes {what} on pictures as they are: no difference is shown ({chance})."
    return f"{pair} makes {what} on pictures as they are ({chance})."


def turned_line(best: Answer, ordinary: Answer) -> str:
    """Say what turning the test pictures does."""
    return (
        f"Turned by 90°, 180° or 270°, {ordinary.candidate.name} gives another answer for "
        f"{percent(ordinary.turned.changed)} of the pictures and is wrong on "
        f"{percent(ordinary.turned.error)}; {best.candidate.name} gives another answer for "
        f"{percent(best.turned.changed)} and is wrong on {percent(best.turned.error)}."
    )


def short_advice(
    best: Answer,
    ordinary: Answer | None,
    found: Comparison | None,
    pairs: Sequence[Excess],
    *,
    learned: bool,
) -> str:
    """Say in one sentence what to do."""
    name = best.candidate.name
    if not learned:
        return (
            "no network does better than always naming the largest class, so nothing should be "
            "concluded; look at the labels, or add pictures."
        )
    if ordinary is None or found is None:
        return f"use {name}: its answers do not change under quarter turns. Nothing else was tried."
    other = ordinary.candidate.name
    if pairs:
        return (
            f"some pictures here differ by their orientation, which {name} cannot see. Use it only "
            f"if mixing up the classes named here does little harm; {other} tells them apart."
        )
    if found.verdict == WORSE:
        return (
            f"if your pictures always come upright, {other} makes fewer errors; if they may come "
            f"turned, use {name}."
        )
    if found.verdict == BETTER:
        return f"use {name}: invariance to turns helps on these pictures, even as they are."
    return (
        f"use {name}: on pictures as they are no difference to {other} is shown, and its answers "
        "do not change when they are turned by 90°."
    )


def confusion_lines(
    pairs: Sequence[Excess], best: Answer, ordinary: Answer, names: Sequence[str]
) -> list[str]:
    """Name the classes that the saved network confuses more often than the ordinary one."""
    first, second = best.candidate.name, ordinary.candidate.name
    if not pairs:
        return [
            f"No pair of classes is confused significantly more often by {first} than by {second}. "
            "With few test pictures that need not mean there is none."
        ]
    lines = [
        f"{names[each.classes[0]]} and {names[each.classes[1]]}: confused {each.count} times by "
        f"{first}, {each.other} by {second} (p = {each.p_value:.1g}). They may be turned copies of "
        "each other: do not use an invariant network to tell them apart."
        for each in pairs[:SHOWN]
    ]
    left = len(pairs) - SHOWN
    return [*lines, f"and {left} more pairs, in the report"] if left > 0 else lines


def saved_line(search: "Search", best: Answer) -> str:
    """Say which network was saved, why, and how to save another one."""
    judged = best.judgement
    error = "" if judged is None else f" ({percent(judged.error)} errors by cross-validation)"
    text = (
        f"{_capital(best.candidate.name)} at {best.side} x {best.side} pixels: the best of the "
        f"cheapest invariant networks whose errors are not more than one standard error above the "
        f"fewest{error}. Test pictures had no say in it."
    )
    ordinary = ordinary_of(search.answers)
    if ordinary is not None:
        text += (
            f" For {ordinary.candidate.name} instead: invint export "
            f"{ordinary.run.folder} --out {ordinary.candidate.name}.onnx"
        )
    return text


def skipped_line(skipped: Skipped) -> str:
    """Say what was left out, and what it would have taken."""
    took = "was stopped because it took longer than" if skipped.begun else "would have taken"
    return (
        f"{_capital(skipped.name)} {took} {skipped.seconds / 60:.1f} minutes, with "
        f"{max(skipped.left, 0) / 60:.1f} left; give more --minutes."
    )


def caution_lines(search: "Search", note: str) -> list[str]:
    """Say what the figures do not show."""
    first = search.first
    own, counts = first.validation, first.train.labels.bincount().tolist()
    by = "cross-validation among these" if own is None else f"{len(own):,} of the folder's own"
    lines = [
        f"{counted(len(first.test), 'test picture')}, never used to choose anything; "
        f"{counted(len(first.train), 'picture')} to learn from; chosen by {by}.",
        "Quarter turns are exact. In the report pictures are turned by other angles too, and "
        "masked with the inscribed disc, which takes the corners away.",
    ]
    if len(first.test) < FEW:
        lines.append("So few test pictures show only large differences.")
    if max(counts) > UNEVEN * min(counts):
        lines.append(
            f"The largest class has {max(counts) / min(counts):.0f} times the pictures of the "
            "smallest: the errors of rare classes weigh little in all figures here."
        )
    if note:
        lines.append(f"The scan of the folder warns: {note}.")
    return lines


def counted(number: int, unit: str) -> str:
    """Return a number with its unit in the singular or plural: the first word takes the s."""
    first, _, rest = unit.partition(" of ")
    words = f"{first}{'' if number == 1 else 's'}" + (f" of {rest}" if rest else "")
    return f"{number:,} {words}"


def percent(fraction: float) -> str:
    """Return a fraction as percent."""
    return f"{100 * fraction:.1f} %"
