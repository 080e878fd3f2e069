"""The maps of a network at several depths: the last one of every size."""

import copy
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Any, cast, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.models.networks import Depth, Network
from invint.nn import GroupPool, OrbitFeatures
from invint.nn.layers import Kind


def intermediate_maps(
    features: nn.Module, images: Float[Tensor, "b c h w"], n: int | Sequence[int] = 1
) -> tuple[Tensor, ...]:
    """Return the last map of every size, the deepest one last; of turned copies, turned back.

    An orbit runs its backbone once for each of them.

    Args:
        features: Layers in a row, the stages of a network, or an orbit of either.
        images: The images.
        n: How many of the last, or which; negative numbers count from the end.
    """
    if not isinstance(features, OrbitFeatures):
        found = walk(in_a_row(features), images)
        return tuple(found[index][1] for index in chosen(n, len(found)))
    layers = in_a_row(features.backbone)
    with torch.no_grad():  # on a copy, whose statistics are its own
        ends = [end for end, _ in walk(copy.deepcopy(layers).eval(), images[:1])]
    options: dict[str, Any] = {"chunk": features.chunk, "frozen": features.frozen}
    return tuple(
        OrbitFeatures(layers[: ends[index]], features.group, **options)(images)
        for index in chosen(n, len(ends))
    )


def in_a_row(features: nn.Module) -> nn.Sequential:
    """Return the layers of features without the stages they may be grouped in."""
    if isinstance(features, nn.Sequential) and type(features) is not nn.Sequential:
        parts = cast("list[nn.Sequential]", list(features))  # those of `Stages` and `PooledDepths`
        return nn.Sequential(*(layer for part in parts for layer in part))
    if isinstance(features, nn.Sequential):
        return features
    raise ConfigError(
        "intermediate maps: expected features that are an nn.Sequential, got "
        f"{type(features).__name__}; call its layers by hand"
    )


def walk(layers: nn.Sequential, images: Tensor) -> list[tuple[int, Tensor]]:
    """Return the last map of every size, each with the number of layers it comes from."""
    found: list[tuple[int, Tensor]] = []
    x, learns = images, False
    for count, layer in enumerate(layers):
        before, x = x, layer(x)
        if learns and is_halved(before, x):
            found.append((count, before))
        learns = learns or any(True for _ in layer.parameters())
    return [*found, (len(layers), x)]


def is_halved(before: Tensor, after: Tensor) -> bool:
    """Whether a map has half the side of another, or less."""
    return after.shape[-1] < before.shape[-1] and 2 * after.shape[-1] <= before.shape[-1] + 1


def chosen(n: int | Sequence[int], count: int) -> list[int]:
    """Return indices from 0, in their order, of the last few or of those that are named."""
    wanted = range(count - n, count) if isinstance(n, int) else n
    indices = [index + count if index < 0 else index for index in wanted]
    if (isinstance(n, int) and not 1 <= n <= count) or not set(indices) <= set(range(count)):
        raise ConfigError(
            f"intermediate maps: there are {count}, one of every size; ask for as many at most, or "
            f"for numbers from 0 to {count - 1}, got {n}"
        )
    return sorted(indices)


class FeatureInfo:
    """What the maps of `FeatureMaps` are, as timm tells it.

    Args:
        depths: The maps.
        reductions: How many times smaller than the image each is.
    """

    def __init__(self, depths: Sequence[Depth], reductions: Sequence[int]) -> None:
        self.depths, self.reductions = tuple(depths), tuple(reductions)

    def channels(self) -> list[int]:
        """Return the channels of each map."""
        return [depth.channels for depth in self.depths]

    def reduction(self) -> list[int]:
        """Return how many times smaller than the image each map is."""
        return list(self.reductions)


def reductions(sides: Sequence[int]) -> list[int]:
    """Return how many times smaller each side is than the first, sizes rounded up at each step."""
    steps = [round(before / after) for before, after in pairwise(sides)]
    return list(accumulate(steps, mul))


class FeatureMaps(nn.Module):
    """The features of a network as maps of several depths, for detection and segmentation.

    Args:
        network: A network of `create_model`; its weights are shared.
        out_indices: Which depths; all by default.
        pool: What is done along the group, `max` or `mean`; `None` leaves its axis.

    Attributes:
        feature_info: Says `channels()` and `reduction()` of the maps.

    Shape:
        `(b, c, h, w)` to a list of `(b, k, h', w')`, the deepest map last.

    Example:
        >>> from invint import create_model
        >>> maps = create_model("sfcnn-small").features_only(out_indices=(0, 2))
        >>> maps.feature_info.channels(), maps.feature_info.reduction()
        ([8, 16], [1, 4])
    """

    def __init__(
        self, network: Network, out_indices: Sequence[int] | None = None, *, pool: str | None
    ) -> None:
        super().__init__()
        if pool is not None and pool not in get_args(Kind):
            raise ConfigError(f"features_only: pool must be max, mean or None, got {pool!r}")
        if not network.spec:
            raise ConfigError("features_only: the network must come from create_model")
        self.features = network.features
        self.pool = None if pool is None else GroupPool(cast("Kind", pool))
        found = self._depths(network.spec)
        wanted = range(len(found)) if out_indices is None else out_indices
        self.out_indices = chosen(list(wanted), len(found))
        smaller = reductions([network.spec["image_size"][1], *(depth.size[1] for depth in found)])
        self.feature_info = FeatureInfo(
            [found[index] for index in self.out_indices],
            [smaller[index] for index in self.out_indices],
        )

    def forward(self, images: Float[Tensor, "b c h w"]) -> list[Tensor]:
        """Return the maps."""
        maps = intermediate_maps(self.features, images, self.out_indices)
        return [self._pooled(each) for each in maps]

    def _pooled(self, found: Tensor) -> Tensor:
        return found if self.pool is None or found.ndim == 4 else self.pool(found)

    def _depths(self, spec: dict[str, Any]) -> list[Depth]:
        """Walk a copy that multiplies nothing."""
        features = self.features
        inner = features.backbone if isinstance(features, OrbitFeatures) else features
        layers = copy.deepcopy(in_a_row(inner)).to("meta").eval()
        image = torch.empty(1, spec["in_channels"], *spec["image_size"], device="meta")
        with torch.no_grad():
            found = walk(layers, image.to(next(layers.parameters()).dtype))
        return [Depth(end, x.shape[1], (x.shape[-2], x.shape[-1])) for end, x in found]
