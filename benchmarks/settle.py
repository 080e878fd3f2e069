"""Choose the settled recipe of a data set: validation errors, never test errors.

Every network gets the same candidates, images and seeds. A run trains on some of the training
images and is evaluated on others of them; the test images of the set are not loaded into it.

usage: python benchmarks/settle.py [--data rotmnist-regenerated] [--size 500] [--held-out 9500]
           [--networks pooling,local-ws] [--candidates "base;ema"] [--seeds 1] [--record NAME]
"""

import time
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from record import markdown_table, recording_parser, this_command, write_record

from invint.recipes import changed, find_recipe
from invint.recipes.recipe import Recipe
from invint.train.callbacks import Callback
from invint.train.device import Execution, ProcessGroup
from invint.train.run import Run
from invint.train.setup import RunData
from invint.train.store import RunStore

RUNS = Path("build/settle")
CANDIDATES: dict[str, list[str]] = {
    "base": [],
    "linear": ["train.decay=linear"],
    "lr 2e-3": ["train.lr=2e-3"],
    "lr 3e-3": ["train.lr=3e-3"],
    "lr 5e-4": ["train.lr=5e-4"],
    "lr 1e-3": ["train.lr=1e-3"],
    "lr 1e-2": ["train.lr=1e-2"],
    "warm-up": ["train.warmup=0.5"],
    "ema": ["train.ema=0.99"],
    "smooth": ["train.label_smoothing=0.1"],
    "clip": ["train.clip_norm=1"],
    "dropout 0.6": ["model.dropout=0.6"],
    "dropout 0.2": ["model.dropout=0.2"],
    "decay": ["train.optimizer=adamw", "train.weight_decay=0.05"],
    "smooth, dropout 0.6": ["train.label_smoothing=0.1", "model.dropout=0.6"],
    "smooth, dropout 0.7": ["train.label_smoothing=0.1", "model.dropout=0.7"],
    "smooth, dropout 0.6, decay": [
        "train.label_smoothing=0.1",
        "model.dropout=0.6",
        "train.optimizer=adamw",
        "train.weight_decay=0.05",
    ],
    "smooth, dropout 0.6, lr 2e-3": [
        "train.label_smoothing=0.1",
        "model.dropout=0.6",
        "train.lr=2e-3",
    ],
    "running": ["train.statistics=0"],
    "twice": ["train.epochs=22"],
    "plain features": ["model.norm_features=false"],
}


def validated(recipe: Recipe, seed: int, execution: Execution) -> dict[str, Any]:
    """Train a recipe once and return its error on the images held out."""
    data = RunData.of(recipe, seed, None)
    if data.validation is None:
        raise SystemExit("there is nothing held out: give --held-out")
    split, indices = data.validation
    data = replace(data, dataset=replace(data.dataset, test=split[indices]), validation=None)
    store, execution = RunStore.at(RUNS, recipe, seed), execution.decided()
    began = time.monotonic()
    with execution.applied():
        Run(recipe, seed, store, data, execution, ProcessGroup()).complete(Callback())
    result = store.result or {}
    return {
        "seed": seed,
        "validation_error": result["error"],
        "cross_entropy": result["cross_entropy"],
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Run the candidates, network by network, and print what validation says."""
    parser = recording_parser(__doc__ or "")
    parser.add_argument("--data", default="rotmnist-regenerated")
    parser.add_argument("--size", type=int, default=500, help="images trained on")
    parser.add_argument("--held-out", type=int, default=9500, help="images validated on")
    parser.add_argument("--networks", default="pooling,local-ws")
    parser.add_argument("--candidates", default=";".join(CANDIDATES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="for all candidates")
    asked = parser.parse_args()
    family, total = asked.data.partition("-")[0], asked.size + asked.held_out
    torch.manual_seed(0)
    rows: list[dict[str, Any]] = []
    for seed in range(asked.seeds):
        for candidate in asked.candidates.split(";"):
            for network in asked.networks.split(","):
                recipe = changed(
                    find_recipe(f"{family}/settled-{network}"),
                    [
                        f"data.name={asked.data}",
                        f"data.size={total}",
                        f"data.validation={asked.held_out / total}",
                        *asked.set,
                        *CANDIDATES[candidate],
                    ],
                )
                about = {"network": network, "candidate": candidate, "size": asked.size}
                rows.append(about | validated(recipe, seed, Execution()))
                print(rows[-1], flush=True)
                if asked.record:
                    write_record(asked.record, this_command(), rows)
    networks = asked.networks.split(",")
    table = []
    for candidate in asked.candidates.split(";"):
        errors = [
            mean(
                row["validation_error"]
                for row in rows
                if (row["candidate"], row["network"]) == (candidate, network)
            )
            for network in networks
        ]
        table.append([candidate, *(f"{100 * each:.2f}" for each in (*errors, mean(errors)))])
    print(markdown_table(["candidate", *networks, "mean"], table))


if __name__ == "__main__":
    main()
