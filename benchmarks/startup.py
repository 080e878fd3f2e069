"""How long it takes to start: what an import adds to torch's, and what the command line needs.

Every figure is the least of several processes started one after another, bytecode compiled before.
Processor time is what the start costs; on a machine with other work, elapsed time says little.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from record import markdown_table, recording_parser, show_table

TIMES = 7
BEYOND = """
import time, torch
start = time.perf_counter(), time.process_time()
{code}
print(time.perf_counter() - start[0], time.process_time() - start[1])
"""
IMPORTS = {  # code, and the limit for it in seconds
    "import invint": ("import invint", 0.15),
    "import invint; invint.nn, invint.create_model": (
        "import invint; invint.nn, invint.create_model",
        0.15,
    ),
}
COMMANDS = {"invint --version": (["--version"], 0.6), "invint --help": (["--help"], 0.6)}


def imported(code: str) -> tuple[float, float]:
    """Return elapsed and processor time of an import, beyond that of torch."""
    done = subprocess.run(
        [sys.executable, "-c", BEYOND.format(code=code)], check=True, capture_output=True, text=True
    )
    elapsed, busy = map(float, done.stdout.split())
    return elapsed, busy


def commanded(arguments: list[str]) -> tuple[float, float]:
    """Return elapsed and processor time of a command, the start of Python included."""
    before, start = children(), time.perf_counter()
    command = [sys.executable, "-m", "invint", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, children() - before


def children() -> float:
    """Return the processor time of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def rows() -> list[dict[str, Any]]:
    """Measure everything, in turn."""
    measured: dict[str, tuple[Callable[[], tuple[float, float]], float]] = {}
    for name, (code, limit) in IMPORTS.items():
        measured[name] = (partial(imported, code), limit)
    for name, (given, limit) in COMMANDS.items():
        measured[name] = (partial(commanded, given), limit)
    found: list[dict[str, Any]] = []
    for name, (measure, limit) in measured.items():
        measure()  # compiles bytecode
        runs = [measure() for _ in range(TIMES)]
        elapsed, busy = (min(each) for each in zip(*runs, strict=True))
        found.append({"what": name, "elapsed": elapsed, "processor": busy, "limit": limit})
    return found


def main() -> None:
    """Measure and show."""
    arguments = recording_parser(__doc__ or "").parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONDONTWRITEBYTECODE"] = ""
    found = rows()
    text = markdown_table(
        ["start", "elapsed s", "processor s", "limit s"],
        [
            [
                f"`{row['what']}`",
                *(f"{row[key]:.3f}" for key in ("elapsed", "processor")),
                f"{row['limit']:.2f}",
            ]
            for row in found
        ],
    )
    show_table(text, found, record=arguments.record, load=os.getloadavg()[0])


if __name__ == "__main__":
    main()
