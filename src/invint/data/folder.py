"""A data set from a folder of pictures."""

from pathlib import Path

import torch

from invint.data.dataset import Dataset, Part, Progress
from invint.data.findings import refuse
from invint.data.listing import PARTS
from invint.data.scan import Examined, examine


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
    parts: dict[str, Part] = {}
    start = 0
    for name, rows in zip(PARTS, decoded.parts, strict=True):
        units = examined.units
        parts[name] = Part(
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
