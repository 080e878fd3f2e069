"""Kill tiny runs with SIGKILL at random moments, go on each time, and compare every bit.

`python benchmarks/kills.py --kills 100` writes `results/kills.json`. A process that has everything
imported forks, the child works on a run and is killed, until the run is complete; then the next
run begins. Checkpoints are written after every step, so that kills hit them too. In the end a run
must not be told from one that was left alone: files, weights, moments, random states, and, times
aside, log and result.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # a process with threads should not fork

import torch
import torch._dynamo  # optimizers import it, which takes seconds
from record import write_record
from safetensors.torch import load_file

from invint.data.registry import load_dataset
from invint.recipes import Recipe, changed, find_recipe
from invint.train import Execution, train_run
from invint.train import run as training
from invint.train.store import read_checkpoint

TINY = (
    "data.size=60 model.widths=2,3,4 model.n_fc=8 model.group=C4 train.batch_size=16 "
    "train.epochs=6 train.scale=0.064"
)
SETTLED = "train.ema=0.9 train.statistics=2 train.warmup=1 train.label_smoothing=0.1"
VARIANTS = {  # a plain run, one that selects, one that validates, one that averages, settled ones
    "digits/local-ws": "",
    "digits/monomials": "selection.start=6 selection.steps=[[2,4],[4,2]]",
    "digits/sf-ii": "data.validation=0.25 data.test_turns=2",
    "digits/mlp": "train.decay=cosine train.ema=0.9 train.statistics=2 data.validation=0.25",
    "digits/settled-local-ws": f"{SETTLED} train.clip_norm=1 data.validation=0.25",
    "digits/settled-monomials": f"{SETTLED} selection.start=6 selection.steps=[[2,4],[4,2]]",
}


def tiny(name: str) -> Recipe:
    """Return a recipe that is through in a second and has everything in it."""
    return changed(find_recipe(name), [*TINY.split(), *VARIANTS[name].split()])


def work(recipe: Recipe, seed: int, runs: Path) -> int:
    """Start a process that carries a run out, and return its number."""
    process = os.fork()
    if process:
        return process
    try:
        training.SECONDS_BETWEEN_CHECKPOINTS = 0.0
        training.SECONDS_WITHOUT_CHECKPOINT = 0.0
        train_run(recipe, seed=seed, runs=runs, execution=Execution(threads=1, device="cpu"))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def finished(process: int, timeout: float) -> bool:
    """Wait for a process; kill it if it is not done in time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            if status:
                raise SystemExit(f"a run failed with status {status}")
            return True
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return False


def moment(folder: Path) -> str:
    """Say from what is on disk where a kill hit a run."""
    if any(folder.glob(".*")):
        return "while a file was written"
    if (folder / "result.json").exists():
        return "after the result"
    if (folder / "model.safetensors").exists():
        return "while finishing"
    if (folder / "last.safetensors").exists():
        return "between checkpoints"
    if (folder / "previous.safetensors").exists():
        return "between two renames"
    return "before the first checkpoint"


def facts(folder: Path) -> dict[str, Any]:
    """Return everything a run left, times aside."""
    last = read_checkpoint(folder / "last.safetensors")
    tensors = {f"last/{name}": tensor for name, tensor in last.tensors.items()}
    for path in folder.glob("*.safetensors"):
        tensors |= {f"{path.stem}/{name}": each for name, each in load_file(path).items()}
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    result = json.loads((folder / "result.json").read_text())
    return {
        "files": sorted(path.name for path in folder.iterdir()),
        "tensors": {name: digest(tensor) for name, tensor in tensors.items()},
        "counters": {**last.facts, "seconds": 0},
        "log": [{**line, "seconds": 0} for line in log],
        "result": {**result, "seconds": 0},
    }


def digest(tensor: torch.Tensor) -> tuple[str, bytes]:
    """Return what two tensors share if and only if all their bits are the same."""
    return f"{tensor.dtype} {tuple(tensor.shape)}", tensor.numpy().tobytes()


def killed_run(
    recipe: Recipe, seed: int, runs: Path, chance: random.Random, longest: float
) -> Counter[str]:
    """Carry a run out, killing it again and again; return where the kills hit."""
    moments: Counter[str] = Counter()
    folder = runs / recipe.name / recipe.hash / str(seed)
    while not finished(work(recipe, seed, runs), chance.uniform(0, longest)):
        moments[moment(folder)] += 1
    return moments


def main() -> None:
    """Kill, compare, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--no-record", action="store_true")
    choices = parser.parse_args()
    chance = random.Random(choices.seed)
    load_dataset("digits")  # so that the children need not import for it
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        while sum(row["kills"] for row in rows) < choices.kills:
            rows.append(compared(len(rows), Path(name), chance))
            print(f"{rows[-1]}", flush=True)
    same = all(row["identical"] for row in rows)
    kills = sum(row["kills"] for row in rows)
    print(f"{kills} kills in {len(rows)} runs: {'all bits the same' if same else 'bits differ'}")
    if not choices.no_record:
        write_record("kills", f"python benchmarks/kills.py --kills {choices.kills}", rows)
    sys.exit(not same)


def compared(number: int, folder: Path, chance: random.Random) -> dict[str, Any]:
    """Carry one run out twice, alone and killed, and compare what is left."""
    recipe, seed = tiny([*VARIANTS][number % len(VARIANTS)]), number // len(VARIANTS)
    place = Path(recipe.name) / recipe.hash / str(seed)
    began = time.monotonic()
    finished(work(recipe, seed, folder / "alone"), 600)
    took = time.monotonic() - began
    moments = killed_run(recipe, seed, folder / "killed", chance, longest=0.6 * took)
    alone, after = facts(folder / "alone" / place), facts(folder / "killed" / place)
    different = [key for key in alone if alone[key] != after[key]]
    return {
        "recipe": recipe.name,
        "seed": seed,
        "kills": moments.total(),
        "moments": dict(moments),
        "identical": not different,
        "different": different,
    }


if __name__ == "__main__":
    main()
