"""Time whole training steps of steerable networks against the plain network of the same shapes.

The plain network has the same tensors everywhere, but convolutions with weights of their own and
batch normalisation of every channel by itself. Both are trained alike: loss, penalties, backward,
Adam, bf16 under autocast, once compiled as `invint train` does and once not; peak memory is that of
the latter. The head `e2cnn` is `sfcnn` with pooling built with that library, where it is installed.

usage: python benchmarks/steps.py [--networks sfcnn,sf-wrn16-4] [--heads max,local-ws]
                                  [--batch 64] [--turns 20] [--tries 10] [--record NAME]
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from einops import rearrange
from peers import INSTALLED, PeerNetwork
from record import markdown_table, recording_parser, show_table, this_command, write_record
from timing import DEVICE, in_turn, peak
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from invint import create_model
from invint.models.fold import FoldedConv2d
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d
from invint.train.loop import Objective, channels_last

SIDES = {"sfcnn": (1, 28), "sf-wrn16-4": (3, 32), "sfcnn-small": (1, 20)}
HEADS = "max,avg,local-ws,global-ws,monomials,mlp,attention,sf-ii"


class PlainNorm(nn.Module):
    """Batch normalisation of every channel and element by itself."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise a map with its group axis folded into channels."""
        out: Tensor = self.norm(rearrange(x, "b c g h w -> b (c g) h w"))
        return rearrange(out, "b (c g) h w -> b c g h w", g=x.shape[2])


def plain(network: str) -> nn.Module:
    """Return the plain network of the same tensor shapes, with weights of its own."""
    model = compared(network, "max")
    order = next(each.group.order for each in model.modules() if isinstance(each, LiftConv2d))
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LiftConv2d | GroupConv2d):
                convolution = layer.fold()
                convolution.reset_parameters()
                parent.add_module(name, FoldedConv2d(convolution, order, lifts=layer.lifts))
            elif isinstance(layer, GroupBatchNorm):
                parent.add_module(name, PlainNorm(layer.channels * order))
    return model


def stepping(model: nn.Module, network: str, batch: int, compiled: bool) -> Callable[[], object]:
    """Return the call that makes one training step."""
    channels, side = SIDES[network]
    model = model.to(DEVICE).train()
    channels_last(model)
    objective = Objective(model, reg=0.1, elastic=1e-7).to(DEVICE)
    if compiled:
        objective.compile_features(graphs=DEVICE == "cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=DEVICE == "cuda")
    images = torch.rand(batch, channels, side, side, device=DEVICE)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=DEVICE) % 10

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            terms = objective(images, labels)
        terms[0].backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def operations(network: str, batch: int) -> int:
    """Count the floating-point operations of a training step of the plain network."""
    channels, side = SIDES[network]
    model = plain(network).to("meta")  # counts without computing
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(batch, channels, side, side, device="meta")).sum().backward()
    return int(counter.get_total_flops())


def compared(network: str, head: str) -> nn.Module:
    """Return the network to compare with the plain one."""
    channels, side = SIDES[network]
    if head == "e2cnn":
        return PeerNetwork()
    return create_model(
        network,
        head=head,
        in_channels=channels,
        image_size=side,
        head_options={"monomials": 5} if head == "monomials" else {},
    )


class Steps(NamedTuple):
    """Training steps of one network, and the bytes it needs at its peak when not compiled."""

    eager: Callable[[], object]
    compiled: Callable[[], object] | None
    bytes: int


def steps_of(
    make: Callable[[], nn.Module], network: str, batch: int, *, compiled: bool = True
) -> Steps:
    """Return steps of a network, not compiled and compiled."""
    before = torch.cuda.memory_allocated()
    eager = stepping(make(), network, batch, compiled=False)
    eager()  # makes the moments of the optimizer
    memory = peak(eager) - before if DEVICE == "cuda" else 0
    return Steps(
        eager, stepping(make(), network, batch, compiled=True) if compiled else None, memory
    )


def measure(network: str, head: str, floor: Steps, batch: int, turns: int) -> dict[str, Any]:
    """Time a network with a head beside the plain one, compiled and not."""
    work = operations(network, batch)
    ours = steps_of(lambda: compared(network, head), network, batch, compiled=head != "e2cnn")
    both = [each for each in (*floor[:2], *ours[:2]) if each is not None]
    plain_eager, lowest, eager, *rest = in_turn(both, turns)
    best = rest[0] if rest else None
    return {
        "network": network,
        "head": head,
        "batch": batch,
        "milliseconds": best and 1e3 * best,
        "plain_milliseconds": 1e3 * lowest,
        "eager_milliseconds": 1e3 * eager,
        "plain_eager_milliseconds": 1e3 * plain_eager,
        "bytes": ours.bytes,
        "plain_bytes": floor.bytes,
        "teraflops": work / (best or eager) / 1e12,
        "plain_teraflops": work / lowest / 1e12,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table; a plain network stands before those it is the floor of."""
    header = ["network", "step ms", "of plain", "TFLOP/s", "eager ms", "of plain", "peak memory"]
    body: list[list[str]] = []
    for number, row in enumerate(rows):
        lowest, eager, least = (
            row[f"plain_{key}"] for key in ("milliseconds", "eager_milliseconds", "bytes")
        )
        if number == 0 or row["network"] != rows[number - 1]["network"]:
            first = [f"plain, shapes of {row['network']}", f"{lowest:.2f}", "1.00"]
            speed = f"{row['plain_teraflops']:.0f}"
            body.append([*first, speed, _decimals(eager), "1.00", "1.00"])
        body.append(
            [
                f"{row['network']}, {row['head']}",
                _decimals(row["milliseconds"]),
                _decimals(row["milliseconds"], lowest, digits=3),
                f"{row['teraflops']:.0f}",
                _decimals(row["eager_milliseconds"]),
                _decimals(row["eager_milliseconds"], eager),
                _decimals(row["bytes"], least),
            ]
        )
    return markdown_table(header, body)


def _decimals(value: float | None, of: float | None = 1.0, digits: int = 2) -> str:
    """Return a quotient, or a dash where something was not measured."""
    return f"{value / of:.{digits}f}" if value and of else "–"


def main() -> None:
    """Measure every network and head, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--networks", default="sfcnn,sf-wrn16-4", help="networks, with commas")
    parser.add_argument("--heads", default=HEADS, help=f"heads, with commas ({HEADS})")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--turns", type=int, default=20, help="timed calls of each kind (20)")
    parser.add_argument("--tries", type=int, default=10, help="by cuDNN, 0 of all it has (10)")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = options.tries
    rows = []
    for network in options.networks.split(","):
        peer = ["e2cnn"] if INSTALLED and network == "sfcnn" else []
        floor = steps_of(partial(plain, network), network, options.batch)
        for head in [*options.heads.split(","), *peer]:
            torch.manual_seed(0)
            rows.append(measure(network, head, floor, options.batch, options.turns))
            print(table(rows[-1:]), flush=True)
            if options.record:  # what comes may be cut off
                write_record(options.record, this_command(), rows)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
