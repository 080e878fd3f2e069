"""Time making batches, with augmentation, against the network that consumes them.

Batches are made and thrown away, then the same steps train `sfcnn` on a batch of the same size
that lies ready. `host` is what making one costs the process that also launches the network.

usage: python benchmarks/batches.py [--steps 512] [--turns 5] [--record NAME]
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from record import markdown_table, recording_parser, show_table
from timing import DEVICE, in_turn
from torch import nn

from invint import create_model
from invint.data.batches import Batches
from invint.data.dataset import Split

SIZE = 64
SETS = [  # name, images, channels, side, augmentation, memory
    ("rotmnist", 12000, 1, 28, ("rotate",), None),
    ("cifar10", 50000, 3, 32, ("crop", "flip"), None),
    ("stl10", 5000, 3, 96, ("crop", "flip", "cutout"), None),
    ("stl10, streamed", 5000, 3, 96, ("crop", "flip", "cutout"), 0),
]


def wait() -> None:
    """Let the device finish."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def making(place: Any, steps: int, turns: int) -> dict[str, Any]:
    """Time the batches of some steps: all work, and what the calling thread spends on it."""
    name, count, channels, side, augment, memory = place
    images = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8)
    batches = Batches(
        Split(images, torch.arange(count) % 10),
        batch_size=SIZE,
        seed=0,
        augment=augment,
        mean=(0.5,) * channels,
        std=(0.25,) * channels,
        device=DEVICE,
        memory=memory,
    )
    times = []
    for turn in range(turns + 1):
        wait()
        start = time.perf_counter()
        for _ in batches(range(turn * steps, (turn + 1) * steps)):
            pass
        returned = time.perf_counter()
        wait()
        times.append((time.perf_counter() - start, returned - start))
    whole, host = (statistics.median(column) / steps for column in zip(*times[1:], strict=True))
    return {"what": f"{name}: {', '.join(augment)}", "seconds": whole, "host": host}


def consuming(turns: int, bfloat16: bool) -> dict[str, Any]:
    """Time a training step of `sfcnn` on 28 x 28 pixels."""
    torch.manual_seed(0)
    model = create_model("sfcnn", in_channels=1, image_size=28).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters())
    count = SIZE if DEVICE == "cuda" else 8  # a step of 64 takes half a minute on two cores
    x, labels = torch.rand(count, 1, 28, 28, device=DEVICE), torch.arange(count, device=DEVICE) % 10
    run: Callable[..., Any] = torch.compile(model) if bfloat16 else model

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=bfloat16):
            logits = run(x)
        nn.functional.cross_entropy(logits.float(), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    kind = "bfloat16, compiled" if bfloat16 else "float32"
    seconds = in_turn([step], turns)[0] * SIZE / count
    return {"what": f"sfcnn training step, {kind}", "seconds": seconds}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table, against the fastest consumer."""
    consumer = min(row["seconds"] for row in rows if "host" not in row)
    header = [f"batch of {SIZE}", "ms", "host ms", "images/s", "times what sfcnn consumes"]
    body = [
        [
            row["what"],
            f"{1e3 * row['seconds']:.3g}",
            f"{1e3 * row['host']:.3g}" if "host" in row else "",
            f"{SIZE / row['seconds']:.3g}",
            f"{consumer / row['seconds']:.1f}",
        ]
        for row in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--steps", type=int, default=512, help="batches per reading (512)")
    parser.add_argument("--turns", type=int, default=5, help="readings of each kind (5)")
    options = parser.parse_args()
    rows = [making(place, options.steps, options.turns) for place in SETS]
    rows += [
        consuming(options.turns, each) for each in ([False, True] if DEVICE == "cuda" else [False])
    ]
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
