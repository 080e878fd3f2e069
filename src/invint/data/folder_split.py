"""Which pictures of a folder are trained on, chosen by and tested on, and which stay together."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch

from invint.data.listing import PARTS, Entry, Layout
from invint.data.seen import Seen
from invint.data.subsets import split
from invint.errors import DataError


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
            _, held = split(labels, share, self.seed, name="folder", groups=groups)
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
