"""Compare steerable convolutions with the plain `conv2d` of the same tensor shapes, side by side.

Every number is a ratio: steerable over plain, both timed in turn in one run, median of the turns.
"kept" is what backward keeps; "peak" the most memory in use over a training step, on CUDA only.

usage: python benchmarks/layers.py [--batch 64] [--turns 3] [--dtype float32|bfloat16] [--compile]
                                   [--record NAME]
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from einops import rearrange
from record import markdown_table, recording_parser, show_table
from timing import DEVICE, in_turn, kept, on_device, peak
from torch import Tensor, nn

from invint import Cyclic
from invint.nn import GroupConv2d, LiftConv2d

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


class Contest:
    """A steerable layer, the plain layer of the same shapes, and the folded one."""

    def __init__(self, shape: Shape, batch: int, dtype: torch.dtype, compiled: bool) -> None:
        layer: type[LiftConv2d | GroupConv2d] = LiftConv2d if shape.lifts else GroupConv2d
        sizes = shape.in_channels, shape.out_channels, shape.kernel_size
        group = Cyclic(shape.order)
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
        flat = torch.randn(batch, folded.in_channels, shape.side, shape.side, device=DEVICE)
        if DEVICE == "cuda":  # the layout its convolutions are fastest in
            flat = flat.to(memory_format=torch.channels_last)
            for module in (plain, folded):
                module.weight.data = module.weight.data.to(memory_format=torch.channels_last)
        split = rearrange(flat, "b (c g) h w -> b c g h w", c=shape.in_channels)  # a view
        x = flat if shape.lifts else split
        inputs = [each.detach().requires_grad_(not shape.lifts) for each in (x, flat, flat)]
        self.contestants = list(zip((steerable, plain, folded), inputs, strict=True))
        self.build_plain = lambda: nn.Conv2d(
            folded.in_channels, folded.out_channels, shape.kernel_size, bias=False
        )
        self.modules = [torch.compile(m) if compiled else m for m, _ in self.contestants]

    def forward(self, which: int) -> Callable[[], Tensor]:
        """Return the call that runs a contestant forward, as in training."""

        def call() -> Tensor:
            half = self.dtype != torch.float32
            with torch.autocast(DEVICE, self.dtype, half, cache_enabled=False):
                out: Tensor = self.modules[which](self.contestants[which][1])
            return out

        return call

    def step(self, which: int) -> Callable[[], object]:
        """Return the call that runs a contestant forward and backward."""
        forward, (module, x) = self.forward(which), self.contestants[which]
        gradient = torch.randn_like(forward().detach())
        leaves = [leaf for leaf in (x, *module.parameters()) if leaf.requires_grad]
        return lambda: torch.autograd.grad(forward(), leaves, gradient)


def measure(shape: Shape, options: argparse.Namespace) -> dict[str, Any]:
    """Return the ratios of one shape, and the times behind them."""
    torch.compiler.reset()
    contest = Contest(shape, options.batch, getattr(torch, options.dtype), options.compile)
    build, build_plain = in_turn([contest.build, contest.build_plain], options.turns)
    forwards = [on_device(contest.forward(i)) for i in range(3)]
    forward, plain, folded = in_turn(forwards, options.turns)
    steps = [on_device(contest.step(i)) for i in range(2)]
    step, plain_step = in_turn(steps, options.turns)
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

    return [f"{network}, these layers", "", "", ratio("forward"), "", ratio("step"), "", "", ""]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the ratios as a table."""
    header = [
        "layer",
        "build ms",
        "build",
        "forward",
        "folded",
        "step",
        "kept",
        "peak",
        "plain step ms",
    ]
    body = [
        [
            f"{row['network']} {row['in_channels']}→{row['out_channels']} C{row['order']} "
            f"{row['kernel_size']}×{row['kernel_size']} on {row['side']}×{row['side']}",
            f"{row['build_ms']:.1f}",
            f"{row['build']:.1f}",
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
    parser = recording_parser(__doc__)
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--turns", type=int, default=3, help="timed calls of each kind (3)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="compile all contestants")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = []
    for shape in SHAPES:
        rows.append(measure(shape, options))
        print(f"{shape}: step {rows[-1]['step']:.2f}", flush=True)
    build = built_in_ms()
    print(f"building 128→128 C8 5×5: {build:.0f} ms")
    show_table(table(rows), rows, record=options.record, build_128_128_C8_5x5_ms=build)


if __name__ == "__main__":
    main()
