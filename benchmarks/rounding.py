"""Compare runs with themselves, equal but for rounding: how far do their errors lie apart?

Two files of records hold the same recipes, sizes and seeds, carried out by two versions of the
program or with `--threads 1` and `--threads 2`: the same mathematics, added up in another order.
Runs that agree to the bit say nothing and are left out.

usage: python benchmarks/rounding.py ONE.json OTHER.json [MORE.json MORE.json] [--record NAME]
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import markdown_table, recording_parser, show_table

from invint.study.records import read_records


def pairs(one: Path, other: Path) -> list[dict[str, Any]]:
    """Return the errors of every run that both files have, in percent."""
    first, second = (
        {(run.recipe, run.hash, run.seed): run for run in read_records(path)}
        for path in (one, other)
    )
    return [
        {
            "recipe": run.recipe,
            "images": run.train_images,
            "steps": run.steps,
            "seed": run.seed,
            "errors": [100 * run.error, 100 * second[key].error],
        }
        for key, run in first.items()
        if key in second and run.cross_entropy != second[key].cross_entropy
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return, for each number of images and kind of run, what rounding does to one run.

    The difference of two runs that are alike varies as the square root of two times one run does.
    """
    body = []
    for images, longer in sorted({(row["images"], row["steps"] > 312) for row in rows}):
        gaps = [
            row["errors"][1] - row["errors"][0]
            for row in rows
            if (row["images"], row["steps"] > 312) == (images, longer)
        ]
        noise = math.sqrt(sum(gap**2 for gap in gaps) / len(gaps) / 2)
        body.append(
            [
                f"{images:,} images, {'more' if longer else '312'} steps",
                str(len(gaps)),
                f"{noise:.2f}",
                f"{max(map(abs, gaps)):.2f}",
            ]
        )
    return markdown_table(["runs", "pairs", "deviation of one run", "largest difference"], body)


def main() -> None:
    """Compare, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    found = {}
    for one, other in zip(options.files[::2], options.files[1::2], strict=True):
        for row in pairs(one, other):
            found[row["recipe"], row["images"], row["steps"], row["seed"]] = row
    rows = list(found.values())
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
