"""What stands behind the features of turned copies: heads, and what finds the upright one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from invint.models.networks import Network, linear, make_group_pool
from invint.nn import GroupBatchNorm, GroupConv2d, OrbitFeatures, make_head


class SignedRoot(nn.Module):
    r"""Square roots that keep the sign, so that large features do not drown small ones.

    $$x \mapsto \mathrm{sign}(x) \left( \sqrt{|x| + \varepsilon} - \sqrt{\varepsilon} \right)$$

    Shape:
        Any, to the same.
    """

    floor = 1e-3  # bounds the slope at zero

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the roots."""
        roots: Tensor = (x.abs() + self.floor).sqrt() - self.floor**0.5
        return x.sign() * roots


class PoseClassifier(nn.Module):
    r"""Logits of an image by whichever of its copies stands upright: exactly invariant.

    One dense layer takes the features of each copy to the classes, and to one more class for
    copies that are turned:

    $$z_y = \log \sum_{g \in G} p_y(f_g), \qquad p = \mathrm{softmax}(W f_g + b)$$

    Where pictures have an upright this finds it; where they have none it becomes an average.

    Args:
        features: Their number, of each copy.
        num_classes: Number of classes.
        root: Take the signed roots of the features.

    Shape:
        `(b, k, g, 1, 1)` to `(b, classes)`.
    """

    def __init__(self, features: int, num_classes: int, *, root: bool = False) -> None:
        super().__init__()
        self.root = SignedRoot() if root else nn.Identity()
        self.linear = nn.Linear(features, num_classes + 1)

    def forward(self, features: Float[Tensor, "b k g 1 1"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        copies = rearrange(self.root(features), "b k g 1 1 -> b g k")
        return pose_logits(self.linear(copies))


def pose_logits(logits: Float[Tensor, "b g more"]) -> Float[Tensor, "b classes"]:
    """Return the logits of images from those of their copies, of which the last is "turned"."""
    return logits.log_softmax(dim=2)[:, :, :-1].logsumexp(dim=1)


def integrated(  # noqa: PLR0913
    orbit: OrbitFeatures,
    channels: int,
    size: tuple[int, int],
    *,
    head: str,
    group_pool: str,
    widths: Sequence[int],
    head_options: dict[str, Any] | None,
    num_classes: int,
    dropout: float,
    norm_features: bool,
) -> Network:
    """Return a network of turned copies with a head on their maps.

    Args:
        orbit: The maps of the copies, turned back.
        channels: Of these maps.
        size: Their height and width.
        head: Its name.
        group_pool: What is done along the group before a head that takes plain maps.
        widths: Channels of group convolutions of side 1 before that.
        head_options: Of the head.
        num_classes: Number of classes.
        dropout: Fraction of features dropped before the dense layer.
        norm_features: Whether they are normalised.
    """
    layers: list[nn.Module] = []
    for before, width in pairwise([channels, *widths]):
        layers += [GroupConv2d(before, width, 1, orbit.group), GroupBatchNorm(width), nn.ReLU()]
    left, options = [channels, *widths][-1], head_options or {}
    integration = make_head(head, channels=left, size=size, group=orbit.group, **options)
    pool = make_group_pool(group_pool, left, orbit.group)
    layers += [] if integration.takes_group else [pool]
    last = last_layers(
        integration.out_features, num_classes, dropout=dropout, norm_features=norm_features
    )
    return Network(orbit, nn.Sequential(*layers, integration), last)


def last_layers(features: int, classes: int, *, dropout: float, norm_features: bool) -> nn.Module:
    """Return one dense layer, with what comes before it."""
    dense = linear(features, classes, norm_features=norm_features)
    return nn.Sequential(nn.Dropout(dropout), dense) if dropout else dense
