"""What a run costs beyond its bare steps: same network, same data, on the same device.

`python benchmarks/training.py` times both in turn, prints the ratio and writes
`results/training-<device>.json`. The bare step gathers images that lie on the device, augments
and normalises them, and makes the forward and backward pass and the optimizer's step; the run
does that through `Run`, with its meters, learning rates, watch and log.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import write_record
from timing import DEVICE

from invint.recipes import changed, find_recipe
from invint.train import Execution
from invint.train.device import ProcessGroup
from invint.train.run import Run
from invint.train.setup import RunData
from invint.train.store import RunStore

CHOICES = {
    "cpu": ("digits/local-ws", ["train.batch_size=64"], 10),
    "cuda": ("rotmnist/local-ws", ["data.name=digits", "train.batch_size=64"], 100),
}


def made_run(name: str, assignments: list[str], folder: Path) -> Run:
    """Return a run at its first step."""
    recipe = changed(find_recipe(name), assignments)
    execution = Execution(device=DEVICE).decided()
    images = RunData.of(recipe, 0, None)
    run = Run(recipe, 0, RunStore(folder), images, execution, ProcessGroup())
    run.saved_at = float("inf")
    return run


def bare(run: Run, steps: range) -> None:
    """Make steps, and nothing beside."""
    for images, labels in run.batches(steps):
        run.optimizer.zero_grad(set_to_none=True)
        run.objective(images, labels)[0].backward()  # type: ignore[no-untyped-call]
        run.optimizer.step()


def engine(run: Run, steps: range) -> None:
    """Make steps as a run does, to the line in its log."""
    run.step = steps.start
    run.train(steps.start, steps.stop, lambda: False)


def seconds(work: Any, run: Run, steps: range) -> float:
    """Time some steps, what the device still has to do included."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work(run, steps)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Time in turn, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--no-record", action="store_true")
    choices = parser.parse_args()
    name, assignments, count = CHOICES[DEVICE]
    with tempfile.TemporaryDirectory() as folder, Execution(device=DEVICE).decided().applied():
        run = made_run(name, assignments, Path(folder))
        rows = timed(run, count, choices.turns)
    ratios = [row["engine"] / row["bare"] for row in rows]
    steps = [row["bare"] / count * 1e3 for row in rows]
    print(
        f"{name} on {DEVICE}: {statistics.median(steps):.2f} ms a bare step, "
        f"a run takes {statistics.median(ratios):.3f} times as long"
    )
    if not choices.no_record:
        write_record(
            f"training-{DEVICE}",
            "python benchmarks/training.py",
            rows,
            recipe=name,
            steps=count,
            ratio=statistics.median(ratios),
        )


def timed(run: Run, count: int, turns: int) -> list[dict[str, float]]:
    """Return the seconds of both, turn by turn, each time in the other order."""
    ways = {"bare": bare, "engine": engine}
    for work in ways.values():
        seconds(work, run, range(count))
    rows = []
    for turn in range(turns):
        steps = range(turn * count, (turn + 1) * count)
        order = sorted(ways, reverse=turn % 2 == 1)
        found = {way: seconds(ways[way], run, steps) for way in order}
        rows.append(found)
    return rows


if __name__ == "__main__":
    main()
