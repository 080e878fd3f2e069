"""What every network is: features, a head, dense layers to logits."""

from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from invint.nn import GroupPool, Head


class Network(nn.Module):
    """A classifier of images in two halves that can be called apart.

    Args:
        features: Takes images to the last feature map.
        head: Takes that map to features of the image.
        classifier: Takes these to logits.

    Shape:
        `(b, c, h, w)` to `(b, classes)`.
    """

    def __init__(self, features: nn.Module, head: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features, self.head, self.classifier = features, head, classifier

    def forward_features(self, images: Float[Tensor, "b c h w"]) -> Tensor:
        """Return the last feature map: `(b, c, g, h, w)` of a steerable network."""
        features: Tensor = self.features(images)
        return features

    def forward_head(self, features: Tensor) -> Float[Tensor, "b classes"]:
        """Return the logits of a feature map."""
        logits: Tensor = self.classifier(self.head(features))
        return logits

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        return self.forward_head(self.forward_features(images))


def after_group(head: Head) -> nn.Module:
    """Put group pooling before a head, unless it takes the map with its group axis."""
    return head if head.takes_group else nn.Sequential(GroupPool("max"), head)


def dense(widths: list[int], dropout: float) -> nn.Sequential:
    """Return dense layers with batch normalisation, ReLU and dropout between them."""
    layers: list[nn.Module] = []
    for width, following in pairwise(widths[:-1]):
        layers += [nn.Linear(width, following), nn.BatchNorm1d(following), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def halved(size: tuple[int, int], times: int) -> tuple[int, int]:
    """Return the size after halving, rounded up each time."""
    height, width = size
    for _ in range(times):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width
