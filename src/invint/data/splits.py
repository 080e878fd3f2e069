"""Which picture of a folder goes into which split; no group and no set of copies is divided."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeVar

import torch

from invint.data.dataset import holdout
from invint.data.listing import SPLITS, Layout
from invint.data.pictures import shown
from invint.errors import ConfigError, InvintError


class FileInfo(NamedTuple):
    """What one file turned out to be.

    Attributes:
        path: Relative to the folder.
        size: In bytes.
        modified: When it was last written, in nanoseconds.
        digest: Hash of its bytes; empty if it could not be read.
        width: Of the picture, as stored.
        height: Of the picture, as stored.
        mode: Pillow's name for its kind of pixels.
        reduced: Whether sixteen bits a channel became eight.
        problem: Why it cannot be used; empty for a good picture.
        pixels: Hash of its pixels, if other files may have the same.
    """

    path: str
    size: int
    modified: int
    digest: str = ""
    width: int = 0
    height: int = 0
    mode: str = ""
    reduced: bool = False
    problem: str = ""
    pixels: str = ""

    @property
    def picture(self) -> str:
        """What is the same for files that show the same pixels."""
        return self.pixels or self.digest


Item = TypeVar("Item", bound=Hashable)  # what tells pictures apart
UNKNOWN = FileInfo("", 0, 0)  # of a file that has not been looked at


@dataclass(frozen=True, kw_only=True)
class SplitRules:
    """What decides the splits besides the folder.

    Attributes:
        seed: Of the pictures held out for testing, where the folder has no test split.
        test_share: Fraction of the pictures held out then.
        drop_leaks: Leave pictures out of training that are in the test split too.
        min_per_class: Leave classes out that have fewer good pictures.
    """

    seed: int = 0
    test_share: float = 0.2
    drop_leaks: bool = False
    min_per_class: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.test_share < 1:
            raise ConfigError(
                f"folder: expected a test share between 0 and 1, got {self.test_share}"
            )
        if self.min_per_class < 0:
            raise ConfigError(
                f"folder: expected min_per_class of 0 or more, got {self.min_per_class}"
            )


class Leak(NamedTuple):
    """A picture to learn from that says what a later split should not know yet.

    Attributes:
        path: Of the picture.
        split: That it is in.
        partner: A picture of a later split that is the same, or of the same group.
        partner_split: The split of that one.
        group: What both are of, if they are not the same.
    """

    path: str
    split: str
    partner: str
    partner_split: str
    group: str | None

    def __str__(self) -> str:
        one, other = (
            f"{shown(path)} ({split})"
            for path, split in ((self.path, self.split), (self.partner, self.partner_split))
        )
        if self.group is None:
            return f"{one} = {other}"
        return f"{one} and {other} are both of group '{shown(self.group)}'"


def leak_note(leaks: Sequence[Leak], *, dropped: bool) -> str:
    """Return one line about leaks, with the first of them by name; empty if there are none."""
    if not leaks:
        return ""
    if dropped:
        return f"pictures left out because they leak: {len(leaks):,}"
    others = f" and {len(leaks) - 1:,} more" if len(leaks) > 1 else ""
    return f"leakage: {leaks[0]}{others}; --drop-leaks leaves such pictures out"


def find_leaks(
    splits: Sequence[Sequence[Item]], tells: Callable[[Item], tuple[str, Hashable | None]]
) -> dict[Item, Item]:
    """Return the pictures that a later split knows, each with one of those that give it away.

    Args:
        splits: Training first, the test last.
        tells: Returns what is the same for the same picture, and the group of a picture if any.
    """
    found: dict[Item, Item] = {}
    first: dict[tuple[bool, Hashable], Item] = {}
    for indices in reversed(splits):
        later = dict(first)
        for index in indices:
            picture, group = tells(index)
            for key in ((False, picture), (True, group)):
                if key in later and index not in found and key[1] is not None:
                    found[index] = later[key]
                first.setdefault(key, index)
    return found


class SplitPlan:
    """Which picture goes into which split.

    Args:
        layout: The files, with the splits the folder gives itself.
        rules: What decides besides.
    """

    def __init__(self, layout: Layout, rules: SplitRules) -> None:
        self.layout, self.rules = layout, rules
        self.makes_test = all(file.split != "test" for file in layout.files)
        label_of = {name: label for label, name in enumerate(layout.classes)}
        self.labels = [label_of[file.label] for file in layout.files]

    @property
    def name(self) -> str:
        """What decides the split, besides the files."""
        rules = self.rules
        own = f"seed {rules.seed}, {rules.test_share}" if self.makes_test else "as the folder says"
        own += ", leaks dropped" * rules.drop_leaks
        return own + f", {rules.min_per_class} a class" * (rules.min_per_class > 0)

    @cached_property
    def key(self) -> str:
        """Hash of everything the plan depends on but the content of the files."""
        files = ", ".join(repr(file[:4]) for file in self.layout.files)
        text = f"([{files}], {self.layout.classes}, {self.name})"
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()

    def arrange(self, infos: Sequence[FileInfo]) -> list[list[int]]:
        """Return the indices of the good pictures for training, validation and test."""
        splits = self.whole(infos)
        if not self.rules.drop_leaks:
            return splits
        leaks = self.leaks(splits, infos)
        return [[index for index in indices if index not in leaks] for indices in splits]

    def likely_order(self) -> list[int]:
        """Return the indices of all files, in the order of `arrange` if all are good and differ."""
        order = [*chain(*self.whole([UNKNOWN] * len(self.layout.files)))]
        return order + sorted(set(range(len(self.layout.files))) - set(order))

    def whole(self, infos: Sequence[FileInfo]) -> list[list[int]]:
        """Return the same with the leaks that may be in it."""
        splits: dict[str, list[int]] = {name: [] for name in SPLITS}
        enough = self.enough(infos)
        for index in self.good(infos):
            if self.labels[index] in enough:
                splits[self.layout.files[index].split or "train"].append(index)
        if self.makes_test:
            held = self._held_out(splits["train"], self.units(infos))
            splits["test"] = [index for index in splits["train"] if index in held]
            splits["train"] = [index for index in splits["train"] if index not in held]
        return [splits[name] for name in SPLITS]

    def good(self, infos: Sequence[FileInfo]) -> list[int]:
        """Return the indices of the pictures that can be used."""
        conflicts = self.conflicts(infos)
        return [
            index for index, info in enumerate(infos) if not info.problem and index not in conflicts
        ]

    def conflicts(self, infos: Sequence[FileInfo]) -> dict[int, int]:
        """Return the pictures that lie in several classes, each with one in another class."""
        found: dict[int, int] = {}
        labelled: dict[str, dict[int, int]] = defaultdict(dict)
        for index, info in enumerate(infos):
            labelled[info.picture].setdefault(self.labels[index], index)
        for index, info in enumerate(infos):
            others = [
                i for label, i in labelled[info.picture].items() if label != self.labels[index]
            ]
            if others and info.picture:
                found[index] = others[0]
        return found

    def counts(self, infos: Sequence[FileInfo]) -> list[int]:
        """Return the number of good pictures of each class."""
        found = Counter(self.labels[index] for index in self.good(infos))
        return [found[label] for label in range(len(self.layout.classes))]

    def enough(self, infos: Sequence[FileInfo]) -> list[int]:
        """Return the labels of the classes that are not left out for having too few pictures."""
        counts = self.counts(infos)
        return [label for label, n in enumerate(counts) if n >= self.rules.min_per_class]

    def leaks(self, splits: list[list[int]], infos: Sequence[FileInfo]) -> dict[int, int]:
        """Return the pictures that a later split has too, each with one of those it has there.

        Later than training is validation, and later than that the test. A split has a picture too
        if it has one with the same pixels, or one of the same group.
        """
        groups = [file.group for file in self.layout.files]
        return find_leaks(splits, lambda index: (infos[index].picture, groups[index]))

    def named_leaks(self, splits: list[list[int]], infos: Sequence[FileInfo]) -> list[Leak]:
        """Return the leaks by name, in the order of the paths."""
        split_of = {
            index: name for name, some in zip(SPLITS, splits, strict=True) for index in some
        }
        return [
            Leak(
                infos[index].path,
                split_of[index],
                infos[partner].path,
                split_of[partner],
                None
                if infos[index].picture == infos[partner].picture
                else self.layout.files[index].group,
            )
            for index, partner in sorted(self.leaks(splits, infos).items())
        ]

    def _held_out(self, indices: list[int], units: list[int] | None) -> set[int]:
        """Choose pictures for testing among the classes that have enough of them."""
        units_of = defaultdict(set)
        for index in indices:
            units_of[self.labels[index]].add(index if units is None else units[index])
        pool = [index for index in indices if len(units_of[self.labels[index]]) > 1]
        if not pool:
            return set()
        labels = torch.tensor([self.labels[index] for index in pool])
        groups = None if units is None else torch.tensor([units[index] for index in pool])
        fraction = max(self.rules.test_share, len(set(labels.tolist())) / len(pool))
        try:
            _, held = holdout(labels, fraction, self.rules.seed, name="folder", groups=groups)
        except InvintError:
            return set()  # groups too few or too large: the summary names the classes
        return {pool[index] for index in held.tolist()}

    def units(self, infos: Sequence[FileInfo]) -> list[int] | None:
        """Return for each file the index of the unit that must not be divided.

        A unit is a group with all copies of its pictures, byte for byte, and the groups of these
        copies, and so on; None if every picture stands alone. If leaks are dropped, files with the
        same pixels are copies too. (Otherwise they are not, so that splits stay what they were.)
        """
        copied = [info.picture if self.rules.drop_leaks else info.digest for info in infos]
        digests = [digest for digest in copied if digest]
        if len(set(digests)) == len(digests) and all(f.group is None for f in self.layout.files):
            return None
        # Union-find over groups, files and digests: what shares a root is one unit.
        parent: dict[Hashable, Hashable] = {}

        def root(key: Hashable) -> Hashable:
            while parent.setdefault(key, key) != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        keys: list[Hashable] = []
        for index, (file, digest) in enumerate(zip(self.layout.files, copied, strict=True)):
            own = ("group", file.group) if file.group is not None else ("file", index)
            if digest:
                parent[root(own)] = root(("digest", digest))
            keys.append(own)
        index_of: dict[Hashable, int] = {}
        units = [index_of.setdefault(root(key), len(index_of)) for key in keys]
        return units if len(index_of) < len(units) else None
