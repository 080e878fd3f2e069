"""The network of the paper built with e2cnn, where it is installed, to time it beside ours."""

from importlib.util import find_spec

from einops import rearrange
from torch import Tensor, nn

from invint.models.networks import dense

WIDTHS, KERNELS, POOLED = (24, 32, 36, 36, 64), (9, 7, 7, 7, 7), (2, 4)
INSTALLED = find_spec("e2cnn") is not None


class PeerNetwork(nn.Module):
    """The layers of `sfcnn` with pooling, as e2cnn offers them."""

    def __init__(self) -> None:
        super().__init__()
        from e2cnn import gspaces
        from e2cnn import nn as enn

        space = gspaces.Rot2dOnR2(16)
        self.wrap = enn.GeometricTensor
        self.input = field = enn.FieldType(space, [space.trivial_repr])
        layers = []
        for number, (width, kernel) in enumerate(zip(WIDTHS, KERNELS, strict=True), start=1):
            out = enn.FieldType(space, width * [space.regular_repr])
            layers += [
                enn.R2Conv(field, out, kernel, padding=kernel // 2, bias=False),
                enn.InnerBatchNorm(out),
                enn.ReLU(out),
            ]
            layers += [enn.PointwiseMaxPool(out, 2)] if number in POOLED else []
            field = out
        self.features = enn.SequentialModule(*layers, enn.GroupPooling(field))
        self.classifier = dense([WIDTHS[-1], 96, 96, 10], 0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images."""
        maps = self.features(self.wrap(images, self.input)).tensor
        logits: Tensor = self.classifier(rearrange(maps, "b c h w -> b c (h w)").amax(dim=-1))
        return logits
