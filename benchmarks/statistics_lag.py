"""Measure how far the test error of a run depends on the statistics of batch normalisation.

For each run the test error
- with the running statistics, as in its result;
- with those of each batch of 200 test images;
- with those of 100 training batches, dropout on: what differs from the first has lagged behind;
- with those of 100 training batches, dropout off: what differs from the last is due to dropout,
  which changes the variance of what comes after it, in training only.

usage: python benchmarks/statistics_lag.py NAME RUN [RUN ...]
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from record import write_record
from timing import DEVICE
from torch import nn

from invint.data.batches import Batches, test_batches
from invint.export import load_network
from invint.models.fold import fold
from invint.recipes.recipe import DataChoice
from invint.study.records import read_run
from invint.train.device import Execution
from invint.train.evaluate import logits_of, scores_of
from invint.train.loop import NORMS, Batch
from invint.train.setup import load_data

BATCH = 200
STEPS = 100


Context = Callable[[], torch.autocast]


def settle(
    network: nn.Module, batches: Iterable[Batch], autocast: Context, *, dropout: bool
) -> nn.Module:
    """Find the running statistics of a network anew: the mean over these batches."""
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    network.train(dropout)
    with torch.no_grad():
        for number, (images, _) in enumerate(batches, start=1):
            for norm in norms:
                norm.train()
                norm.momentum = 1 / number
            with autocast():
                network(images)
    return network


def error_by_batch(network: nn.Module, batches: Iterable[Batch], autocast: Context) -> float:
    """Return the error where each batch is normalised by its own statistics."""
    for module in network.eval().modules():
        if isinstance(module, NORMS):
            module.train()
    with torch.no_grad(), autocast():
        wrong = [network(images).argmax(dim=1) != labels for images, labels in batches]
    return torch.cat(wrong).double().mean().item()


def measure(folder: Path) -> dict[str, Any]:
    """Return the errors of a run."""
    run, (_, card) = read_run(folder), load_network(folder / "model.safetensors")
    data = load_data(DataChoice.of(run.choices), None)
    chosen = json.loads((folder / "subset.json").read_text())["indices"]
    train = Batches(
        data.train,
        chosen=torch.tensor(chosen),
        batch_size=run.choices["train"]["batch_size"],
        seed=0,
        augment=run.choices["data"]["augment"],
        mean=card.mean,
        std=card.std,
        device=DEVICE,
    )

    def network() -> nn.Module:
        return load_network(folder / "model.safetensors")[0].to(DEVICE)

    def test() -> Iterable[Batch]:
        mean, std = card.mean, card.std
        return test_batches(data.test, batch_size=BATCH, mean=mean, std=std, device=DEVICE)

    autocast = Execution(device=DEVICE, precision=run.environment["precision"]).autocast

    def settled_error(*, dropout: bool) -> float:
        settled = settle(network(), train(range(STEPS)), autocast, dropout=dropout)
        return scores_of(*logits_of(fold(settled), test(), autocast=autocast)).error

    return {
        "recipe": run.recipe,
        "size": run.size,
        "seed": run.seed,
        "scale": run.scale,
        "threads": run.environment["threads"],
        "error": run.error,
        "error_with_batch_statistics": error_by_batch(network(), test(), autocast),
        "error_settled_with_dropout": settled_error(dropout=True),
        "error_settled": settled_error(dropout=False),
    }


if __name__ == "__main__":
    name, *folders = sys.argv[1:]
    rows = []
    for folder in folders:
        rows.append(measure(Path(folder)))
        print(rows[-1], flush=True)
        write_record(name, f"python benchmarks/statistics_lag.py {name} RUNS", rows)
