"""Put every head in the place of a network's global pooling, and measure what invariance is left.

The same heads on an ordinary CNN and on a steerable one, both with random weights: how much the
logits change when real digits are turned by 90°.

usage: python examples/dropin.py
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import interpolate

from invint import Cyclic, Group
from invint.nn import (
    HEADS,
    GroupBatchNorm,
    GroupConv2d,
    GroupPool,
    LiftConv2d,
    SpatialPool,
    make_head,
)

# The others need a map on the group.
DROP_IN = [name for name, head in HEADS.items() if not getattr(head, "takes_group", False)]
IMAGE = (1, 28, 28)


def plain_backbone() -> nn.Sequential:
    """Return an ordinary CNN without its pooling and classifier: to `(b, 32, 7, 7)`."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


def steerable_backbone(group: Group) -> nn.Sequential:
    """Return a steerable network of the same depth, pooled over the group: to `(b, 32, 7, 7)`."""
    return nn.Sequential(
        LiftConv2d(1, 8, 5, group),
        GroupBatchNorm(8),
        nn.ReLU(),
        SpatialPool("max"),
        GroupConv2d(8, 32, 5, group),
        GroupBatchNorm(32),
        nn.ReLU(),
        SpatialPool("max"),
        GroupPool("max"),
    )


def with_head(
    backbone: nn.Module, name: str, *, image: tuple[int, int, int], group: Group, classes: int
) -> nn.Sequential:
    """Return the backbone with a head and a linear classifier.

    Args:
        backbone: Takes images to maps `(b, c, h, w)`.
        name: One of `DROP_IN`.
        image: Channels, height and width of the images; the size of the map follows from it.
        group: The symmetries the head averages over.
        classes: Number of logits.
    """
    mode = backbone.training
    with torch.no_grad():
        _, channels, height, width = backbone.eval()(torch.zeros(1, *image)).shape
    backbone.train(mode)
    head = make_head(name, channels=channels, size=(height, width), group=group)
    features = head.out_features
    return nn.Sequential(backbone, head, nn.Linear(features, classes))


def change(model: nn.Module, images: Tensor) -> float:
    """Return the relative change of the logits under a quarter turn."""
    with torch.no_grad():
        still, turned = model.eval()(images), model(images.rot90(dims=(2, 3)))
    relative: Tensor = (turned - still).norm() / still.norm()
    return relative.item()


def main() -> None:
    """Print one line per head."""
    torch.manual_seed(0)
    group = Cyclic(8)
    small = torch.tensor(load_digits().images[:20, None] / 16, dtype=torch.float32)
    images = interpolate(small, size=IMAGE[1:], mode="bicubic")
    backbones = [plain_backbone(), steerable_backbone(group)]
    print("Relative change of the logits when digits are turned by 90°, random weights\n")
    print("head        features  weights   ordinary CNN   steerable")
    for name in DROP_IN:
        models = [
            with_head(backbone, name, image=IMAGE, group=group, classes=10)
            for backbone in backbones
        ]
        plain, steerable = (change(model, images) for model in models)
        weights = sum(parameter.numel() for parameter in models[0][1].parameters())
        features = models[0][2].in_features
        print(f"{name:10s}  {features:8d}  {weights:7d}   {plain:12.0e}   {steerable:9.0e}")


if __name__ == "__main__":
    main()
