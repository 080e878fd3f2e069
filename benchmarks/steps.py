"""Time whole training steps of steerable networks against the plain network of the same shapes.

The plain network has the same tensors everywhere, but convolutions with weights of their own and
batch normalisation of every channel by itself. Both are trained alike: loss, penalties, backward,
Adam, bf16 under autocast, compiled. The head `e2cnn` is `sfcnn` with pooling built with that
library, not compiled, where it is installed.

usage: python benchmarks/steps.py [--networks sfcnn,sf-wrn16-4] [--heads max,local-ws]
                                  [--batch 64] [--turns 20] [--eager] [--record NAME]
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange
from peers import INSTALLED, PeerNetwork
from record import markdown_table, recording_parser, show_table
from timing import DEVICE, in_turn, peak
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from invint import create_model
from invint.models.folding import FoldedConv2d
from invint.nn import GroupBatchNorm, GroupConv2d, LiftConv2d
from invint.train.loop import channels_last
from invint.train.objective import Objective

SIDES = {"sfcnn": (1, 28), "sf-wrn16-4": (3, 32), "sfcnn-small": (1, 20)}
HEADS = "max,local-ws,global-ws,monomials"


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
    objective: Any = Objective(model, reg=0.1, elastic=1e-7).to(DEVICE)
    objective = torch.compile(objective) if compiled else objective
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=DEVICE == "cuda")
    images = torch.rand(batch, channels, side, side, device=DEVICE)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(batch, device=DEVICE) % 10

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            terms = objective(images, labels)
        terms[0].backward()
        optimizer.step()

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
    return create_model(network, head=head, in_channels=channels, image_size=side)


def measure(network: str, head: str, options: argparse.Namespace) -> dict[str, Any]:
    """Time a network with a head beside the plain one."""
    torch.manual_seed(0)
    work = operations(network, options.batch)
    compiled = not options.eager
    steps = [
        stepping(compared(network, head), network, options.batch, compiled and head != "e2cnn"),
        stepping(plain(network), network, options.batch, compiled),
    ]
    ours, lowest = in_turn(steps, options.turns)
    memory = [peak(step) for step in steps] if DEVICE == "cuda" else [0, 1]
    return {
        "network": network,
        "head": head,
        "milliseconds": 1e3 * ours,
        "plain_milliseconds": 1e3 * lowest,
        "ratio": ours / lowest,
        "memory": memory[0] / memory[1],
        "teraflops": work / ours / 1e12,
        "plain_teraflops": work / lowest / 1e12,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    header = ["network", "head", "step", "plain", "ratio", "peak memory", "TFLOP/s", "plain"]
    body = [
        [
            row["network"],
            row["head"],
            f"{row['milliseconds']:.2f} ms",
            f"{row['plain_milliseconds']:.2f} ms",
            f"{row['ratio']:.2f}",
            f"{row['memory']:.2f}",
            f"{row['teraflops']:.0f}",
            f"{row['plain_teraflops']:.0f}",
        ]
        for row in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure every network and head, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--networks", default="sfcnn,sf-wrn16-4", help="networks, with commas")
    parser.add_argument("--heads", default=HEADS, help=f"heads, with commas ({HEADS})")
    parser.add_argument("--batch", type=int, default=64, help="images in a batch (64)")
    parser.add_argument("--turns", type=int, default=20, help="timed calls of each kind (20)")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows = []
    for network in options.networks.split(","):
        peer = ["e2cnn"] if INSTALLED and network == "sfcnn" else []
        for head in [*options.heads.split(","), *peer]:
            torch.compiler.reset()
            rows.append(measure(network, head, options))
            print(f"{network} {head}: {rows[-1]['ratio']:.2f}", flush=True)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
