"""Plain wide residual networks (Zagoruyko and Komodakis, 2016), with their strides."""

from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.models.network import Network
from invint.nn import GlobalPool


class Block(nn.Module):
    """Two convolutions with normalisation before each, beside a shortcut.

    Args:
        in_channels: Channels going in.
        out_channels: Channels coming out.
        stride: Of the first convolution.
        dropout: Share of values dropped between the convolutions.
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, stride: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(in_channels), nn.ReLU())
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        )
        same = in_channels == out_channels and stride == 1
        self.shortcut = (
            None if same else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """Add the residual to the input, or to its projection."""
        active = self.activate(x)
        kept = x if self.shortcut is None else self.shortcut(active)
        out: Tensor = kept + self.residual(active)
        return out


def blocks_per_stage(depth: int) -> int:
    """Return how many blocks each of three stages has."""
    if depth < 10 or (depth - 4) % 6:
        raise ConfigError(f"wide residual networks have depth 6n + 4 (10, 16, 22, …), got {depth}")
    return (depth - 4) // 6


def wide_resnet(
    *,
    depth: int,
    width: int,
    num_classes: int = 10,
    in_channels: int = 3,
    dropout: float = 0.0,
) -> Network:
    """Stem, three stages of residual blocks, average pooling, one dense layer."""
    blocks = blocks_per_stage(depth)
    channels = [16, 16 * width, 32 * width, 64 * width]
    layers: list[nn.Module] = [nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)]
    for stage in range(3):
        for number in range(blocks):
            before = channels[stage] if number == 0 else channels[stage + 1]
            stride = 2 if stage > 0 and number == 0 else 1
            layers.append(Block(before, channels[stage + 1], stride=stride, dropout=dropout))
    layers += [nn.BatchNorm2d(channels[-1]), nn.ReLU()]
    _initialise(layers)
    head = GlobalPool(channels[-1], "mean")
    return Network(nn.Sequential(*layers), head, nn.Linear(channels[-1], num_classes))


def _initialise(layers: list[nn.Module]) -> None:
    for layer in layers:
        for module in layer.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
