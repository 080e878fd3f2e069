"""Looking at every picture of a folder before anything is trained on it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from invint.data.cache import Decoded, cached, user_cache
from invint.data.dataset import Progress
from invint.data.findings import Scan
from invint.data.folder_split import SplitPlan, undivided
from invint.data.layout import read_layout
from invint.data.listing import PARTS, Bad
from invint.data.pictures import check_request
from invint.data.seen import Seen
from invint.errors import ConfigError


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
