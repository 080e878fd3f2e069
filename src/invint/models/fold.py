"""Networks in inference form: ordinary convolutions, normalisation merged into them."""

import copy
from itertools import pairwise

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from invint.nn import GroupBatchNorm, GroupConv2d, Head, LiftConv2d


class FoldedConv2d(nn.Module):
    """An ordinary convolution in the place of a steerable one: its filters are stored.

    Args:
        convolution: What `LiftConv2d.fold` or `GroupConv2d.fold` returns.
        order: Order of the group.
        lifts: Whether the input is an image, without a group axis.

    Shape:
        `(b, c, h, w)` if it lifts, else `(b, c, g, h, w)`, to `(b, o, g, h', w')`.
    """

    def __init__(self, convolution: nn.Conv2d, order: int, *, lifts: bool) -> None:
        super().__init__()
        self.convolution, self.order, self.lifts = convolution, order, lifts

    @property
    def out_channels(self) -> int:
        """Channels of the map, for each element of the group."""
        return self.convolution.out_channels // self.order

    def forward(self, x: Float[Tensor, "b c ..."]) -> Float[Tensor, "b o g y x"]:
        """Convolve, with the group axis folded into channels."""
        flat = x if self.lifts else rearrange(x, "b c g h w -> b (c g) h w", g=self.order)
        out: Tensor = self.convolution(flat)
        return rearrange(out, "b (o g) y x -> b o g y x", g=self.order)


def fold(model: nn.Module) -> nn.Module:
    """Return the inference form of a network: another network that computes the same function.

    Every steerable convolution becomes an ordinary one, and batch normalisation that directly
    follows a convolution in an `nn.Sequential` becomes part of it. Heads stay as they are, and so
    does the network given. What is returned is in evaluation mode and not meant for training.

    Example:
        >>> from invint import create_model
        >>> folded = fold(create_model("sfcnn-small"))
    """
    return _folded(copy.deepcopy(model).eval())


def _folded(module: nn.Module) -> nn.Module:
    if isinstance(module, LiftConv2d | GroupConv2d):
        return FoldedConv2d(module.fold(), module.group.order, lifts=module.lifts)
    if isinstance(module, Head | FoldedConv2d):
        return module
    for name, child in module._modules.items():  # a shared child has every one of its names here
        if child is not None:
            module._modules[name] = _folded(child)
    if type(module).forward is nn.Sequential.forward:
        _merge_norms(module._modules)
    return module


def _merge_norms(layers: dict[str, nn.Module | None]) -> None:
    """Merge every normalisation that follows a convolution, leaving an identity in its place."""
    for first, second in pairwise(list(layers)):
        merged = _merged(layers[first], layers[second])
        if merged is not None:
            layers[first], layers[second] = merged, nn.Identity()


def _merged(layer: nn.Module | None, norm: nn.Module | None) -> nn.Module | None:
    """Return both layers in one, or nothing where they do not go together."""
    if isinstance(layer, FoldedConv2d) and isinstance(norm, GroupBatchNorm):
        merged = _merged_convolution(layer.convolution, norm, layer.order)
        return FoldedConv2d(merged, layer.order, lifts=layer.lifts)
    if type(layer) is nn.Conv2d and type(norm) is nn.BatchNorm2d and norm.running_mean is not None:
        return _merged_convolution(layer, norm, 1)
    return None


def _merged_convolution(
    layer: nn.Conv2d, norm: GroupBatchNorm | nn.BatchNorm2d, order: int
) -> nn.Conv2d:
    given = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    mean, variance, weight, bias = (
        torch.full_like(layer.weight[:, 0, 0, 0], default)
        if each is None
        else each.detach().repeat_interleave(order)
        for each, default in zip(given, (0.0, 1.0, 1.0, 0.0), strict=True)
    )
    merged = copy.deepcopy(layer)
    merged.weight, merged.bias = fuse_conv_bn_weights(
        layer.weight, layer.bias, mean, variance, norm.eps, weight, bias
    )
    return merged
