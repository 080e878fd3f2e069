"""Any network made equivariant: run over the turned copies of an image, its maps turned back."""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, ShapeError, check_axes
from invint.groups import Group
from invint.nn.layers import GroupPool, Kind
from invint.nn.maps import Head
from invint.ops.grids import inscribed_disc, move_back, move_by


class OrbitFeatures(nn.Module):
    r"""The maps of any network on the moved copies of an image, moved back: a map on the group.

    $$F_g(x) = g \cdot f(g^{-1} x), \qquad F_g(a\,x) = a \cdot F_{a^{-1}g}(x)$$

    The second equation holds whatever $f$ is. It is exact for quarter turns and their mirrors,
    which permute pixels: the network sees the same copies, in another order. Strides, padding and
    odd or even sizes do not matter. For finer groups copies and maps are interpolated, inside the
    disc that stays in a turning image, what is outside being zero; quarter turns remain exact.

    Args:
        backbone: Takes `(b, c, h, w)` to a map `(b, k, h', w')` or to features `(b, k)`, each
            image by itself.
        group: The symmetries.
        chunk: Copies that go through the backbone together, to bound memory; all by default.
            In training this changes what batch normalisation sees.
        frozen: Leave the backbone as it is: no gradients of its parameters, always in evaluation
            mode. Otherwise it follows the mode of this module.

    Attributes:
        one_copy: In training, return the map of one random copy of each image, with $g$ of 1:
            what it learns from costs as much as the backbone alone. `False` unless it is set.

    Shape:
        `(b, c, h, w)` to `(b, k, g, h', w')`; features to `(b, k, g, 1, 1)`. Groups finer than
        quarter turns take square images.
    """

    def __init__(
        self,
        backbone: nn.Module,
        group: Group,
        *,
        chunk: int | None = None,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        if chunk is not None and chunk < 1:
            raise ConfigError(f"OrbitFeatures: chunk must be at least 1, got {chunk}")
        self.backbone, self.group, self.chunk, self.frozen = backbone, group, chunk, frozen
        self.one_copy = False
        if frozen:
            backbone.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> "OrbitFeatures":
        """Set the mode; a frozen backbone keeps to evaluation."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k g y x"]:
        """Return the maps of all copies, turned back."""
        check_axes(images, "b c h w", "OrbitFeatures")
        if self._interpolates:
            images = self._inside_disc(images)
        if self.one_copy and self.training:
            return self._random_copy(images)
        maps: list[Tensor] = [images] * self.group.order
        for elements in self._passes(images):
            for element, found in zip(elements, self._run(images, elements), strict=True):
                maps[element] = self._turned(found, element)
        sizes = {(each.shape[-2], each.shape[-1]) for each in maps}
        if len(sizes) > 1:
            raise ShapeError(
                f"OrbitFeatures: the maps of turned copies have sizes {sorted(sizes)}; the "
                "backbone must treat height and width alike"
            )
        return torch.stack(maps, dim=2)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"group={self.group}, chunk={self.chunk}, frozen={self.frozen}"

    @property
    def _interpolates(self) -> bool:
        return 4 % self.group.n != 0

    def _inside_disc(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        if height != width:
            raise ShapeError(
                f"OrbitFeatures: {self.group} turns square images only, got {height} x {width}; "
                "use a group of quarter turns, or cut squares"
            )
        return images * inscribed_disc(images)

    def _random_copy(self, images: Tensor) -> Tensor:
        """Return the map of one copy of each image, turned back."""
        count, height, width = len(images), *images.shape[-2:]
        if height != width:  # copies would not fit into one batch
            raise ShapeError(f"OrbitFeatures: one_copy takes square images, got {height} x {width}")
        elements, every = range(self.group.order), torch.arange(count, device=images.device)
        drawn = torch.randint(self.group.order, (count,), device=images.device)
        copies = torch.stack([move_back(images, self.group, each) for each in elements])
        found = self._run(copies[drawn, every], [0])[0]
        maps = torch.stack([self._turned(found, each) for each in elements])[drawn, every]
        return rearrange(maps, "b k y x -> b k 1 y x")

    def _passes(self, images: Tensor) -> list[list[int]]:
        """Return which copies go through the backbone together: those of one size."""
        elements, together = list(range(self.group.order)), [list(range(self.group.order))]
        if images.shape[-2] != images.shape[-1]:  # then the group is one of quarter turns
            across = [each for each in elements if each % self.group.n * 4 // self.group.n % 2]
            together = [[each for each in elements if each not in across], across]
        size = self.chunk or self.group.order
        return [part[i : i + size] for part in together for i in range(0, len(part), size)]

    def _run(self, images: Tensor, elements: Sequence[int]) -> Tensor:
        """Return the maps of some copies, one copy after another."""
        copies = torch.cat([move_back(images, self.group, each) for each in elements])
        found, count = (
            self.backbone(copies),
            copies.shape[0],
        )  # not len(), which export cannot trace
        if not isinstance(found, Tensor) or found.ndim not in (2, 4) or found.shape[0] != count:
            came = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found)
            raise ShapeError(
                "OrbitFeatures: the backbone must return a map (b, k, h, w) or features (b, k) "
                f"for {count} images, got {came}; cut off what follows"
            )
        return rearrange(found, "(g b) ... -> g b ...", g=len(elements))

    def _turned(self, found: Tensor, element: int) -> Tensor:
        """Turn a map back to where its image was; features have nothing to turn."""
        if found.ndim == 2:
            return rearrange(found, "b k -> b k 1 1")
        found = move_by(found, self.group, element)
        return found * inscribed_disc(found) if self._interpolates else found


class Orbit(nn.Module):
    r"""Any network made invariant: its maps on the moved copies of an image, integrated.

    With the default head this is the group average of the network, which is invariant whatever the
    network is,

    $$A(x) = \frac{1}{|G|} \sum_{g \in G} f(g^{-1} x),$$

    averaged over positions too where $f$ returns a map; other heads integrate jointly over
    positions and elements. Exact for quarter turns and mirrors, as `OrbitFeatures` is.

    Args:
        backbone: Takes `(b, c, h, w)` to a map `(b, k, h', w')` or to features `(b, k)`.
        group: The symmetries.
        head: Takes the map to features; by default the mean over positions and elements.
        pool: What is done along the group before a head that takes plain maps: `mean` or `max`.
        chunk: As for `OrbitFeatures`.
        frozen: As for `OrbitFeatures`.

    Shape:
        `(b, c, h, w)` to `(b, features)`.

    Example:
        >>> from invint import parse_group
        >>> layer = Orbit(nn.Conv2d(1, 8, 3, stride=2), parse_group("C4"))
        >>> layer(torch.randn(2, 1, 28, 28)).shape
        torch.Size([2, 8])
    """

    def __init__(
        self,
        backbone: nn.Module,
        group: Group,
        head: Head | None = None,
        *,
        pool: Kind = "mean",
        chunk: int | None = None,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.features = OrbitFeatures(backbone, group, chunk=chunk, frozen=frozen)
        average = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        takes_group = head is not None and head.takes_group
        parts = [] if takes_group else [GroupPool(pool)]
        self.head = nn.Sequential(*parts, average if head is None else head)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b o"]:
        """Return features that stay as images turn."""
        features: Tensor = self.head(self.features(images))
        return features
