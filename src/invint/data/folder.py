"""A data set from a folder of pictures: its splits, what there is to say about it, its images."""

import hashlib
import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from invint.data.cache import Arrangement, Decoded, FileInfo, Shape, cached, user_cache
from invint.data.dataset import Dataset, Progress, Split, holdout
from invint.data.listing import SPLITS, BadFile, Layout, ListedFile, read_layout
from invint.data.pictures import check_request, shown
from invint.errors import ConfigError, DataError

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


def load_folder(
    path: Path | Layout,
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
    so that a folder larger than memory works and a second start is instant. Another seed or test
    fraction copies what is decoded into another order.

    Args:
        path: A folder in one of the layouts of `read_layout`, or a CSV file; or what `read_layout`
            made of it, which is then not listed again.
        skip_bad: Leave bad files out; otherwise they stop the reading, with a list of them.
        side: Even side of the squares all pictures are fitted into; chosen if not given.
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Fraction of the pictures held out then.
        cache: Folder for the decoded pictures of this folder alone; one in the user's cache folder
            if not given.
        progress: Called with the number of files decoded and the number of all.
    """
    plan = _plan(path, side, seed, test_share)
    decoded = _decoded(plan, side, cache, progress)
    found = _summary(plan, decoded)
    refuse(found, skip_bad=skip_bad)
    return _dataset(plan, decoded, note="; ".join(found.warnings))


def scan(
    path: Path | Layout,
    *,
    side: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> "Scan":
    """Look at every picture of a folder; the arguments are those of `load_folder`.

    What is decoded on the way is kept, so that `load_folder` in the same shape decodes nothing.
    """
    plan = _plan(path, side, seed, test_share)
    return _summary(plan, _decoded(plan, side, cache, progress))


def _plan(path: Path | Layout, side: int | None, seed: int, test_share: float) -> "SplitPlan":
    """Check what is asked, then list the folder, unless it is already."""
    check_request(side)
    if not 0 < test_share < 1:
        raise ConfigError(f"folder: expected a test share between 0 and 1, got {test_share}")
    layout = path if isinstance(path, Layout) else read_layout(path)
    return SplitPlan(layout, seed, test_share)


def _decoded(
    plan: "SplitPlan", side: int | None, cache: Path | None, progress: Progress | None
) -> Decoded:
    """Decode a folder, or find it decoded."""
    layout = plan.layout
    place = cache or user_cache(layout.root, layout.kind)
    arrangement = Arrangement(plan.name, plan.key, plan.arrange)
    return cached(layout.root, layout.files, arrangement, place=place, side=side, progress=progress)


def _dataset(plan: "SplitPlan", decoded: Decoded, note: str) -> Dataset:
    units = _undivided(plan.layout.files, decoded.infos)
    splits: dict[str, Split] = {}
    start = 0
    for name, indices in zip(SPLITS, decoded.splits, strict=True):
        splits[name] = Split(
            decoded.images[start : start + len(indices)],
            torch.tensor([plan.labels[index] for index in indices], dtype=torch.int64),
            None if units is None else torch.tensor([units[index] for index in indices]),
        )
        start += len(indices)
    return Dataset(
        name=f"folder:{plan.layout.root.name}",
        train=splits["train"],
        test=splits["test"],
        class_names=tuple(plan.layout.classes),
        validation=splits["validation"] if len(splits["validation"]) else None,
        note=note,
    )


class SplitPlan:
    """Which picture goes into which split.

    Args:
        layout: The files, with the splits the folder gives itself.
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Fraction of the pictures held out then.
    """

    def __init__(self, layout: Layout, seed: int, test_share: float) -> None:
        self.layout, self.seed, self.share = layout, seed, test_share
        self.makes_test = all(file.split != "test" for file in layout.files)
        label_of = {name: label for label, name in enumerate(layout.classes)}
        self.labels = [label_of[file.label] for file in layout.files]
        self._last: tuple[tuple[list[int], list[int] | None], set[int]] | None = None

    @property
    def name(self) -> str:
        """What decides the split, besides the files: nothing if the folder does."""
        return f"seed {self.seed}, {self.share}" if self.makes_test else "as the folder says"

    @property
    def key(self) -> str:
        """Hash of everything the plan depends on but the content of the files."""
        files = ", ".join(repr(file[:4]) for file in self.layout.files)
        text = f"([{files}], {self.layout.classes}, {self.name})"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def arrange(self, infos: Sequence[FileInfo]) -> list[list[int]]:
        """Return the indices of the good pictures for training, validation and test."""
        splits: dict[str, list[int]] = {name: [] for name in SPLITS}
        for index, (file, info) in enumerate(zip(self.layout.files, infos, strict=True)):
            if not info.problem:
                splits[file.split or "train"].append(index)
        if self.makes_test:
            held = self._held_out(splits["train"], _undivided(self.layout.files, infos))
            splits["test"] = [index for index in splits["train"] if index in held]
            splits["train"] = [index for index in splits["train"] if index not in held]
        return [splits[name] for name in SPLITS]

    def _held_out(self, indices: list[int], units: list[int] | None) -> set[int]:
        """Choose pictures for testing; the last choice is remembered, as it is often the same."""
        asked = (indices, units)
        if self._last is None or self._last[0] != asked:
            self._last = asked, set(self._choose(indices, units))
        return self._last[1]

    def _choose(self, indices: list[int], units: list[int] | None) -> list[int]:
        """Choose pictures for testing among the classes that have enough of them."""
        units_of = defaultdict(set)
        for index in indices:
            units_of[self.labels[index]].add(index if units is None else units[index])
        pool = [index for index in indices if len(units_of[self.labels[index]]) > 1]
        classes = {self.labels[index] for index in pool}
        if not pool:
            return []
        groups = None if units is None else torch.tensor([units[index] for index in pool])
        fraction = max(self.share, len(classes) / len(pool))
        labels = torch.tensor([self.labels[index] for index in pool])
        try:
            _, held = holdout(labels, fraction, self.seed, name="folder", groups=groups)
        except DataError:
            return []  # groups too few or too large: the summary names the classes
        return [pool[index] for index in held.tolist()]


def _undivided(files: Sequence[ListedFile], infos: Sequence[FileInfo]) -> list[int] | None:
    """Return for each file the index of the unit that must not be divided.

    A unit is a group with all copies of its pictures, byte for byte, and the groups of these
    copies, and so on; None if every picture stands alone.
    """
    digests = [info.digest for info in infos if info.digest]
    if len(set(digests)) == len(digests) and all(file.group is None for file in files):
        return None
    # Union-find over groups, files and digests: what shares a root is one unit.
    parent: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    keys: list[Hashable] = []
    for index, (file, info) in enumerate(zip(files, infos, strict=True)):
        own = ("group", file.group) if file.group is not None else ("file", index)
        if info.digest:
            parent[root(own)] = root(("digest", info.digest))
        keys.append(own)
    index_of: dict[Hashable, int] = {}
    units = [index_of.setdefault(root(key), len(index_of)) for key in keys]
    return units if len(index_of) < len(units) else None


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
    bad: tuple[BadFile, ...]
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
        columns = [split for split in SPLITS if split in self.counts]
        width = max(5, *(len(name) for name in self.classes))
        rows = ["class".ljust(width) + "".join(f"{column:>12}" for column in columns)]
        for label, name in enumerate(self.classes):
            counts = (f"{self.counts[column][label]:>12,}" for column in columns)
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


def _summary(plan: SplitPlan, decoded: Decoded) -> Scan:
    layout, infos = plan.layout, decoded.infos
    by_split = dict(zip(SPLITS, decoded.splits, strict=True))
    split_of = {index: split for split, indices in by_split.items() for index in indices}
    copies = _copies(infos)
    good = [info for info in infos if not info.problem]
    bad = [*layout.bad, *(BadFile(info.path, info.problem) for info in infos if info.problem)]
    counts = {
        split: _class_counts(plan, indices)
        for split, indices in by_split.items()
        if indices or split != "validation"
    }
    leaks = [same for same in copies if len({split_of[index] for index in same}) > 1]
    conflicts = [same for same in copies if len({plan.labels[index] for index in same}) > 1]
    return Scan(
        path=layout.path,
        layout=layout.kind,
        classes=tuple(layout.classes),
        counts=counts,
        held_out=plan.share if plan.makes_test else None,
        sizes=tuple(Counter((info.width, info.height) for info in good).most_common()),
        modes=dict(Counter(info.mode for info in good).most_common()),
        shape=decoded.shape,
        reduced=sum(info.reduced for info in infos),
        bad=tuple(sorted(bad, key=lambda file: file.path)),
        others=tuple(layout.others),
        duplicates=_paths(infos, copies),
        leaks=_paths(infos, leaks),
        conflicts=_paths(infos, conflicts),
        few=tuple(_too_few(layout.classes, counts, plan.makes_test)),
    )


def _copies(infos: Sequence[FileInfo]) -> list[list[int]]:
    """Return the indices of good pictures that are the same byte for byte, in sets."""
    same = defaultdict(list)
    for index, info in enumerate(infos):
        if not info.problem:
            same[info.digest].append(index)
    return [indices for indices in same.values() if len(indices) > 1]


def _paths(infos: Sequence[FileInfo], sets: Iterable[Sequence[int]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(infos[index].path for index in indices) for indices in sets)


def _class_counts(plan: SplitPlan, indices: Sequence[int]) -> tuple[int, ...]:
    counts = Counter(plan.labels[index] for index in indices)
    return tuple(counts[label] for label in range(len(plan.layout.classes)))


def _too_few(
    classes: Sequence[str], counts: dict[str, tuple[int, ...]], makes_test: bool
) -> Iterable[str]:
    for label, name in enumerate(classes):
        train, test = counts["train"][label], counts["test"][label]
        if not train:
            yield f"class {name!r} has no picture to train on"
        elif not test and makes_test:
            yield f"class {name!r} has too few pictures or groups to hold any out ({train})"
        elif not test:
            yield f"class {name!r} has no picture to test on"
