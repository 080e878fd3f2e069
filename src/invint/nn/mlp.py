"""Invariant integration of a multi-layer perceptron."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.axes import check_axes
from invint.errors import ConfigError
from invint.groups import Group
from invint.nn.maps import Head, as_size, check_fits, check_kernel, full_precision, settled
from invint.ops.constants import own_copy
from invint.ops.mlp import mlp_average, neighbourhoods
from invint.ops.precision import autocast_device


class MLPIntegration(Head):
    """Average of a perceptron on the moved neighbourhoods of every pixel.

    Args:
        channels: Channels of the map, of every layer, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the neighbourhood in pixels; odd.
        layers: Linear layers, each followed by ReLU; without bias, as the formula is printed.

    Shape:
        `(b, channels, h, w)` to `(b, channels)`.
    """

    samples: Tensor

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        kernel_size: int = 3,
        layers: int = 2,
    ) -> None:
        super().__init__()
        check_kernel(kernel_size, as_size(size, "MLPIntegration"), "MLPIntegration")
        if layers < 1:
            raise ConfigError(f"MLPIntegration: layers must be at least 1, got {layers}")
        self.channels, self.out_features, self.group = channels, channels, group
        self.kernel_size = kernel_size
        samples = own_copy(neighbourhoods(group, kernel_size))
        self.register_buffer("samples", samples, persistent=False)
        first = torch.randn(channels, channels, kernel_size**2)
        rest = [torch.randn(channels, channels) for _ in range(layers - 1)]
        self.weights = nn.ParameterList(
            nn.Parameter(weight * math.sqrt(2 / weight[0].numel())) for weight in (first, *rest)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        check_axes(x, "b c h w", "MLPIntegration", c=self.channels)
        check_fits(self.kernel_size, (x.shape[-2], x.shape[-1]), "MLPIntegration")
        with torch.autocast(autocast_device(x), enabled=False):
            weights = [full_precision(weight) for weight in self.weights]
            out = mlp_average(full_precision(x), weights, full_precision(self.samples))
        return settled(out, x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, group={self.group}, kernel_size={self.kernel_size}"
