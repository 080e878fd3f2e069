"""What a scan finds out about a folder of pictures, how it is told, and what stops a training."""

import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from invint.data.file_names import shown
from invint.data.listing import PARTS, Bad
from invint.data.seen import Shape
from invint.errors import DataError

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
