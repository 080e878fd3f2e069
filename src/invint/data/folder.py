"""A data set from a folder of pictures."""

import hashlib
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from invint.data.cache import Decoded, Seen, Shape, cached, user_cache
from invint.data.dataset import Dataset, Progress, Split, holdout
from invint.data.listing import PARTS, Bad, Entry, Layout, read_layout
from invint.data.pictures import check_request, shown
from invint.errors import ConfigError, DataError


class SplitPlan:
    """Which picture goes into which part.

    Args:
        layout: The files, with the splits the folder gives itself.
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Of the pictures held out then.
    """

    def __init__(self, layout: Layout, seed: int, test_share: float) -> None:
        self.layout, self.seed, self.share = layout, seed, test_share
        self.makes_test = all(entry.split != "test" for entry in layout.entries)
        number = {name: label for label, name in enumerate(layout.classes)}
        self.labels = [number[entry.label] for entry in layout.entries]
        self.chosen: tuple[tuple[list[int], list[int] | None], set[int]] | None = None

    @property
    def key(self) -> str:
        """Hash of everything the plan depends on."""
        told = ", ".join(repr(entry[:4]) for entry in self.layout.entries)
        text = f"([{told}], {self.layout.classes}, {self.seed}, {self.share})"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def arrange(self, seen: Sequence[Seen]) -> list[list[int]]:
        """Return the numbers of the good pictures for training, validation and test."""
        parts: dict[str, list[int]] = {part: [] for part in PARTS}
        for number, (entry, one) in enumerate(zip(self.layout.entries, seen, strict=True)):
            if not one.problem:
                parts[entry.split or "train"].append(number)
        if self.makes_test:
            held = self._held_out(parts["train"], undivided(self.layout.entries, seen))
            parts["test"] = [number for number in parts["train"] if number in held]
            parts["train"] = [number for number in parts["train"] if number not in held]
        return [parts[part] for part in PARTS]

    def _held_out(self, numbers: list[int], units: list[int] | None) -> set[int]:
        """Choose pictures for testing; the last choice is remembered, as it is often the same."""
        asked = (numbers, units)
        if self.chosen is None or self.chosen[0] != asked:
            self.chosen = asked, set(self._choose(numbers, units))
        return self.chosen[1]

    def _choose(self, numbers: list[int], units: list[int] | None) -> list[int]:
        """Choose pictures for testing among the classes that have enough of them."""
        own = defaultdict(set)
        for number in numbers:
            own[self.labels[number]].add(number if units is None else units[number])
        pool = [number for number in numbers if len(own[self.labels[number]]) > 1]
        classes = {self.labels[number] for number in pool}
        if not pool:
            return []
        groups = None if units is None else torch.tensor([units[number] for number in pool])
        share = max(self.share, len(classes) / len(pool))
        labels = torch.tensor([self.labels[number] for number in pool])
        try:
            _, held = holdout(labels, share, self.seed, name="folder", groups=groups)
        except DataError:
            return []  # groups too few or too large: the summary names the classes
        return [pool[number] for number in held.tolist()]


def undivided(entries: Sequence[Entry], seen: Sequence[Seen]) -> list[int] | None:
    """Number what must not be divided: groups, and pictures that are the same byte for byte."""
    digests = [one.digest for one in seen if one.digest]
    if len(set(digests)) == len(digests) and all(entry.group is None for entry in entries):
        return None
    parent: dict[Hashable, Hashable] = {}

    def top(key: Hashable) -> Hashable:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    keys: list[Hashable] = []
    for number, (entry, one) in enumerate(zip(entries, seen, strict=True)):
        own = ("group", entry.group) if entry.group is not None else ("file", number)
        if one.digest:
            parent[top(own)] = top(("digest", one.digest))
        keys.append(own)
    numbers: dict[Hashable, int] = {}
    units = [numbers.setdefault(top(key), len(numbers)) for key in keys]
    return units if len(numbers) < len(units) else None


BAD = "bad files"
SHOWN = 20  # lines of each list in a report, but the one of bad files
NAMED = 5  # bad files named in an error

KINDS = {  # Pillow's names of pixels, in words; each its own
    "1": "black and white",
    "L": "grey",
    "LA": "grey with transparency",
    "P": "palette",
    "RGB": "colour",
    "RGBA": "colour with transparency",
}


