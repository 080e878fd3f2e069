"""Compare steerable convolutions with the plain `conv2d` of the same tensor shapes, side by side.

Every number is a ratio: steerable over plain, both timed in turn in one run, median of the turns.
"kept" is what backward keeps; "peak" the most memory in use over a training step, on CUDA only.

usage: python benchmarks/layers.py [--batch 64] [--turns 3] [--dtype float32|bfloat16] [--compile]
                                   [--record NAME]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from record import markdown_table, publish, write_record
from torch import Tensor, nn

from invint import Cyclic
from invint.nn import GroupConv2d, LiftConv2d

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COLUMNS = ("forward", "folded", "step", "kept", "peak")


class Shape(NamedTuple):
    """One convolution of a network; no input element for a lifting one."""

    network: str
    order: int
    in_channels: int
    out_channels: int
    kernel_size: int
    side: int
    lifts: bool = False


SHAPES = [
    Shape("sfcnn", 16, 1, 24, 9, 28, lifts=True),
    Shape("sfcnn", 16, 24, 32, 7, 28),
    Shape("sfcnn", 16, 32, 36, 7, 14),
    Shape("sfcnn", 16, 36, 36, 7, 14),
    Shape("sfcnn", 16, 36, 64, 7, 7),
    Shape("sf-wrn16-4", 8, 3, 9, 7, 32, lifts=True),
    Shape("sf-wrn16-4", 8, 9, 14, 7, 32),
    Shape("sf-wrn16-4", 8, 14, 14, 7, 32),
    Shape("sf-wrn16-4", 8, 14, 28, 7, 16),
    Shape("sf-wrn16-4", 8, 28, 28, 7, 16),
    Shape("sf-wrn16-4", 8, 28, 49, 7, 8),
    Shape("sf-wrn16-4", 8, 49, 49, 7, 8),
]


def seconds(function: Callable[[], object]) -> float:
    """Time one call, device work included."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def in_turn(functions: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Return the median time of each function, called in turn so that noise hits all alike."""
    for function in functions:
        function()
    times = [[seconds(function) for function in functions] for _ in range(turns)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def kept(forward: Callable[[], Tensor]) -> int:
    """Count the bytes that backward keeps: inputs, weights and whatever else."""
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(found.values())


def peak(step: Callable[[], object]) -> int:
    """Return the most bytes in use on the device during a step."""
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


class Contest:
    """A steerable layer, the plain layer of the same shapes, and the folded one."""

    def __init__(self, shape: Shape, batch: int, dtype: torch.dtype, compiled: bool) -> None:
        layer: type[LiftConv2d | GroupConv2d] = LiftConv2d if shape.lifts else GroupConv2d
        sizes = shape.in_channels, shape.out_channels, shape.kernel_size
        group = Cyclic(shape.order)
        axes = () if shape.lifts else (shape.order,)
        self.dtype = dtype
        self.build = lambda: layer(*sizes, group)
        steerable = layer(*sizes, group).to(DEVICE)
        folded = steerable.fold()
        plain = nn.Conv2d(
            folded.in_channels,
            folded.out_channels,
            shape.kernel_size,
            padding="same",
            bias=False,
            device=DEVICE,
        )
        self.x = torch.randn(
            batch, shape.in_channels, *axes, shape.side, shape.side, device=DEVICE
        ).requires_grad_(not shape.lifts)
        flat = self.x if shape.lifts else self.x.detach().flatten(1, 2).requires_grad_()
        self.contestants = [(steerable, self.x), (plain, flat), (folded, flat)]
        self.build_plain = lambda: nn.Conv2d(
            folded.in_channels, folded.out_channels, shape.kernel_size, bias=False
        )
        self.modules = [torch.compile(m) if compiled else m for m, _ in self.contestants]

    def forward(self, which: int) -> Callable[[], Tensor]:
        """Return the call that runs a contestant forward, as in training."""

        def call() -> Tensor:
            with torch.autocast(DEVICE, self.dtype, enabled=self.dtype != torch.float32):
                out: Tensor = self.modules[which](self.contestants[which][1])
            return out

        return call

    def step(self, which: int) -> Callable[[], None]:
        """Return the call that runs a contestant forward and backward."""
        forward, (module, x) = self.forward(which), self.contestants[which]
        gradient = torch.randn_like(forward().detach())

        def call() -> None:
            forward().backward(gradient)  # type: ignore[no-untyped-call]
            module.zero_grad()
            x.grad = None

        return call


def measure(shape: Shape, options: argparse.Namespace) -> dict[str, Any]:
    """Return the ratios of one shape, and the times behind them."""
    contest = Contest(shape, options.batch, getattr(torch, options.dtype), options.compile)
    build, build_plain = in_turn([contest.build, contest.build_plain], options.turns)
    forward, plain, folded = in_turn([contest.forward(i) for i in range(3)], options.turns)
    step, plain_step = in_turn([contest.step(i) for i in range(2)], options.turns)
    row = {
        **shape._asdict(),
        "build_ms": 1e3 * build,
        "forward_ms": 1e3 * forward,
        "plain_forward_ms": 1e3 * plain,
        "step_ms": 1e3 * step,
        "plain_step_ms": 1e3 * plain_step,
        "build": build / build_plain,
        "forward": forward / plain,
        "folded": folded / plain,
        "step": step / plain_step,
        "kept": kept(contest.forward(0)) / kept(contest.forward(1)),
    }
    if DEVICE == "cuda":
        row["peak"] = peak(contest.step(0)) / peak(contest.step(1))
    return row


def totals(rows: list[dict[str, Any]], network: str) -> list[str]:
    """Return the line of a whole network: the times of its layers added up."""
    chosen = [row for row in rows if row["network"] == network]

    def ratio(name: str) -> str:
        plain = sum(row[f"plain_{name}_ms"] for row in chosen)
        return f"{sum(row[f'{name}_ms'] for row in chosen) / plain:.2f}"

    return [f"{network}, these layers", "", ratio("forward"), "", ratio("step"), "", "", ""]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the ratios as a table."""
    header = ["layer", "build ms", "forward", "folded", "step", "kept", "peak", "plain step ms"]
    body = [
        [
            f"{row['network']} {row['in_channels']}→{row['out_channels']} C{row['order']} "
            f"{row['kernel_size']}×{row['kernel_size']} on {row['side']}×{row['side']}",
            f"{row['build_ms']:.0f}",
            *(f"{row[name]:.2f}" if name in row else "" for name in COLUMNS),
            f"{row['plain_step_ms']:.3g}",
        ]
        for row in rows
    ]
    return markdown_table(header, body + [totals(rows, name) for name in ("sfcnn", "sf-wrn16-4")])


def built_in_ms() -> float:
    """Time the building of a 128→128 C8 5×5 layer."""
    return 1e3 * in_turn([lambda: GroupConv2d(128, 128, 5, Cyclic(8))], 5)[0]


def main() -> None:
    """Measure every shape, print the table, and record it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--turns", type=int, default=3, help="timed calls of each kind (3)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="compile all contestants")
    parser.add_argument("--record", metavar="NAME", help="write results/NAME.json")
    options = parser.parse_args()
    rows = []
    for shape in SHAPES:
        rows.append(measure(shape, options))
        print(f"{shape}: step {rows[-1]['step']:.2f}", flush=True)
    build = built_in_ms()
    print(f"\n{table(rows)}\n\nbuilding 128→128 C8 5×5: {build:.0f} ms")
    if options.record:
        command = "python benchmarks/layers.py " + " ".join(sys.argv[1:])
        print(write_record(options.record, command, rows, build_128_128_C8_5x5_ms=build))
        print(f"put into {publish(options.record, table(rows))}")


if __name__ == "__main__":
    main()
