"""Time to the first step of a run, in new processes: nothing compiled before, then the same again.

Each process imports, builds a run on noise and makes a few steps. `cold` has an empty cache folder,
`warm` the one that the process before it has filled, `carried` a copy of it at another place. Ways:

- `whole`: as `invint train` does, the features compiled as one;
- `parts`: features compiled from one convolution to the next, so that alike parts share code;
- `eager`: nothing compiled;
- `deterministic`: as `--deterministic`, where cuDNN takes what its heuristics propose first;
- `tried`: likewise, but cuDNN tries deterministic algorithms: repeatable in this process only.

Rows that a record has already are not measured again.

usage: python benchmarks/first_step.py [--networks sfcnn,sf-wrn16-4] [--ways whole,deterministic]
                                       [--batch 64] [--steps 20] [--record NAME]
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any

RECIPES = {"sfcnn": "rotmnist/settled-pooling", "sf-wrn16-4": "svhn/settled-pooling"}
RECIPES["sfcnn-small"] = "digits/settled-pooling"
SIDES = {"sfcnn": (1, 28), "sf-wrn16-4": (3, 32), "sfcnn-small": (1, 20)}
STRICT = ("deterministic", "tried")
UNCACHED = ("eager",)  # compile nothing: warm is no different


def measure(network: str, way: str, batch: int, steps: int) -> dict[str, Any]:
    """Return seconds of importing, of everything to the end of the first step, and of a step."""
    began = time.perf_counter()
    import torch
    from torch._dynamo.utils import counters

    from invint.recipes import find_recipe
    from invint.train import Execution
    from invint.train.device import ProcessGroup, cache_folder, code_kept_in
    from invint.train.run import Run
    from invint.train.setup import RunData  # noqa: F401 - a part of the time of any run
    from invint.train.store import RunStore
    from invint.train.timing import random_data

    imported = time.perf_counter()
    channels, side = SIDES[network]
    recipe = find_recipe(RECIPES[network]).replace(train={"batch_size": batch})
    data = random_data(4 * batch, side=side, channels=channels, classes=10)
    # On a CPU the compiler has to be asked for.
    compiled = way not in ("parts", *UNCACHED)
    execution = Execution(compile=compiled, deterministic=way in STRICT).decided()
    with execution.applied(), code_kept_in(cache_folder()):  # parts are compiled here, not by it
        torch.backends.cudnn.benchmark |= way == "tried"
        run = Run(recipe, 0, RunStore(Path("unsaved")), data, execution, ProcessGroup())
        if way == "parts":
            run.network.features = in_parts(run.network.get_submodule("features"))
        times = [time.perf_counter()]
        for images, labels in run.batches(range(1 + steps)):
            run.optimizer.zero_grad(set_to_none=True)
            run.objective(images, labels)[0].backward()  # type: ignore[no-untyped-call]
            run.optimizer.step()
            if execution.device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter())
    later = [after - before for before, after in pairwise(times[1:])]
    return {
        "import_seconds": round(imported - began, 2),
        "first_step_seconds": round(times[1] - imported, 2),
        "step_milliseconds": round(1e3 * statistics.median(later), 3),
        "found": counters["inductor"]["fxgraph_cache_hit"],
        "made": counters["inductor"]["fxgraph_cache_miss"],
    }


def in_parts(features: Any) -> Any:
    """Return features that are compiled one by one, each from a convolution to the next."""
    from torch import nn

    from invint.nn import GroupConv2d, LiftConv2d

    groups: list[list[Any]] = []
    for child in features.children():
        begins = any(isinstance(each, LiftConv2d | GroupConv2d) for each in child.modules())
        groups += [[child]] if begins or not groups else []
        groups[-1] += [child] if groups[-1][-1] is not child else []
    parts = [nn.Sequential(*group) for group in groups]
    for part in parts:
        part.compile(dynamic=False, options={"comprehensive_padding": False})
    return nn.Sequential(*parts)


def in_a_new_process(cache: Path, *arguments: str) -> dict[str, Any]:
    """Call this script for one measurement, with a folder for compiled code."""
    command = [sys.executable, __file__, "--one", *arguments]
    environment = os.environ | {"INVINT_CACHE": str(cache), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows_of(network: str, way: str, batch: int, steps: int) -> list[dict[str, Any]]:
    """Return what a network takes with an empty cache, with a full one, and with one carried."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        made, carried = Path(name) / "made", Path(name) / "carried"
        for state, folder in (("cold", made), ("warm", made), ("carried", carried)):
            if state != "cold" and way in UNCACHED:
                break
            if state == "carried":
                shutil.move(made, carried)
            found = in_a_new_process(folder, network, way, str(batch), str(steps))
            about = {"network": network, "way": way, "cache": state, "batch": batch}
            rows.append(about | found)
            print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows, with the time of a step as a multiple of that compiled as a whole."""
    from record import markdown_table

    whole = {
        row["network"]: row["step_milliseconds"]
        for row in rows
        if (row["way"], row["cache"]) == ("whole", "warm")
    }
    body = []
    for row in rows:
        ratio = row["step_milliseconds"] / whole[row["network"]] if whole else None
        body.append(
            [
                f"{row['network']}, {row['way']}, {row['cache']}",
                f"{row['import_seconds']:.1f}",
                f"{row['first_step_seconds']:.1f}",
                f"{row['found']} of {row['found'] + row['made']}",
                f"{row['step_milliseconds']:.2f}",
                "" if ratio is None else f"{ratio:.2f}",
            ]
        )
    head = [
        "network, way, cache",
        "import s",
        "first step s",
        "graphs found",
        "step ms",
        "of whole",
    ]
    return markdown_table(head, body)


def main() -> None:
    """Measure each network in each way; `--one` is one of the processes that are measured."""
    if sys.argv[1:2] == ["--one"]:
        network, way, batch, steps = sys.argv[2:]
        print(json.dumps(measure(network, way, int(batch), int(steps))))
        return
    from record import recorded, recording_parser, show_table

    parser = recording_parser(__doc__ or "")
    parser.add_argument("--networks", default="sfcnn,sf-wrn16-4")
    parser.add_argument("--ways", default="whole,parts,eager,deterministic,tried")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    rows = recorded(asked.record)
    done = {(row["network"], row["way"]) for row in rows}
    # In the order of ways: what is cut off has then measured the first of them for all networks.
    for way, network in product(asked.ways.split(","), asked.networks.split(",")):
        if (network, way) not in done:
            rows += rows_of(network, way, asked.batch, asked.steps)
            show_table(table(rows), rows, record=asked.record)


if __name__ == "__main__":
    main()
