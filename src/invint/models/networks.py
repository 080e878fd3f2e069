"""Networks as features, head and dense layers: plain CNNs, and the steerable CNN of the paper."""

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, did_you_mean
from invint.groups import Cyclic, Group
from invint.nn import (
    GlobalPool,
    GroupBatchNorm,
    GroupBispectrum,
    GroupConv2d,
    GroupPool,
    Head,
    LiftConv2d,
    SpatialPool,
    make_head,
)
from invint.nn.maps import HeadsAtDepths
from invint.ops.steerable import Rings

if TYPE_CHECKING:
    from invint.models.depths import FeatureMaps


class NoClassifier(nn.Identity):
    """What is in the place of a classifier that was removed.

    Args:
        in_features: What the layer took that was here.
    """

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.in_features = in_features


class Network(nn.Module):
    """A classifier of images in two halves that can be called apart, with the methods of timm.

    Args:
        features: Takes images to the last feature map, or to those of several depths.
        head: Takes what that returns to features of the image.
        classifier: Takes these to logits.

    Attributes:
        spec: What `create_model` made it from, and what `from_pretrained` read beside; empty where
            it was put together by hand.

    Shape:
        `(b, c, h, w)` to `(b, classes)`.
    """

    def __init__(self, features: nn.Module, head: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features, self.head, self.classifier = features, head, classifier
        self.spec: dict[str, Any] = {}

    def forward_features(self, images: Float[Tensor, "b c h w"]) -> Any:
        """Return the last feature map: `(b, c, g, h, w)` of a steerable network.

        Where heads are at several depths it is a tuple of maps, the last one first.
        """
        return self.features(images)

    def forward_head(self, features: Any, pre_logits: bool = False) -> Float[Tensor, "b ..."]:
        """Return the logits of what `forward_features` returns.

        Args:
            features: The map, or the tuple of maps.
            pre_logits: Stop before the last layer, at `head_hidden_size` features of the image.
        """
        pooled: Tensor = self.head(features)
        logits: Tensor = (
            before_last(self.classifier, pooled) if pre_logits else self.classifier(pooled)
        )
        return logits

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Return logits, or what is left where the classifier was taken away."""
        return self.forward_head(self.forward_features(images))

    @property
    def num_features(self) -> int:
        """Channels of the last feature map."""
        channels = last_channels(self.features)
        if channels is None:
            raise ConfigError("Network: its features have no convolution to count channels of")
        return channels

    @property
    def head_hidden_size(self) -> int:
        """Features that the last layer takes."""
        return int(self.get_classifier().in_features)  # type: ignore[arg-type]

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without a classifier."""
        return int(getattr(self.get_classifier(), "out_features", 0))

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        """What timm asks a network about its images: their size, and how they are normalised."""
        return {
            "architecture": self.spec.get("name", type(self).__name__),
            "num_classes": self.num_classes,
            "input_size": (self.spec.get("in_channels"), *self.spec.get("image_size", ())),
            "mean": self.spec.get("mean", (0.0,)),
            "std": self.spec.get("std", (1.0,)),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
        }

    def get_classifier(self) -> nn.Module:
        """Return the last layer of all."""
        return last_of(self, "classifier")[1]

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Put a fresh last layer in the place of the present one; what is before it stays.

        Args:
            num_classes: Number of classes; 0 leaves the layer out, so that the network returns
                `head_hidden_size` features.
            global_pool: The empty text leaves out the head and all after it, so that the network
                returns maps; otherwise the head stays, as it is what makes a network invariant.
        """
        if global_pool not in (None, "") or (global_pool == "" and num_classes):
            raise ConfigError(
                "reset_classifier: the head stays; global_pool can be '' with num_classes=0 alone, "
                f"got {global_pool!r} with {num_classes}"
            )
        owner, last = last_of(self, "classifier")
        name = "classifier" if owner is self else list(owner._modules)[-1]
        like = next(chain(self.parameters(), self.buffers()))
        width = self.head_hidden_size
        fresh: nn.Module = NoClassifier(width)
        if num_classes:
            fresh = nn.Linear(width, num_classes, device=like.device, dtype=like.dtype)
        owner._modules[name] = fresh.train(last.training)
        if global_pool == "":
            self.head, self.classifier = nn.Identity(), NoClassifier(width)
        self.spec = {**self.spec, "num_classes": num_classes} if self.spec else {}
        self.spec.pop("class_names", None)

    def get_intermediate_layers(
        self, images: Float[Tensor, "b c h w"], n: int | Sequence[int] = 1
    ) -> tuple[Tensor, ...]:
        """Return maps of several depths, the deepest one last: the last map of every size.

        They have the axes of `forward_features`: a group axis where the network has one. Maps of
        residual networks but the last are taken before normalisation.

        Args:
            images: The images.
            n: How many of the last, or which; negative numbers count from the end.
        """
        from invint.models.depths import intermediate_maps

        return intermediate_maps(self.features, images, n)

    def features_only(
        self, out_indices: Sequence[int] | None = None, *, pool: str | None = "max"
    ) -> "FeatureMaps":
        """Return the part of the network that gives maps of several depths, the deepest one last.

        Args:
            out_indices: Which depths; all by default.
            pool: What is done along the group, `max` or `mean`, so that maps are `(b, c, h, w)`
                and turn with the image; `None` leaves the axis of the group.
        """
        from invint.models.depths import FeatureMaps

        return FeatureMaps(self, out_indices, pool=pool)

    def save_pretrained(self, folder: str | Path, card: Any = None, **facts: Any) -> Path:
        """Write a folder that `from_pretrained` reads, as `invint.export.save_pretrained` does."""
        from invint.export.hub import save_pretrained

        return save_pretrained(self, folder, card, **facts)

    @classmethod
    def from_pretrained(cls, source: str | Path, **options: Any) -> "Network":
        """Read a network from a folder, a file or the Hub: `invint.export.from_pretrained`."""
        from invint.export.hub import from_pretrained

        return from_pretrained(source, **options)

    def push_to_hub(self, repo_id: str, card: Any = None, **options: Any) -> str:
        """Write a repository on the Hub, as `invint.export.push_to_hub` does."""
        from invint.export.hub import push_to_hub

        return push_to_hub(self, repo_id, card, **options)


def last_of(owner: nn.Module, name: str) -> tuple[nn.Module, nn.Module]:
    """Return the last layer of a part that may be layers in a row, and what it is a part of."""
    last = owner.get_submodule(name)
    while isinstance(last, nn.Sequential) and len(last):
        owner, last = last, last[-1]
    if not isinstance(last, nn.Linear | NoClassifier):
        raise ConfigError(
            f"Network: expected a {name} that ends in nn.Linear, got {type(last).__name__}; "
            "change it by hand"
        )
    return owner, last


def last_channels(module: nn.Module) -> int | None:
    """Return the channels that the last convolution in a module returns, if it has one."""
    if hasattr(module, "out_channels"):
        return int(module.out_channels)  # type: ignore[arg-type]
    found = map(last_channels, reversed(list(module.children())))
    return next((channels for channels in found if channels is not None), None)


def before_last(layers: nn.Module, x: Tensor) -> Tensor:
    """Return what the last of layers in a row is given."""
    if not isinstance(layers, nn.Sequential):
        return x
    *first, last = layers
    for layer in first:
        x = layer(x)
    return before_last(last, x)


GROUP_POOLS = ("max", "mean", "bispectrum")


def make_group_pool(kind: str, channels: int, group: Group) -> nn.Module:
    """Return what takes a map off the group, by its name."""
    if kind not in GROUP_POOLS:
        hint = did_you_mean(kind, GROUP_POOLS)
        raise ConfigError(f"no group_pool {kind!r}; {hint}there are {', '.join(GROUP_POOLS)}")
    if kind == "bispectrum":
        return GroupBispectrum(channels, group)
    return GroupPool("mean" if kind == "mean" else "max")


def after_group(head: Head, name: str, group_pool: str, channels: int, group: Group) -> nn.Module:
    """Put group pooling before a head, unless it takes the map with its group axis."""
    pool = make_group_pool(group_pool, channels, group)
    if not head.takes_group:
        return nn.Sequential(pool, head)
    if group_pool != "max":
        raise ConfigError(
            f"head {name!r} takes the map on the group; leave group_pool={group_pool} out"
        )
    return head


class Stages(nn.Sequential):
    """Parts of a network in a row; returns the maps at the ends of all parts, the last one first.

    Shape:
        `(b, c, h, w)` to a tuple of `(b, c, g, h, w)`.
    """

    def forward(self, images: Float[Tensor, "b c h w"]) -> tuple[Tensor, ...]:
        """Return the maps."""
        maps: tuple[Tensor, ...] = ()
        x: Tensor = images
        for part in self:
            x = part(x)
            maps = (x, *maps)
        return maps


class Depth(NamedTuple):
    """A map that a head may be put on: the last one, or one before it is halved.

    Attributes:
        layers: Number of layers it comes from.
        channels: Its channels.
        size: Its height and width.
        activated: Whether these layers end in normalisation and ReLU.
    """

    layers: int
    channels: int
    size: tuple[int, int]
    activated: bool = True


def chosen_depths(found: Sequence[Depth], count: int, owner: str) -> Sequence[Depth]:
    """Return the last few depths."""
    if not 1 <= count <= len(found):
        raise ConfigError(
            f"{owner}: depths must be from 1 to {len(found)}, the number of sizes its maps have, "
            f"got {count}"
        )
    return found[-count:]


def cut(layers: Sequence[nn.Module], depths: Sequence[Depth]) -> nn.Module:
    """Return layers in a row, as features that end in the map of each depth."""
    ends = [0, *(depth.layers for depth in depths)]
    parts = [nn.Sequential(*layers[start:stop]) for start, stop in pairwise(ends)]
    return parts[0] if len(parts) == 1 else Stages(*parts)


def heads_at(
    depths: Sequence[Depth],
    name: str,
    group: Group,
    group_pool: str,
    options: dict[str, Any] | None,
) -> tuple[nn.Module, int]:
    """Return a head for the map of each depth, the last one first, and the number of features."""
    heads, features = [], 0
    for depth in reversed(depths):
        head = make_head(
            name, channels=depth.channels, size=depth.size, group=group, **(options or {})
        )
        features += head.out_features
        settle = () if depth.activated else (GroupBatchNorm(depth.channels), nn.ReLU())
        pooled = after_group(head, name, group_pool, depth.channels, group)
        heads.append(nn.Sequential(*settle, pooled) if settle else pooled)
    return heads[0] if len(heads) == 1 else HeadsAtDepths(heads), features


def dense(widths: list[int], dropout: float, *, norm_features: bool = False) -> nn.Sequential:
    """Return dense layers with batch normalisation, ReLU and dropout between them.

    Args:
        widths: Features going in, then those of each layer.
        dropout: Fraction of hidden values dropped.
        norm_features: Normalise what goes in as well.
    """
    layers: list[nn.Module] = [nn.BatchNorm1d(widths[0])] if norm_features else []
    for width, following in pairwise(widths[:-1]):
        layers += [nn.Linear(width, following), nn.BatchNorm1d(following), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def linear(features: int, classes: int, *, norm_features: bool) -> nn.Module:
    """Return one dense layer, behind batch normalisation where asked."""
    if norm_features:
        return dense([features, classes], 0.0, norm_features=True)
    return nn.Linear(features, classes)


def halved(size: tuple[int, int], times: int) -> tuple[int, int]:
    """Return the size after halving, rounded up each time."""
    height, width = size
    for _ in range(times):
        height, width = (height + 1) // 2, (width + 1) // 2
    return height, width


def cnn7(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (28, 28),
    channels: int = 20,
    dropout: float = 0.3,
    norm_features: bool = False,
) -> Network:
    """Seven convolutions of side 3, the last of side 4, as Cohen and Welling compare with."""
    left = [((side - 4) // 2) - 8 for side in image_size]  # what six convolutions leave
    if min(left) < 4:
        raise ConfigError(f"cnn7: images must be at least 28 x 28, got {image_size}")
    layers: list[nn.Module] = []
    for layer in range(1, 7):
        before = in_channels if layer == 1 else channels
        layers += [nn.Conv2d(before, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()]
        layers += [nn.Dropout(dropout)]
        layers += [nn.MaxPool2d(2)] if layer == 2 else []
    layers += [nn.Conv2d(channels, channels, 4), nn.BatchNorm2d(channels), nn.ReLU()]
    head = GlobalPool(channels, "max")
    return Network(
        nn.Sequential(*layers), head, linear(channels, num_classes, norm_features=norm_features)
    )


def small_cnn(
    *,
    num_classes: int = 10,
    in_channels: int = 1,
    widths: Sequence[int] = (16, 24, 40),
    n_fc: int = 32,
    dropout: float = 0.0,
    norm_features: bool = False,
) -> Network:
    """Three convolutions with pooling between them, global maximum, three dense layers."""
    layers: list[nn.Module] = []
    before = in_channels
    for index, width in enumerate(widths):
        layers += [nn.Conv2d(before, width, 5, padding=2, bias=False), nn.BatchNorm2d(width)]
        layers += [nn.ReLU()]
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if index < 2 else []
        before = width
    features = [widths[-1], n_fc, n_fc, num_classes]
    classifier = dense(features, dropout, norm_features=norm_features)
    return Network(nn.Sequential(*layers), GlobalPool(widths[-1], "max"), classifier)


def sfcnn(  # noqa: PLR0913
    *,
    head: str = "max",
    num_classes: int = 10,
    in_channels: int = 1,
    image_size: tuple[int, int] = (28, 28),
    group: Group | None = None,
    widths: Sequence[int] = (24, 32, 36, 36, 64),
    kernel_sizes: Sequence[int] = (9, 7, 7, 7, 7),
    pool_after: Sequence[int] = (2, 4),
    n_fc: int = 96,
    dropout: float = 0.0,
    norm_features: bool = False,
    depths: int = 1,
    group_pool: str = "max",
    head_options: dict[str, Any] | None = None,
    rings: Rings | None = None,
) -> Network:
    """Five steerable convolutions, a head, three dense layers (Weiler et al., Rath et al.)."""
    group = group or Cyclic(16)
    if len(widths) != len(kernel_sizes):
        raise ConfigError(
            f"sfcnn: expected one kernel size for each of {len(widths)} widths, "
            f"got {len(kernel_sizes)}"
        )
    layers: list[nn.Module] = []
    found: list[Depth] = []
    size = image_size
    for layer, (width, kernel) in enumerate(zip(widths, kernel_sizes, strict=True), start=1):
        if layer == 1:
            layers.append(LiftConv2d(in_channels, width, kernel, group, rings=rings))
        else:
            layers.append(GroupConv2d(widths[layer - 2], width, kernel, group, rings=rings))
        layers += [GroupBatchNorm(width), nn.ReLU()]
        if layer in pool_after:
            found.append(Depth(len(layers), width, size))
            layers.append(SpatialPool("max"))
            size = halved(size, 1)
    found.append(Depth(len(layers), widths[-1], size))
    chosen = chosen_depths(found, depths, "sfcnn")
    heads, features = heads_at(chosen, head, group, group_pool, head_options)
    classifier = dense([features, n_fc, n_fc, num_classes], dropout, norm_features=norm_features)
    return Network(cut(layers, chosen), heads, classifier)
