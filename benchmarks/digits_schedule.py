"""Choose how the learning rate of the digits recipes falls: validation errors, never test errors.

Every network gets the same schedules and seeds; a fifth of the 1,000 training images validates.

usage: python benchmarks/digits_schedule.py [NAME]
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from record import write_record

from invint.recipes import changed, find_recipe
from invint.train import Execution, train_run

RUNS = Path("build/schedules")
NETWORKS = ("cnn", "pooling", "monomials", "local-ws")
SCHEDULES = (  # how, factor, epochs
    ("exponential", 0.3, 10),
    ("exponential", 0.1, 10),
    ("step", 0.1, 9),
)


def train(task: tuple[int, tuple[str, float, float], str]) -> dict[str, Any]:
    """Train one network with one schedule and return what validation says."""
    seed, (decay, factor, epochs), network = task
    choices = {
        "train.decay": decay,
        "train.lr_decay": factor,
        "train.lr_decay_epochs": epochs,
        "data.validation": 0.2,
        "data.test_turns": 1,
    }
    recipe = changed(
        find_recipe(f"digits/{network}"), [f"{key}={value}" for key, value in choices.items()]
    )
    folder = train_run(recipe, seed=seed, runs=RUNS, execution=Execution(threads=1)).path
    result = json.loads((folder / "result.json").read_text())
    schedule = f"{decay} {factor} {epochs}"
    error = result["validation_error"]
    return {"network": network, "schedule": schedule, "seed": seed, "validation_error": error}


if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(train, product(range(3), SCHEDULES, NETWORKS)))
    for schedule in dict.fromkeys(row["schedule"] for row in rows):
        errors = {
            network: mean(
                row["validation_error"]
                for row in rows
                if (row["network"], row["schedule"]) == (network, schedule)
            )
            for network in NETWORKS
        }
        print(schedule, *(f"{network} {100 * error:.2f} %" for network, error in errors.items()))
    if len(sys.argv) > 1:
        write_record(sys.argv[1], f"python benchmarks/digits_schedule.py {sys.argv[1]}", rows)
