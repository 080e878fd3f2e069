"""Time EfficientNet-lite0 over turned copies on a CPU: channels last or not, folded or not.

All forms of one size are timed in turn, in seconds of the processor: on a shared machine the clock
says more about others. The least of the readings counts. As many images go together as
`orbit_features` takes.

usage: OMP_NUM_THREADS=1 python benchmarks/orbit.py [--turns 3] [--record NAME]
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from record import markdown_table, recording_parser, show_table
from torch import Tensor, nn

from invint import create_model
from invint.models import fold
from invint.models.efficientnet import PixelInput
from invint.nn import OrbitFeatures
from invint.train.features import PIXELS

SIDES = (96, 128, 160, 224)
FORMS = ("as built", "folded", "as built, last", "folded, last")


class Layout(nn.Module):
    """Pixels in a layout of memory, for what follows."""

    def __init__(self, layout: torch.memory_format) -> None:
        super().__init__()
        self.pixels, self.layout = PixelInput(), layout

    def forward(self, images: Tensor) -> Tensor:
        """Normalise."""
        normal: Tensor = self.pixels(images)
        return normal.contiguous(memory_format=self.layout)


def forms(name: str, side: int) -> list[nn.Module]:
    """Return the features of a network in each of the forms."""
    found: list[nn.Module] = []
    for layout in (torch.contiguous_format, torch.channels_last):
        features = create_model(name, image_size=side).eval().features
        backbone = features.backbone if isinstance(features, OrbitFeatures) else features
        if isinstance(backbone, nn.Sequential):
            backbone[0] = Layout(layout)
        found += [features, fold(features)]
    return found


def processor_seconds(calls: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Return the least time of each call, called in turn."""
    for call in calls:
        call()
    times: list[list[float]] = []
    for _ in range(turns):
        times.append([])
        for call in calls:
            start = time.process_time()
            call()
            times[-1].append(time.process_time() - start)
    return [min(column) for column in zip(*times, strict=True)]


def row(side: int, turns: int, repeats: int) -> dict[str, Any]:
    """Time all forms over one turn or four."""
    name = "orbit-efficientnet-lite0" if turns == 4 else "efficientnet-lite0"
    count = max(PIXELS // (side**2 * turns), 1)
    images = torch.rand(count, 3, side, side)
    calls: list[Callable[[], object]] = [partial(form, images) for form in forms(name, side)]
    with torch.inference_mode():
        seconds = processor_seconds(calls, repeats)
    ratios = {form: each / seconds[0] for form, each in zip(FORMS, seconds, strict=True)}
    return {"side": side, "turns": turns, "images_per_second": count / min(seconds), **ratios}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown; times are relative to the network as built."""
    header = ["pixels", "turns", *FORMS, "images per CPU second"]
    cells = [
        [
            f"{each['side']}×{each['side']}",
            str(each["turns"]),
            *(f"{each[form]:.2f}" for form in FORMS),
            f"{each['images_per_second']:.0f}",
        ]
        for each in rows
    ]
    return markdown_table(header, cells)


def main() -> None:
    """Measure and print."""
    parser = recording_parser(__doc__ or "")
    parser.add_argument("--turns", type=int, default=3, help="readings of each")
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = [row(side, turns, options.turns) for side in SIDES for turns in (1, 4)]
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
