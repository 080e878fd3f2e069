"""Which picture of a folder goes into which split; no group and no set of copies is divided."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from invint.data.dataset import holdout
from invint.data.listing import SPLITS, Layout
from invint.errors import DataError


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


UNKNOWN = FileInfo("", 0, 0)  # of a file that has not been looked at


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

    @property
    def name(self) -> str:
        """What decides the split, besides the files: nothing if the folder does."""
        return f"seed {self.seed}, {self.share}" if self.makes_test else "as the folder says"

    @cached_property
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
            held = self._held_out(splits["train"], self.units(infos))
            splits["test"] = [index for index in splits["train"] if index in held]
            splits["train"] = [index for index in splits["train"] if index not in held]
        return [splits[name] for name in SPLITS]

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
        fraction = max(self.share, len(set(labels.tolist())) / len(pool))
        try:
            _, held = holdout(labels, fraction, self.seed, name="folder", groups=groups)
        except DataError:
            return set()  # groups too few or too large: the summary names the classes
        return {pool[index] for index in held.tolist()}

    def units(self, infos: Sequence[FileInfo]) -> list[int] | None:
        """Return for each file the index of the unit that must not be divided.

        A unit is a group with all copies of its pictures, byte for byte, and the groups of these
        copies, and so on; None if every picture stands alone.
        """
        digests = [info.digest for info in infos if info.digest]
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
        for index, (file, info) in enumerate(zip(self.layout.files, infos, strict=True)):
            own = ("group", file.group) if file.group is not None else ("file", index)
            if info.digest:
                parent[root(own)] = root(("digest", info.digest))
            keys.append(own)
        index_of: dict[Hashable, int] = {}
        units = [index_of.setdefault(root(key), len(index_of)) for key in keys]
        return units if len(index_of) < len(units) else None
