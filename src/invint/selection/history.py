"""What a run logged about its selection, and how much several runs agree."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from safetensors import SafetensorError, safe_open

from invint.errors import DataError
from invint.nn.monomials import Monomials

TABLES = ("distances", "angles", "exponents")


@dataclass(frozen=True)
class SelectionStep:
    """One step of a selection.

    Attributes:
        epoch: When it was.
        step: Training steps done by then.
        method: How the scores were found.
        indices: The monomials before it, by their indices at the start of the run.
        scores: One for each of them.
        kept: The survivors, by their indices at the start of the run.
        monomials: The survivors, with exponents as they were then.
    """

    epoch: float
    step: int
    method: str
    indices: tuple[int, ...]
    scores: tuple[float, ...]
    kept: tuple[int, ...]
    monomials: Monomials

    @property
    def ranks(self) -> dict[int, int]:
        """The rank of each monomial, by its index at the start; the highest score has rank 1."""
        scored = sorted(zip(self.scores, self.indices, strict=True), key=lambda pair: -pair[0])
        return {index: rank for rank, (_, index) in enumerate(scored, start=1)}


@dataclass(frozen=True)
class History:
    """The selection of a run.

    Attributes:
        run: Its folder.
        start: The monomials it started with; of `lse`, those before the exchange.
        steps: What was done, in order.
        trained: The monomials of the final network; `None` before the run is complete.
    """

    run: Path
    start: Monomials
    steps: tuple[SelectionStep, ...]
    trained: Monomials | None

    @property
    def first(self) -> Monomials:
        """The monomials that scores and indices are about, as the network first had them."""
        exchanged = self.steps and self.steps[0].method == "lse"
        return self.steps[0].monomials if exchanged else self.start

    @property
    def survivors(self) -> tuple[int, ...]:
        """The monomials left, by their indices at the start."""
        return self.steps[-1].kept if self.steps else tuple(range(len(self.start)))

    @property
    def final(self) -> Monomials:
        """The monomials left, as trained, or as they were at the last step."""
        if self.trained is not None:
            return self.trained
        return self.steps[-1].monomials if self.steps else self.start


def selection_event(
    *,
    epoch: float,
    step: int,
    method: str,
    scores: Sequence[float],
    kept: Sequence[int],
    monomials: Monomials,
    start: Monomials | None = None,
) -> dict[str, Any]:
    """Return the line of the log about one step of a selection, as plain data.

    Args:
        epoch: When it was.
        step: Training steps done by then.
        method: How the scores were found.
        scores: One for each monomial before it.
        kept: Indices of the survivors, among the monomials before it.
        monomials: The survivors.
        start: All monomials before it; to be given with the first step.
    """
    event: dict[str, Any] = {"event": "selection", "epoch": epoch, "step": step, "method": method}
    event |= {"kept": list(kept), "scores": list(scores), "monomials": monomials.to_dict()}
    return event if start is None else event | {"start": start.to_dict()}


def history_of(run: Path, log: Sequence[dict[str, Any]], trained: Monomials | None) -> History:
    """Return the selection of a run, complete or not.

    Args:
        run: Folder of the run.
        log: The entries of its log.
        trained: The monomials of the final network; `None` if there is none.
    """
    try:
        events, drawn = _events(log)
        start = trained if drawn is None else drawn
        if events:
            start = Monomials.from_dict(events[0]["start"])
        steps = () if start is None else _steps(events, len(start))
    except (IndexError, KeyError, TypeError, ValueError) as error:  # a ConfigError among them
        raise DataError(f"{run}: a selection in its log is damaged ({error!r})") from error
    if start is None:
        raise DataError(
            f"{run}: neither its log nor its model has monomials; expected the folder of a run "
            "with the head 'monomials'"
        )
    if steps and trained is not None and len(trained) != len(steps[-1].kept):
        raise DataError(
            f"{run}: the log ends with {len(steps[-1].kept)} monomials, the model has "
            f"{len(trained)}; they are not of one run"
        )
    return History(run, start, steps, trained)


def _events(log: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], Monomials | None]:
    """Return the selections in order, and the monomials drawn where none was selected."""
    # A resumed run may repeat a selection: the later entry counts. Several may fall on one step,
    # which the number of monomials before them tells apart.
    events: dict[tuple[int, int], dict[str, Any]] = {}
    drawn = None
    for entry in log:
        if entry.get("event") == "selection":
            events[entry["step"], -len(entry["scores"])] = entry
        elif entry.get("event") == "monomials":
            drawn = Monomials.from_dict(entry["start"])
    return [events[step] for step in sorted(events)], drawn


def _steps(events: Sequence[dict[str, Any]], count: int) -> tuple[SelectionStep, ...]:
    steps = []
    alive = tuple(range(count))
    for event in events:
        scores = tuple(map(float, event["scores"]))
        kept = tuple(alive[index] for index in event["kept"])
        monomials = Monomials.from_dict(event["monomials"])
        if len(scores) != len(alive) or len(monomials) != len(kept):
            raise ValueError(f"{len(scores)} scores of {len(alive)} monomials, {len(kept)} kept")
        when = float(event["epoch"]), int(event["step"]), str(event["method"])
        steps.append(SelectionStep(*when, alive, scores, kept, monomials))
        alive = kept
    return tuple(steps)


def trained_monomials(path: Path) -> Monomials | None:
    """Return the monomials among the tensors of a network's file, if it has any."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.endswith("exponents")]  # noqa: SIM118
            if not names:
                return None
            stem = min(names).removesuffix("exponents")  # of several depths, the last map
            tables = {name: file.get_tensor(stem + name).tolist() for name in TABLES}
    except SafetensorError as error:
        raise DataError(f"{path}: it is not a safetensors file, or only a part of one") from error
    return Monomials.from_dict(tables)


