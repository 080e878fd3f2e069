"""Compare heads with average pooling and with the convolution before them, side by side.

For each head: forward and backward, as a ratio to average pooling and as a share of the last
convolution (the plain `conv2d` of its shapes) of `sfcnn` and of `sf-wrn16-8` on STL-10's maps.

usage: python benchmarks/heads.py [--turns 5] [--compile] [--only avg,local-ws]
                                  [--places sfcnn] [--record NAME]
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from record import markdown_table, recording_parser, show_table, this_command, write_record
from timing import DEVICE, in_turn, kept, on_device
from torch import Tensor, nn

from invint import Cyclic
from invint.nn import make_head


class Place(NamedTuple):
    """Where a head stands: the last convolution of a network and the batch it is timed with."""

    network: str
    batch: int
    order: int
    in_channels: int
    channels: int
    side: int


PLACES = [
    Place("sfcnn", 64, 16, 36, 64, 7),
    Place("sf-wrn16-8", 64 if DEVICE == "cuda" else 8, 8, 102, 102, 24),  # time grows with it
]
HEADS: list[tuple[str, dict[str, Any]]] = [
    ("avg", {}),
    ("max", {}),
    ("local-ws", {}),
    ("global-ws", {}),
    ("monomials", {"monomials": 5}),
    ("monomials", {"monomials": 10}),
    ("monomials", {"monomials": 50}),
    ("mlp", {}),
    ("attention", {}),
    ("sf-ii", {}),
    ("joint-monomials", {"monomials": 10}),
    ("joint-monomials", {"monomials": 20}),
    ("joint-ws", {}),
    ("joint-mlp", {}),
]


def forward_of(call: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], Tensor]:
    """Return the call that runs a module forward, under autocast on a GPU."""

    def forward() -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, DEVICE == "cuda", cache_enabled=False):
            return call(x)

    return forward


def step(module: nn.Module, forward: Callable[[], Tensor], x: Tensor) -> Callable[[], object]:
    """Return the call that runs a module forward and backward."""
    gradient = torch.randn_like(forward())
    leaves = x, *module.parameters()
    return on_device(lambda: torch.autograd.grad(forward(), leaves, gradient))


def measure(place: Place, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row per head."""
    torch.compiler.reset()
    group = Cyclic(place.order)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    compiled: Callable[..., Any] = torch.compile if options.compile else lambda module: module
    planes = place.in_channels * place.order, place.channels * place.order
    last = nn.Conv2d(*planes, 7, padding=3, bias=False, device=DEVICE)
    flat = torch.randn(place.batch, planes[0], place.side, place.side, device=DEVICE, dtype=dtype)
    if DEVICE == "cuda":  # the layout its convolutions are fastest in
        flat = flat.to(memory_format=torch.channels_last)
        last.weight.data = last.weight.data.to(memory_format=torch.channels_last)
    flat.requires_grad_()
    steps, kept_bytes = [step(last, forward_of(compiled(last), flat), flat)], []
    heads = [each for each in HEADS if not options.only or each[0] in options.only.split(",")]
    for name, arguments in heads:
        head = make_head(
            name, channels=place.channels, size=place.side, group=group, **arguments
        ).to(DEVICE)
        axes = (place.order,) if head.takes_group else ()
        shape = place.batch, place.channels, *axes, place.side, place.side
        x = torch.rand(shape, device=DEVICE, dtype=dtype).requires_grad_()
        forward = forward_of(compiled(head), x)
        kept_bytes.append(kept(forward))
        steps.append(step(head, forward, x))
    convolution, *times = in_turn(steps, options.turns)
    return [
        {
            "place": place._asdict(),
            "head": name,
            **arguments,
            "ms": 1e3 * time,
            "convolution_ms": 1e3 * convolution,
            "of_convolution": time / convolution,
            "of_average": time / times[0],
            "kept_mb": size / 2**20,
        }
        for (name, arguments), time, size in zip(heads, times, kept_bytes, strict=True)
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    header = ["head", "network", "× average pooling", "of last convolution", "kept MB"]
    body = [
        [
            row["head"] + (f", {row['monomials']}" if "monomials" in row else ""),
            row["place"]["network"],
            f"{row['of_average']:.1f}",
            f"{100 * row['of_convolution']:.1f} %",
            f"{row['kept_mb']:.1f}",
        ]
        for row in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--turns", type=int, default=5, help="timed calls of each kind (5)")
    parser.add_argument("--compile", action="store_true", help="compile heads and convolution")
    parser.add_argument("--only", help="heads, with commas; avg must be among them (all)")
    parser.add_argument("--places", help="networks, with commas (all)")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = []
    for place in PLACES:
        if options.places and place.network not in options.places.split(","):
            continue
        rows += measure(place, options)
        print(f"{place.network}: convolution {rows[-1]['convolution_ms']:.3g} ms", flush=True)
        if options.record:  # what comes may be cut off
            write_record(options.record, this_command(), rows)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
