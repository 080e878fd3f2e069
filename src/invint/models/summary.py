"""What a network is made of, in numbers: parameters, the paper's figure, operations per image."""

from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from invint.models.network import Network
from invint.models.registry import MODELS, create_model
from invint.nn import HEADS, GroupConv2d, LiftConv2d

PAPER = {  # millions of parameters, the columns "# Param." of tables 3, 4 and 5
    ("wrn16-4", None): 2.75,
    ("sf-wrn16-4", "max"): 2.76,
    ("sf-wrn16-4", "monomials"): 2.78,
    ("sf-wrn16-4", "global-ws"): 2.83,
    ("sf-wrn16-4", "local-ws"): 2.77,
    ("wrn28-10", None): 36.5,
    ("sf-wrn28-10", "max"): 36.7,
    ("sf-wrn28-10", "monomials"): 36.8,
    ("sf-wrn28-10", "local-ws"): 36.9,
    ("wrn16-8", None): 10.97,
    ("sf-wrn16-8", "max"): 10.83,
    ("sf-wrn16-8", "monomials"): 10.85,
    ("sf-wrn16-8", "local-ws"): 10.92,
}
IMAGES = {  # channels and side of the paper's images, and of digits
    "cnn7": (1, 28),
    "sfcnn": (1, 28),
    "wrn16-8": (3, 96),
    "sf-wrn16-8": (3, 96),
    "cnn-small": (1, 20),
    "sfcnn-small": (1, 20),
}


@dataclass(frozen=True)
class Summary:
    """One network with one head, built as the paper has it.

    Attributes:
        name: Name of the network.
        head: Name of the head; none for a plain network.
        group: The group as text; none for a plain network.
        widths: Channels of its convolutions in order, repetitions left out.
        functions: Complex basis functions of its largest filters, the paper's `n_F`.
        parameters: Stored parameters.
        paper: Parameters by the paper, in millions, where it says.
        operations: Multiplications for one image.
    """

    name: str
    head: str | None
    group: str | None
    widths: tuple[int, ...]
    functions: int | None
    parameters: int
    paper: float | None
    operations: int

    @property
    def difference(self) -> float | None:
        """Relative difference to the paper's figure."""
        return None if self.paper is None else self.parameters / (1e6 * self.paper) - 1


def summarize(name: str, head: str | None = None) -> Summary:
    """Build a network and count."""
    channels, side = IMAGES.get(name, (3, 32))
    model = create_model(name, head=head, in_channels=channels, image_size=side).eval()
    steerable = [m for m in model.modules() if isinstance(m, LiftConv2d | GroupConv2d)]
    plain = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    widths = dict.fromkeys(conv.out_channels for conv in steerable or plain)
    return Summary(
        name,
        head,
        MODELS[name].group,
        tuple(widths),
        max((conv.rings.functions for conv in steerable), default=None),
        sum(parameter.numel() for parameter in model.parameters()),
        PAPER.get((name, head)),
        _operations(model, channels, side),
    )


def summaries() -> list[tuple[str, str | None]]:
    """Return every network with each of its heads."""
    return [
        (name, head)
        for name, entry in MODELS.items()
        for head in (HEADS if entry.group else (None,))
    ]


def _operations(model: Network, channels: int, side: int) -> int:
    """Count multiplications without doing them."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake, FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.empty(1, channels, side, side))
    return int(counter.get_total_flops() // 2)
