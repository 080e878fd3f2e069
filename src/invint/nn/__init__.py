"""Layers on plain tensors: `(b, c, g, h, w)` on a group, `(b, c, h, w)` off it."""

from invint.nn.bispectrum import GroupBispectrum
from invint.nn.convolution import GroupConv2d, LiftConv2d
from invint.nn.heads import (
    HEADS,
    GlobalWeightedSum,
    LocalWeightedSum,
    MLPIntegration,
    SelfAttentionIntegration,
    SteerableIntegration,
    make_head,
)
from invint.nn.joint import JointMLPIntegration, JointMonomialIntegration, JointWeightedSum
from invint.nn.layers import GlobalPool, GroupBatchNorm, GroupDropout, GroupPool, SpatialPool
from invint.nn.maps import Head
from invint.nn.means import GeneralisedMean
from invint.nn.monomials import MonomialIntegration, Monomials
from invint.nn.orbit import Orbit, OrbitFeatures

__all__ = [
    "HEADS",
    "GeneralisedMean",
    "GlobalPool",
    "GlobalWeightedSum",
    "GroupBatchNorm",
    "GroupBispectrum",
    "GroupConv2d",
    "GroupDropout",
    "GroupPool",
    "Head",
    "JointMLPIntegration",
    "JointMonomialIntegration",
    "JointWeightedSum",
    "LiftConv2d",
    "LocalWeightedSum",
    "MLPIntegration",
    "MonomialIntegration",
    "Monomials",
    "Orbit",
    "OrbitFeatures",
    "SelfAttentionIntegration",
    "SpatialPool",
    "SteerableIntegration",
    "make_head",
]
