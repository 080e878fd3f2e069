"""Layers on plain tensors: `(b, c, g, h, w)` on a group, `(b, c, h, w)` off it."""

from invint.nn.convolution import GroupConv2d, LiftConv2d
from invint.nn.dropout import GroupDropout
from invint.nn.normalization import GroupBatchNorm
from invint.nn.pooling import GroupPool, SpatialPool

__all__ = [
    "GroupBatchNorm",
    "GroupConv2d",
    "GroupDropout",
    "GroupPool",
    "LiftConv2d",
    "SpatialPool",
]
