"""Time networks: building, folded inference against the plain network of the same tensor shapes.

The plain network is the folded one with other weights: ordinary convolutions that nobody folded,
built anew with random numbers. Training steps of the small networks are timed as they are used.

usage: python benchmarks/networks.py [--turns 5] [--record NAME]
"""

import copy
import time
from functools import partial
from typing import Any

import torch
from record import markdown_table, recording_parser, show_table
from timing import DEVICE, in_turn
from torch import nn

from invint import create_model, list_models
from invint.models import fold

FOLDED = [("sfcnn-small", "monomials", 1, 20, 64), ("sf-wrn16-4", "local-ws", 3, 32, 8)]


def building(name: str) -> dict[str, Any]:
    """Time the building of a network, the best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        create_model(name)
        times.append(time.perf_counter() - start)
    return {"network": name, "what": "build", "seconds": min(times)}


def inference(name: str, head: str, channels: int, side: int, batch: int, turns: int) -> Any:
    """Compare a network as built, folded, and the plain one of the folded one's shapes."""
    model = create_model(name, head=head, in_channels=channels, image_size=side).eval().to(DEVICE)
    folded = fold(model)
    plain = copy.deepcopy(folded)
    for module in plain.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()
    x = torch.rand(batch, channels, side, side, device=DEVICE)
    with torch.no_grad():
        built, fast, floor = in_turn([partial(m, x) for m in (model, folded, plain)], turns)
    ratios = {"as_built": built / floor, "folded": fast / floor}
    return {"network": name, "head": head, "what": "inference", "seconds": floor, **ratios}


def training(name: str, turns: int) -> dict[str, Any]:
    """Time a training step of 64 images of 20 x 20 pixels."""
    model = create_model(name).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters())
    x, labels = torch.rand(64, 1, 20, 20, device=DEVICE), torch.arange(64, device=DEVICE) % 10

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return {"network": name, "what": "training step", "seconds": in_turn([step], turns)[0]}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    header = ["network", "what", "ms", "as built / plain", "folded / plain"]
    body = [
        [
            row["network"] + (f", {row['head']}" if "head" in row else ""),
            row["what"],
            f"{1e3 * row['seconds']:.0f}",
            *(f"{row[name]:.2f}" if name in row else "" for name in ("as_built", "folded")),
        ]
        for row in rows
    ]
    return markdown_table(header, body)


def main() -> None:
    """Measure, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--turns", type=int, default=5, help="timed calls of each kind (5)")
    options = parser.parse_args()
    rows = [building(name) for name in list_models()]
    rows += [inference(*place, options.turns) for place in FOLDED]
    rows += [training(name, options.turns) for name in ("cnn-small", "sfcnn-small")]
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