@dataclass(frozen=True)
class Scan:
    """What a folder of pictures holds.

    Attributes:
        path: The folder, or the CSV file that lists its pictures.
        layout: How the folder says what is what.
        classes: Names of the classes, in the order of the labels.
        counts: Good pictures of each class, by split.
        held_out: Share held out for testing, if the folder has no test split of its own.
        sizes: How many pictures have which width and height, the most frequent first.
        modes: How many pictures have which kind of pixels, by Pillow's names.
        shape: The side, channels and depth that all pictures are given.
        reduced: How many pictures lose depth: colour of sixteen bits a channel is read as eight.
        bad: Files that cannot be used, and why.
        others: Files that are no pictures and are passed over.
        duplicates: Pictures that are the same byte for byte, in sets.
        leaks: Those of them that lie in more than one split.
        conflicts: Those of them that lie in more than one class.
        few: Classes with too few pictures for the split, and what they lack.
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
    bad: tuple[Bad, ...]
    others: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]
    leaks: tuple[tuple[str, ...], ...]
    conflicts: tuple[tuple[str, ...], ...]
    few: tuple[str, ...]

    @property
    def images(self) -> int:
        """Number of good pictures."""
        return sum(map(sum, self.counts.values()))

    @property
    def imbalance(self) -> float:
        """How many times more pictures the largest class has than the smallest."""
        totals = [sum(column) for column in zip(*self.counts.values(), strict=True)]
        return max(totals) / min(totals) if min(totals) else math.inf

    @property
    def warnings(self) -> tuple[str, ...]:
        """One line for each thing that makes figures from this folder doubtful."""
        lines = [*self.few, *_alike(self.classes)]
        if self.leaks:
            lines.append(f"pictures that lie in more than one split (leakage): {len(self.leaks):,}")
        if self.conflicts:
            lines.append(f"pictures that lie in more than one class: {len(self.conflicts):,}")
        if self.reduced:
            lines.append(f"pictures in colour of 16 bits a channel, read as 8: {self.reduced:,}")
        return tuple(lines)

    def report(self) -> str:
        """Return everything as text."""
        side, channels, sixteen_bit = self.shape
        depth = "16" if sixteen_bit else "8"
        sizes = _counted({f"{width} x {height}": count for (width, height), count in self.sizes})
        colour = "grey" if channels == 1 else "colour"
        spread = f"the largest {self.imbalance:.1f} x the smallest"
        spread = spread if self.imbalance < math.inf else "some without a good picture"
        facts = [
            ("folder", f"{shown(str(self.path))}: {shown(self.layout)}"),
            ("pictures", f"{self.images:,} good, {len(self.bad):,} bad"),
            ("classes", f"{len(self.classes)}, {spread}"),
            ("sizes", sizes),
            ("pixels", _counted({KINDS.get(mode, mode): n for mode, n in self.modes.items()})),
            ("made into", f"{side} x {side}, {colour}, {depth} bits"),
            ("test", _test_line(self.held_out)),
        ]
        lines = [f"{name:<10}{value}" for name, value in facts]
        lines += ["", *self._table()]
        for title, items in self._lists():
            if items:
                most = len(items) if title == BAD else SHOWN
                lines += ["", f"{title} ({len(items):,})", *_listed(items, most)]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        columns = [part for part in PARTS if part in self.counts]
        width = max(5, *(len(name) for name in self.classes))
        rows = ["class".ljust(width) + "".join(f"{column:>12}" for column in columns)]
        for number, name in enumerate(self.classes):
            counts = (f"{self.counts[column][number]:>12,}" for column in columns)
            rows.append(name.ljust(width) + "".join(counts))
        return rows

    def _lists(self) -> list[tuple[str, list[str]]]:
        return [
            ("warnings", list(self.warnings)),
            (BAD, [str(bad) for bad in self.bad]),
            ("same picture in several splits", _sets(self.leaks)),
            ("same picture in several classes", _sets(self.conflicts)),
            ("same picture several times", _sets(self.duplicates)),
            ("other files, passed over", [shown(path) for path in self.others]),
        ]


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


def _test_line(held_out: float | None) -> str:
    if held_out is None:
        return "as the folder says"
    return f"{held_out:.0%} held out, by class; no group and no set of copies is divided"


def _sets(sets: Iterable[Sequence[str]]) -> list[str]:
    return [" = ".join(shown(path) for path in paths) for paths in sets]


def _listed(items: Sequence[str], most: int) -> list[str]:
    more = [f"  and {len(items) - most:,} more"] if len(items) > most else []
    return [*(f"  {item}" for item in items[:most]), *more]


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
    lacking = [line for line in scan.few if pooled or line.endswith("no picture to train on")]
    if lacking:
        raise DataError(f"{path}: {'; '.join(lacking[:SHOWN])}; add pictures or remove the class")


@dataclass(frozen=True, eq=False)
class Examined:
    """A folder with its pictures decoded.

    Attributes:
        plan: Its files, and the part each goes into.
        decoded: Its pictures.
        scan: What is to be said about it.
        units: For each file the number of what must not be divided: its group, and all copies of
            it; none if every picture stands alone.
    """

    plan: SplitPlan
    decoded: Decoded
    scan: Scan
    units: list[int] | None


def scan(
    path: Path,
    *,
    side: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Scan:
    """Look at every picture of a folder; the arguments are those of `load_folder`.

    What is decoded on the way is kept, so that `load_folder` with the same arguments is instant.
    """
    return examine(
        path, side=side, seed=seed, test_share=test_share, cache=cache, progress=progress
    ).scan


def examine(
    path: Path,
    *,
    side: int | None,
    seed: int,
    test_share: float,
    cache: Path | None,
    progress: Progress | None,
) -> Examined:
    """Decode a folder, or find it decoded, and gather what there is to say about it."""
    check_request(side)
    if not 0 < test_share < 1:
        raise ConfigError(f"folder: expected a test share between 0 and 1, got {test_share}")
    layout = read_layout(path)
    plan = SplitPlan(layout, seed, test_share)
    decoded = cached(
        layout.root,
        layout.entries,
        plan.arrange,
        place=cache or user_cache(layout.root, f"{layout.kind} {side} {seed} {test_share}"),
        key=plan.key,
        side=side,
        progress=progress,
    )
    units = undivided(layout.entries, decoded.seen)
    return Examined(plan, decoded, _summary(path, plan, decoded), units)


def _summary(path: Path, plan: SplitPlan, decoded: Decoded) -> Scan:
    layout, seen = plan.layout, decoded.seen
    splits = {n: part for part, some in zip(PARTS, decoded.parts, strict=True) for n in some}
    copies = _copies(seen)
    sizes = Counter((one.width, one.height) for one in seen if not one.problem)
    bad = [*layout.bad, *(Bad(one.path, one.problem) for one in seen if one.problem)]
    counts = {
        part: _class_counts(plan, some)
        for part, some in zip(PARTS, decoded.parts, strict=True)
        if some or part != "validation"
    }
    return Scan(
        path=path,
        layout=layout.kind,
        classes=tuple(layout.classes),
        counts=counts,
        held_out=plan.share if plan.makes_test else None,
        sizes=tuple(sizes.most_common()),
        modes=dict(Counter(one.mode for one in seen if not one.problem).most_common()),
        shape=decoded.shape,
        reduced=sum(one.reduced for one in seen),
        bad=tuple(sorted(bad, key=lambda one: one.path)),
        others=tuple(layout.others),
        duplicates=_paths(seen, copies),
        leaks=_paths(seen, [some for some in copies if len({splits[n] for n in some}) > 1]),
        conflicts=_paths(
            seen, [some for some in copies if len({plan.labels[n] for n in some}) > 1]
        ),
        few=tuple(_too_few(layout.classes, counts, plan.makes_test)),
    )


def _copies(seen: Sequence[Seen]) -> list[list[int]]:
    """Return the numbers of good pictures that are the same byte for byte, in sets."""
    times = Counter(one.digest for one in seen if not one.problem)
    same: dict[str, list[int]] = {digest: [] for digest, count in times.items() if count > 1}
    for number, one in enumerate(seen):
        if not one.problem and one.digest in same:
            same[one.digest].append(number)
    return list(same.values())


def _paths(seen: Sequence[Seen], sets: Iterable[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(seen[number].path for number in numbers) for numbers in sets)


def _class_counts(plan: SplitPlan, numbers: Sequence[int]) -> tuple[int, ...]:
    counts = Counter(plan.labels[number] for number in numbers)
    return tuple(counts[label] for label in range(len(plan.layout.classes)))


def _too_few(
    classes: Sequence[str], counts: dict[str, tuple[int, ...]], makes_test: bool
) -> Iterable[str]:
    for number, name in enumerate(classes):
        train, test = counts["train"][number], counts["test"][number]
        if not train:
            yield f"class {name!r} has no picture to train on"
        elif not test and makes_test:
            yield f"class {name!r} has too few pictures or groups to hold any out ({train})"
        elif not test:
            yield f"class {name!r} has no picture to test on"


def load_folder(
    path: Path,
    *,
    skip_bad: bool = False,
    side: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read a folder of pictures, or a CSV file that lists them.

    The pictures are decoded once and kept; the images of the data set are mapped from that file,
    so that a folder larger than memory works and a second start is instant.

    Args:
        path: A folder in one of the layouts of `read_layout`, or a CSV file.
        skip_bad: Leave bad files out; otherwise they stop the reading, with a list of them.
        side: Even side of the squares all pictures are fitted into; chosen if not given.
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Of the pictures held out then.
        cache: Folder for the decoded pictures of this folder alone; one in the user's cache folder
            if not given.
        progress: Called with the number of files decoded and the number of all.
    """
    examined = examine(
        path, side=side, seed=seed, test_share=test_share, cache=cache, progress=progress
    )
    refuse(examined.scan, skip_bad=skip_bad)
    return _dataset(examined)


def _dataset(examined: Examined) -> Dataset:
    layout, labels, decoded = examined.plan.layout, examined.plan.labels, examined.decoded
    parts: dict[str, Split] = {}
    start = 0
    for name, rows in zip(PARTS, decoded.parts, strict=True):
        units = examined.units
        parts[name] = Split(
            decoded.images[start : start + len(rows)],
            torch.tensor([labels[row] for row in rows], dtype=torch.int64),
            None if units is None else torch.tensor([units[row] for row in rows]),
        )
        start += len(rows)
    return Dataset(
        name=f"folder:{layout.root.name}",
        train=parts["train"],
        test=parts["test"],
        class_names=tuple(layout.classes),
        validation=parts["validation"] if len(parts["validation"]) else None,
        note="; ".join(examined.scan.warnings),
    )
