"""Layers on plain tensors: `(b, c, g, h, w)` on a group, `(b, c, h, w)` off it."""

from invint.nn.attention import SelfAttentionIntegration
from invint.nn.convolution import GroupConv2d, LiftConv2d
from invint.nn.dropout import GroupDropout
from invint.nn.heads import HEADS, make_head
from invint.nn.maps import Head
from invint.nn.mlp import MLPIntegration
from invint.nn.monomials import MonomialIntegration, Monomials
from invint.nn.normalization import GroupBatchNorm
from invint.nn.pooling import GlobalPool, GroupPool, SpatialPool
from invint.nn.steerable_integration import SteerableIntegration
from invint.nn.weighted_sums import GlobalWeightedSum, LocalWeightedSum

__all__ = [
    "HEADS",
    "GlobalPool",
    "GlobalWeightedSum",
    "GroupBatchNorm",
    "GroupConv2d",
    "GroupDropout",
    "GroupPool",
    "Head",
    "LiftConv2d",
    "LocalWeightedSum",
    "MLPIntegration",
    "MonomialIntegration",
    "Monomials",
    "SelfAttentionIntegration",
    "SpatialPool",
    "SteerableIntegration",
    "make_head",
]
