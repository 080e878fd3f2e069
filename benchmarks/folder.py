"""Time a folder of pictures: scanned and cached, against the decoder alone, and started again.

The decoder alone is Pillow reading every file into an array, in as many threads, and throwing it
away. The folder is read with its hashes, checks and report, and its cache is on the disk when the
clock stops. Both run in processes of their own, in turn, so that the most memory in use is known.

usage: python benchmarks/folder.py [--pictures 20000] [--turns 3] [--record NAME]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from record import markdown_table, recording_parser, show_table

from invint.data.cache import processors
from invint.data.folder import load_folder

SIDE, CLASSES = 96, 10
KINDS: dict[str, dict[str, Any]] = {"png": {}, "jpg": {"quality": 90}}


def write_pictures(folder: Path, count: int, kind: str) -> None:
    """Write pictures as smooth as photographs, with some noise, into a folder for each class."""
    random = np.random.default_rng(0)
    for number in range(count):
        coarse = random.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        smooth = Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        noise = random.integers(0, 8, (SIDE, SIDE, 3), dtype=np.uint8)
        path = folder / f"class {number % CLASSES}" / f"{number}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(smooth) // 2 + noise).save(path, **KINDS[kind])


def decoder(folder: Path, _cache: Path) -> None:
    """Decode every file with Pillow, as fast as threads can."""
    paths = sorted(folder.rglob("*.*"))

    def some(start: int) -> int:
        return sum(np.asarray(Image.open(path)).size for path in paths[start : start + 32])

    with ThreadPoolExecutor(processors()) as pool:
        sum(pool.map(some, range(0, len(paths), 32)))


def ours(folder: Path, cache: Path) -> None:
    """Scan and cache the folder, or find it cached."""
    load_folder(folder, cache=cache)


TASKS = {"decoder": decoder, "first start": ours, "second start": ours}


def measured(task: str, folder: Path, cache: Path) -> dict[str, float]:
    """Run a task in a process of its own; return seconds and the most megabytes in use."""
    command = [sys.executable, __file__, "--task", task, str(folder), str(cache)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def run_task(task: str, folder: Path, cache: Path) -> None:
    """Run a task here and print what it took."""
    start = time.perf_counter()
    TASKS[task](folder, cache)
    seconds = time.perf_counter() - start
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": megabytes}))


def compare(kind: str, count: int, turns: int) -> list[dict[str, Any]]:
    """Time the three tasks in turn on one folder."""
    found: dict[str, list[dict[str, float]]] = {task: [] for task in TASKS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pictures"
        write_pictures(folder, count, kind)
        measured("decoder", folder, Path(name))  # so that all find the files in memory
        for turn in range(turns):
            cache = Path(name) / f"cache {turn}"
            for task, results in found.items():
                results.append(measured(task, folder, cache))
    floor = [result["seconds"] for result in found["decoder"]]
    return [
        {
            "kind": kind,
            "task": task,
            "pictures": count,
            "seconds": statistics.median(r["seconds"] for r in results),
            "of_decoder": statistics.median(
                f / r["seconds"] for f, r in zip(floor, results, strict=True)
            ),
            "megabytes": max(r["megabytes"] for r in results),
        }
        for task, results in found.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    header = ["files", "what", "seconds", "pictures/s", "of the decoder's speed", "MB"]
    body = [
        [
            row["kind"],
            row["task"],
            f"{row['seconds']:.2f}",
            f"{row['pictures'] / row['seconds']:,.0f}",
            f"{row['of_decoder']:.0%}",
            f"{row['megabytes']:.0f}",
        ]
        for row in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--pictures", type=int, default=20_000, help="in each folder (20000)")
    parser.add_argument("--turns", type=int, default=3, help="timed calls of each kind (3)")
    parser.add_argument("--task", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        run_task(options.task[0], *map(Path, options.task[1:]))
        return
    rows = [row for kind in KINDS for row in compare(kind, options.pictures, options.turns)]
    show_table(table(rows), rows, record=options.record, processors=processors())


if __name__ == "__main__":
    main()
