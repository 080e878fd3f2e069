"""Measure how far the test error of a run depends on batch-norm statistics that lag behind.

For each run: the test error with the running statistics, as in its result, and with those of each
batch of 200 test images.

usage: python benchmarks/statistics_lag.py NAME RUN [RUN ...]
"""

import sys
from pathlib import Path
from typing import Any

import torch
from record import write_record

from invint.data.batches import Batches
from invint.data.registry import load_dataset
from invint.export import load_network
from invint.study.folders import read_run


def measure(folder: Path) -> dict[str, Any]:
    """Return both errors of a run on digits."""
    run, (network, card) = read_run(folder), load_network(folder / "model.safetensors")
    test = load_dataset("digits").test
    batches = Batches(test, batch_size=200, seed=0, mean=card.mean, std=card.std)
    network.train()
    with torch.no_grad():
        wrong = [network(x).argmax(dim=1) != y for x, y in batches(range(4))]
    return {
        "recipe": run.recipe,
        "seed": run.seed,
        "threads": run.environment["threads"],
        "error": run.error,
        "error_with_batch_statistics": torch.cat(wrong).double().mean().item(),
    }


if __name__ == "__main__":
    name, *folders = sys.argv[1:]
    rows = [measure(Path(folder)) for folder in folders]
    for row in rows:
        print(row)
    write_record(name, f"python benchmarks/statistics_lag.py {name} RUNS", rows)
