"""A data set from a folder of pictures: its splits, what there is to say about it, its images."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from invint.data.cache import Cache, Decoded, Shape, user_cache
from invint.data.dataset import Dataset, Progress, Split
from invint.data.listing import SPLITS, BadFile, Layout, read_layout
from invint.data.pictures import check_request, shown
from invint.data.splits import FileInfo, Leak, SplitPlan, SplitRules, leak_note
from invint.errors import DataError

BAD = "bad files"
SHOWN = 20  # lines of each list in a report, but the one of bad files
LARGEST_SIDE = 512  # that is suggested for pictures as they are
NAMED = 5  # bad files named in an error
KINDS = {  # Pillow's names of pixels, in words; each its own
    "1": "black and white",
    "L": "grey",
    "LA": "grey with transparency",
    "P": "palette",
    "RGB": "colour",
    "RGBA": "colour with transparency",
}


def load_folder(  # noqa: PLR0913
    path: Path | Layout,
    *,
    skip_bad: bool = False,
    side: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    drop_leaks: bool = False,
    min_per_class: int = 0,
    skip_class: Sequence[str] = (),
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read a folder of pictures, or a CSV file that lists them.

    The pictures are decoded once and kept; the images of the data set are mapped from that file,
    so that a folder larger than memory works and a second start is instant. Another seed or test
    fraction copies what is decoded into another order.

    Args:
        path: A folder in one of the layouts of `read_layout`, or a CSV file; or what `read_layout`
            made of it, which is then not listed again.
        skip_bad: Leave bad files out; otherwise they stop the reading, with a list of them.
        side: Even side of the squares all pictures are fitted into; chosen if not given.
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Fraction of the pictures held out then.
        drop_leaks: Leave pictures out of training that are in the test split too, or of a group
            that is.
        min_per_class: Leave classes out that have fewer good pictures.
        skip_class: Names of classes to leave out.
        cache: Folder for the decoded pictures of this folder alone; one in the user's cache folder
            if not given.
        progress: Called with the number of files decoded and the number of all.
    """
    rules = SplitRules(
        seed=seed, test_share=test_share, drop_leaks=drop_leaks, min_per_class=min_per_class
    )
    plan, decoded = _read(path, rules, skip_class, side, cache, progress)
    found = _summary(plan, decoded)
    refuse(found, skip_bad=skip_bad)
    label_of = {name: label for label, name in enumerate(found.classes)}
    labels = torch.tensor([label_of.get(file.label, -1) for file in plan.layout.files])
    units = plan.units(decoded.infos)
    splits: list[Split] = []
    start = 0
    for chosen in decoded.splits:
        stop = start + len(chosen)
        groups = None if units is None else torch.tensor(units)[chosen]
        splits.append(Split(decoded.images[start:stop], labels[chosen], groups))
        start = stop
    train, validation, test = splits
    return Dataset(
        name=f"folder:{plan.layout.root.name}",
        train=train,
        test=test,
        class_names=found.classes,
        validation=validation if len(validation) else None,
        note=found.note,
    )


def scan(  # noqa: PLR0913
    path: Path | Layout,
    *,
    side: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    drop_leaks: bool = False,
    min_per_class: int = 0,
    skip_class: Sequence[str] = (),
    cache: Path | None = None,
    progress: Progress | None = None,
) -> "Scan":
    """Look at every picture of a folder; the arguments are those of `load_folder`.

    What is decoded on the way is kept, so that `load_folder` in the same shape decodes nothing.
    """
    rules = SplitRules(
        seed=seed, test_share=test_share, drop_leaks=drop_leaks, min_per_class=min_per_class
    )
    return _summary(*_read(path, rules, skip_class, side, cache, progress))


def _read(
    path: Path | Layout,
    rules: SplitRules,
    skip_class: Sequence[str],
    side: int | None,
    cache: Path | None,
    progress: Progress | None,
) -> tuple[SplitPlan, Decoded]:
    """Check what is asked, list the folder, unless it is already, and decode it, unless it is."""
    check_request(side)
    layout = path if isinstance(path, Layout) else read_layout(path)
    if skip_class:
        layout = layout.without(skip_class)
    plan = SplitPlan(layout, rules)
    place = cache or user_cache(layout.root, "\0".join((layout.kind, *layout.skipped)))
    return plan, Cache(plan, place, side=side, progress=progress).decoded()


