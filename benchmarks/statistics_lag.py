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
from timing import DEVICE

from invint.data.batches import test_batches
from invint.export import load_network
from invint.run.building import chosen_data, load_chosen
from invint.study.folders import read_run
from invint.train.objective import NORMS

BATCH = 200


def measure(folder: Path) -> dict[str, Any]:
    """Return both errors of a run."""
    run, (network, card) = read_run(folder), load_network(folder / "model.safetensors")
    test = load_chosen(chosen_data(run.choices), None).test
    batches = test_batches(test, batch_size=BATCH, mean=card.mean, std=card.std, device=DEVICE)
    for module in network.to(DEVICE).eval().modules():
        if isinstance(module, NORMS):
            module.train()
    with torch.no_grad():
        wrong = [network(images).argmax(dim=1) != labels for images, labels in batches]
    return {
        "recipe": run.recipe,
        "size": run.size,
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
