"""Networks narrow enough for tests, and a few steps of training for them."""

from typing import Any

import torch
from torch import Tensor, nn

from invint import create_model
from invint.models import Network

NARROW: dict[str, dict[str, Any]] = {
    "sfcnn": {"widths": (2, 3, 3, 2, 4), "kernel_sizes": (5, 3, 3, 3, 3), "n_fc": 6},
    "sfcnn-small": {"widths": (2, 3, 4), "n_fc": 6},
    "sf-wrn16-4": {"stem": 2, "widths": (2, 3, 4), "kernel_size": 3},
    "sf-wrn16-8": {"stem": 2, "widths": (2, 3, 4), "kernel_size": 3},
    "orbit-gradients": {"widths": (4,)},
    "sf-wrn28-10": {"stem": 2, "widths": (2, 2, 3), "kernel_size": 3},
}


def narrow(name: str, **options: Any) -> Network:
    return create_model(name, num_classes=3, in_channels=1, **NARROW[name] | options).double()


def train(model: nn.Module, x: Tensor) -> None:
    """Take a few steps on upright images, so that nothing is as it was built."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    labels = torch.arange(len(x)) % 3
    model.train()
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()


def last(model: nn.Module) -> Tensor:
    """Return the weights of the last layer."""
    return [each for each in model.modules() if isinstance(each, nn.Linear)][-1].weight
