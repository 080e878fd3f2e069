"""Plain convolutional networks: the baseline for Rotated-MNIST, and a small one for digits."""

from collections.abc import Sequence

from torch import nn

from invint.errors import ConfigError
from invint.models.network import Network, dense
from invint.nn import GlobalPool


def cnn7(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (28, 28),
    channels: int = 20,
    dropout: float = 0.3,
) -> Network:
    """Seven convolutions of side 3, the last of side 4, as Cohen and Welling compare with."""
    left = [((side - 4) // 2) - 8 for side in image_size]  # what six convolutions leave
    if min(left) < 4:
        raise ConfigError(f"cnn7: images must be at least 28 x 28, got {image_size}")
    layers: list[nn.Module] = []
    for number in range(1, 7):
        before = in_channels if number == 1 else channels
        layers += [nn.Conv2d(before, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
        layers += [nn.MaxPool2d(2)] if number == 2 else []
    layers += [nn.Conv2d(channels, channels, 4), nn.BatchNorm2d(channels), nn.ReLU()]
    head = GlobalPool(channels, "max")
    return Network(nn.Sequential(*layers), head, nn.Linear(channels, num_classes))


def small_cnn(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    widths: Sequence[int] = (16, 24, 40),
    n_fc: int = 32,
    dropout: float = 0.0,
) -> Network:
    """Three convolutions with pooling between them, global maximum, three dense layers."""
    layers: list[nn.Module] = []
    before = in_channels
    for number, width in enumerate(widths):
        layers += [nn.Conv2d(before, width, 5, padding=2, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if number < 2 else []
        before = width
    classifier = dense([widths[-1], n_fc, n_fc, num_classes], dropout)
    return Network(nn.Sequential(*layers), GlobalPool(widths[-1], "max"), classifier)