@dataclass(frozen=True)
class Scan:
    """What a folder of pictures holds.

    Attributes:
        path: The folder, or the CSV file that lists its pictures.
        layout: How the folder says what is what.
        classes: Names of the classes, in the order of the labels.
        counts: Good pictures of each class, by split.
        held_out: Fraction held out for testing, if the folder has no test split of its own.
        sizes: How many pictures have which width and height, the most frequent first.
        modes: How many pictures have which kind of pixels, by Pillow's names.
        shape: The side, channels and depth that all pictures are given.
        reduced: How many pictures lose depth: colour of sixteen bits a channel is read as eight.
        bad: Files that cannot be used, and why.
        others: Files that are no pictures and are passed over.
        duplicates: Pictures with the same pixels, in sets.
        leaks: Pictures to learn from of which a later split has a copy, or one of the same group.
        few: Classes with too few pictures for the split, and what they lack.
        dropped: Whether leaks are left out.
        left_out: Classes that are left out, and why.
    """

    path: Path
    layout: str
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]]
    held_out: float | None
    sizes: tuple[tuple[tuple[int, int], int], ...]
    modes: dict[str, int]
    shape: Shape
    reduced: int
    bad: tuple[BadFile, ...]
    others: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    leaks: tuple[Leak, ...]
    few: tuple[str, ...]
    dropped: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def images(self) -> int:
        """Number of good pictures."""
        return sum(map(sum, self.counts.values()))

    @property
    def imbalance(self) -> float:
        """How many times more pictures the largest class has than the smallest."""
        totals = [sum(column) for column in zip(*self.counts.values(), strict=True)]
        return max(totals) / min(totals) if totals and min(totals) else math.inf

    @property
    def natural_side(self) -> int:
        """The even side at which most pictures lose nothing: that of most or the median, to 512."""
        longer = sorted(max(size) for size, count in self.sizes for _ in range(count))
        if not longer:
            return self.shape.side
        common, times = Counter(longer).most_common(1)[0]
        length = common if 2 * times > len(longer) else longer[len(longer) // 2]
        return max(2, min(length + length % 2, LARGEST_SIDE))

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that makes figures from this folder doubtful."""
        lines = [*self.few, *_alike(self.classes)]
        if self.leaks and not self.dropped:
            lines.append(leak_note(self.leaks, dropped=False))
        if self.reduced:
            lines.append(f"pictures in colour of 16 bits a channel, read as 8: {self.reduced:,}")
        return tuple(lines)

    @property
    def note(self) -> str:
        """What a table must say beside figures from this folder."""
        lines = [*self.warnings, *self.left_out]
        if self.leaks and self.dropped:
            lines.append(leak_note(self.leaks, dropped=True))
        return "; ".join(lines)

    def report(self) -> str:
        """Return everything as text."""
        side, channels, sixteen_bit = self.shape
        sizes = {f"{width} x {height}": count for (width, height), count in self.sizes}
        spread, held_out = "some without a good picture", "as the folder says"
        if self.imbalance < math.inf:
            spread = f"the largest {self.imbalance:.1f} x the smallest"
        if self.held_out is not None:
            held_out = f"{self.held_out:.0%} held out, by class; "
            held_out += "no group and no set of copies is divided"
        lines = [
            f"folder    {shown(str(self.path))}: {shown(self.layout)}",
            f"pictures  {self.images:,} good, {len(self.bad):,} bad",
            f"classes   {len(self.classes)}, {spread}",
            f"sizes     {_counted(sizes)}",
            f"pixels    {_counted({KINDS.get(mode, mode): n for mode, n in self.modes.items()})}",
            f"made into {side} x {side}, {'grey' if channels == 1 else 'colour'}, "
            f"{16 if sixteen_bit else 8} bits",
            f"test      {held_out}",
            "",
        ]
        columns = [split for split in SPLITS if split in self.counts]
        width = max(5, *(len(name) for name in self.classes))
        lines.append("class".ljust(width) + "".join(f"{column:>12}" for column in columns))
        for label, name in enumerate(self.classes):
            cells = (f"{self.counts[column][label]:>12,}" for column in columns)
            lines.append(name.ljust(width) + "".join(cells))
        for title, items in (
            ("warnings", self.warnings),
            (BAD, [str(bad) for bad in self.bad]),
            ("classes left out", self.left_out),
            (
                "leakage, left out" if self.dropped else "leakage",
                [str(each) for each in self.leaks],
            ),
            ("same picture several times", _sets(self.duplicates)),
            ("other files, passed over", [shown(path) for path in self.others]),
        ):
            most = len(items) if title == BAD else SHOWN
            if items:
                lines += ["", f"{title} ({len(items):,})", *(f"  {item}" for item in items[:most])]
            if len(items) > most:
                lines.append(f"  and {len(items) - most:,} more")
        return "\n".join(lines)


def _alike(classes: Sequence[str]) -> Iterable[str]:
    """Name classes that somebody may have meant to be one."""
    same = defaultdict(list)
    for name in classes:
        same["".join(unicodedata.normalize("NFKC", name).casefold().split())].append(name)
    for names in same.values():
        if len(names) > 1:
            yield f"classes named almost alike: {', '.join(map(repr, names))}"


def _counted(counts: dict[str, int]) -> str:
    items = list(counts.items())
    text = ", ".join(f"{name} ({count:,})" for name, count in items[:8])
    return text + (f" and {len(items) - 8} more" if len(items) > 8 else "") or "none"


def _sets(sets: Iterable[Sequence[str]]) -> list[str]:
    return [" = ".join(shown(path) for path in paths) for paths in sets]


def refuse(scan: Scan, *, skip_bad: bool) -> None:
    """Raise `DataError` if a folder cannot be trained on."""
    path = shown(str(scan.path))
    if scan.bad and not skip_bad:
        few = "; ".join(str(bad).partition(";")[0] for bad in scan.bad[:NAMED])
        more = f"; and {len(scan.bad) - NAMED:,} more" if len(scan.bad) > NAMED else ""
        raise DataError(
            f"{path}: {len(scan.bad):,} bad file(s): {few}{more}. `invint data check "
            f"folder:{path}` lists them; correct them, or leave them out with --skip-bad"
        )
    pooled = scan.held_out is not None
    if len(scan.classes) < 2:
        raise DataError(
            f"{path}: expected at least two classes, found {len(scan.classes)} large enough for "
            f"--min-per-class ({'; '.join(scan.left_out[:NAMED])}); lower it, or add pictures"
        )
    lacking = [line for line in scan.few if pooled or line.endswith("no picture to train on")]
    if lacking:
        dropped = len(scan.leaks) if scan.dropped else 0
        lacking += [f"--drop-leaks left out {dropped:,} pictures"] * (dropped > 0)
        remedy = (
            "add pictures, or leave such classes out with --skip-class NAME or --min-per-class N"
        )
        if lacking[0].startswith("a test share"):
            remedy = "ask for a smaller --test-share"
        raise DataError(f"{path}: {'; '.join(lacking[-SHOWN:])}; {remedy}")


def _summary(plan: SplitPlan, decoded: Decoded) -> Scan:
    layout, infos = plan.layout, decoded.infos
    enough = plan.enough(infos)
    classes = tuple(layout.classes[label] for label in enough)
    by_split = dict(zip(SPLITS, decoded.splits, strict=True))
    counts: dict[str, tuple[int, ...]] = {}
    for split, indices in by_split.items():
        if indices or split != "validation":
            found = Counter(plan.labels[index] for index in indices)
            counts[split] = tuple(found[label] for label in enough)
    good = [infos[index] for index in plan.good(infos) if plan.labels[index] in enough]
    bad = [*layout.bad, *(BadFile(info.path, info.problem) for info in infos if info.problem)]
    bad += _conflicts(plan, infos)
    same = defaultdict(list)
    for info in good:
        same[info.picture].append(info.path)
    copies = [tuple(paths) for paths in same.values() if len(paths) > 1]
    return Scan(
        path=layout.path,
        layout=layout.kind,
        classes=classes,
        counts=counts,
        held_out=plan.rules.test_share if plan.makes_test else None,
        sizes=tuple(Counter((info.width, info.height) for info in good).most_common()),
        modes=dict(Counter(info.mode for info in good).most_common()),
        shape=decoded.shape,
        reduced=sum(info.reduced for info in infos),
        bad=tuple(sorted(bad, key=lambda file: file.path)),
        others=tuple(layout.others),
        duplicates=tuple(copies),
        leaks=tuple(plan.named_leaks(plan.whole(infos), infos)),
        dropped=plan.rules.drop_leaks,
        left_out=tuple(_left_out(plan, infos)),
        few=tuple(_too_few(classes, counts, plan.rules.test_share if plan.makes_test else None)),
    )


def _conflicts(plan: SplitPlan, infos: Sequence[FileInfo]) -> Iterable[BadFile]:
    files = plan.layout.files
    for index, other in plan.conflicts(infos).items():
        yield BadFile(
            files[index].path,
            f"is of class {files[index].label!r} and, as {shown(files[other].path)}, of class "
            f"{files[other].label!r}: a picture can have one class; remove one of them",
        )


def _left_out(plan: SplitPlan, infos: Sequence[FileInfo]) -> Iterable[str]:
    for name in plan.layout.skipped:
        yield f"class {name!r} is left out, as asked for"
    counts = plan.counts(infos)
    for label, name in enumerate(plan.layout.classes):
        if counts[label] < plan.rules.min_per_class:
            yield (
                f"class {name!r} is left out: {counts[label]:,} pictures, fewer than "
                f"{plan.rules.min_per_class:,}"
            )


def _too_few(
    classes: Sequence[str], counts: dict[str, tuple[int, ...]], share: float | None
) -> Iterable[str]:
    pictures = sum(counts["train"])
    left = pictures - round((share or 0) * pictures)
    if share and left < len(classes) < pictures and not any(counts["test"]):
        yield (
            f"a test share of {share:g} leaves {left:,} of {pictures:,} pictures to train on, too "
            f"few for {len(classes):,} classes"
        )
        return
    for label, name in enumerate(classes):
        train, test = counts["train"][label], counts["test"][label]
        if not train:
            yield f"class {name!r} has no picture to train on"
        elif not test and share:
            yield f"class {name!r} has too few pictures or groups to hold any out ({train})"
        elif not test:
            yield f"class {name!r} has no picture to test on"
