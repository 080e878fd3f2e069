"""Comparisons of two recipes: how many seeds they need, and seeds added until one is decided.

The mathematics is in `invint.study.power`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from invint.errors import ConfigError
from invint.recipes import Recipe
from invint.study.grid import Cell
from invint.study.power import (
    check_points,
    deviation_bound,
    difference_at_any_time,
    seeds_for_width,
    seeds_to_see,
)
from invint.study.records import RunRecord
from invint.study.statistics import Difference, Spread, paired, spread
from invint.study.tables import baseline_of, errors_by_pair, interval_text


@dataclass(frozen=True)
class Comparison:
    """Two recipes at one number of training images.

    Attributes:
        first: The one.
        second: The one it is compared with.
        size: Number of training images.
    """

    first: Recipe
    second: Recipe
    size: int

    @property
    def label(self) -> str:
        """Both by what stands after the slash."""
        first, second = (each.name.partition("/")[2] for each in (self.first, self.second))
        return f"{first} − {second}"

    def errors(self, runs: Sequence[RunRecord]) -> list[dict[tuple[int, str], float]]:
        """Return the errors of both in percent, by what makes a pair."""
        hashes = (self.first.hash, self.second.hash)
        return [errors_by_pair([run for run in runs if run.hash == each]) for each in hashes]

    def difference(self, runs: Sequence[RunRecord]) -> Difference | None:
        """Return the difference so far, with an interval that may be looked at any time."""
        return difference_at_any_time(*self.errors(runs))

    def spread(self, runs: Sequence[RunRecord]) -> Spread | None:
        """Return how the paired differences at hand spread; `None` without a pair."""
        differences = paired(*self.errors(runs))
        return spread(differences) if differences else None


def comparisons(cells: Sequence[Cell], asked: str | None = None) -> list[Comparison]:
    """Return what is compared in a study: each recipe with pooling, or the two asked for.

    Args:
        cells: The runs of the study.
        asked: Two recipes with a comma between them, by name or what stands after the slash.
    """
    found = {}
    for cell in cells:
        found[cell.recipe.name, cell.size] = cell.recipe
    names = list(dict.fromkeys(name for name, _ in found))
    pairs = [(name, baseline_of(name)) for name in names]
    if asked is not None:
        pairs = [_two(asked, names)]
    sizes = dict.fromkeys(size for _, size in found)
    return [
        Comparison(found[first, size], found[second, size], size)
        for size in sizes
        for first, second in pairs
        if first != second and {(first, size), (second, size)} <= found.keys()
    ]


def _two(asked: str, names: Sequence[str]) -> tuple[str, str]:
    known = {name.partition("/")[2].removeprefix("settled-"): name for name in names}
    known |= {name.partition("/")[2]: name for name in names} | {name: name for name in names}
    both = [known.get(each.strip()) for each in asked.split(",")]
    if len(both) != 2 or None in both or both[0] == both[1]:
        raise ConfigError(
            f"--compare {asked}: expected two recipes of the study, as local-ws,pooling; "
            f"there are {', '.join(name.partition('/')[2] for name in names)}"
        )
    return both[0] or "", both[1] or ""


@dataclass(frozen=True)
class Outlook:
    """How many seeds a comparison will need.

    Attributes:
        comparison: Of what.
        at_hand: How the differences at hand spread; `None` without a pair.
        seeds: If they go on to do so; `None` where nothing can be said, or beyond thousands.
        most: If they deviate by as much as the pairs at hand allow; likewise.
    """

    comparison: Comparison
    at_hand: Spread | None
    seeds: int | None = None
    most: int | None = None


def outlook(
    comparison: Comparison,
    runs: Sequence[RunRecord],
    *,
    see: float | None = None,
    width: float | None = None,
) -> Outlook:
    """Say how many seeds will show a difference, or make the interval at any time narrow.

    Args:
        comparison: Of what.
        runs: Finished runs, from which it is known how differences spread.
        see: Size of the difference in percentage points.
        width: Of the interval, in percentage points, where no difference is given.
    """
    if see is not None:
        check_points("--see", see)  # also where there is nothing to compute
    at_hand = comparison.spread(runs)
    if at_hand is None or not at_hand.deviation:
        return Outlook(comparison, at_hand)
    bound = deviation_bound(at_hand.deviation, at_hand.count)
    if see is not None:
        seeds = [seeds_to_see(see, each) for each in (at_hand.deviation, bound)]
    else:
        seeds = [seeds_for_width(width or 0.0, each) for each in (at_hand.deviation, bound)]
    return Outlook(comparison, at_hand, *seeds)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """When a comparison is decided, and when it is given up.

    Attributes:
        comparison: Of what.
        width: Of its interval, in percentage points, that is narrow enough.
        seeds: The most pairs of runs.
        minutes: Of the clock, after which no seed is added.
    """

    comparison: Comparison
    width: float
    seeds: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        check_points("--width", self.width)
        if self.seeds is None and self.minutes is None:
            raise ConfigError("--width: say when to give up too, by --max-seeds or --minutes")
        if self.seeds is not None and self.seeds < 2:
            raise ConfigError(f"--max-seeds {self.seeds}: expected 2 or more")
        if self.minutes is not None and not self.minutes > 0:
            raise ConfigError(f"--minutes {self.minutes:g}: expected more than 0")

    def reached(self, runs: Sequence[RunRecord]) -> bool:
        """Say whether the interval is narrow enough; pairs that are all alike have none."""
        found = self.comparison.difference(runs)
        if found is None or found.low is None or found.high is None:
            return False
        return 0 < found.high - found.low <= self.width

    def spent(self, runs: Sequence[RunRecord], minutes: float) -> str:
        """Say which budget is spent, in words; nothing if none is."""
        found = self.comparison.difference(runs)
        if self.seeds is not None and found is not None and found.pairs >= self.seeds:
            return f"all of {self.seeds} seeds are used"
        if self.minutes is not None and minutes >= self.minutes:
            return f"the {self.minutes:g} minutes are over"
        return ""

    def next_cells(self, cells: Sequence[Cell], count: int = 1) -> list[Cell]:
        """Return the runs of the next seeds, of the two recipes alone."""
        wanted = (self.comparison.first.hash, self.comparison.second.hash)
        first = {cell.recipe.hash: cell for cell in reversed(cells) if cell.recipe.hash in wanted}
        start = 1 + max(cell.seed for cell in cells if cell.recipe.hash in wanted)
        return [
            replace(first[each], seed=seed)
            for seed in range(start, start + count)
            for each in wanted
        ]

    def verdict(self, runs: Sequence[RunRecord], minutes: float) -> str:
        """Say in a line what the comparison has come to."""
        found = self.comparison.difference(runs)
        place = f"{self.comparison.label} at {self.comparison.size:,} images"
        if found is None:
            return f"{place}: no pair of runs"
        why = "narrow enough" if self.reached(runs) else self.spent(runs, minutes)
        text = f"{place}, looked at after {found.pairs} seeds: {interval_text(found)}"
        return f"{text}; {why}" if why else text