Combination = tuple[float, ...]


def combinations_of(monomials: Monomials) -> list[Combination]:
    """Return the distances of each monomial regardless of their order."""
    return [tuple(sorted(row)) for row in monomials.distances]


def overlap(first: Monomials, second: Monomials) -> float:
    """Return the fraction of common combinations of distances: |A ∩ B| / |A ∪ B|, with repeats."""
    return _overlap(combinations_of(first), combinations_of(second))


def chance_overlap(first: History, second: History, *, draws: int = 200) -> float:
    """Return the overlap of as many monomials drawn at random from what each run started with."""
    generator = random.Random(0)
    pools = [combinations_of(each.start) for each in (first, second)]
    counts = [len(each.survivors) for each in (first, second)]
    return mean(
        _overlap(generator.sample(pools[0], counts[0]), generator.sample(pools[1], counts[1]))
        for _ in range(draws)
    )


def rank_correlation(first: History, second: History) -> float | None:
    """Return Spearman's rank correlation of the scores at the first step of two runs.

    Compared are combinations of distances that both started with; one that occurs more than once
    counts with the mean of its scores. None with fewer than three in common, or if all are equal.
    """
    scores = [_score_by_combination(each) for each in (first, second)]
    common = sorted(scores[0].keys() & scores[1].keys())
    values = [[each[combination] for combination in common] for each in scores]
    if len(common) < 3 or any(len(set(row)) == 1 for row in values):
        return None
    from scipy.stats import spearmanr  # slow to import

    return float(spearmanr(*values).statistic)


def _overlap(first: Sequence[Combination], second: Sequence[Combination]) -> float:
    counted = Counter(first), Counter(second)
    return (counted[0] & counted[1]).total() / (counted[0] | counted[1]).total()


def _score_by_combination(history: History) -> dict[Combination, float]:
    if not history.steps:
        return {}
    found: defaultdict[Combination, list[float]] = defaultdict(list)
    for combination, score in zip(
        combinations_of(history.first), history.steps[0].scores, strict=True
    ):
        found[combination].append(score)
    return {combination: mean(values) for combination, values in found.items()}
