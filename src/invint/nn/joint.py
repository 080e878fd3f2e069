"""Integration over position and orientation together, on the map before group pooling.

Group pooling keeps the strongest orientation of each pixel and forgets which one it was. These
heads read several pixels in several orientations at once, all moved by the same element.
"""

import math
from itertools import chain
from random import Random
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d

from invint.errors import ConfigError, check_axes
from invint.groups import Group
from invint.nn.convolution import GroupConv2d
from invint.nn.maps import (
    Head,
    as_built,
    as_size,
    channel_scale,
    check_fits,
    check_kernel,
    full_precision,
    settled,
)
from invint.nn.monomials import default_distance
from invint.ops.monomial import Sampling, joint_sampling, monomial_averages, sampling_plan
from invint.ops.steerable import turned_filters
from invint.ops.tensors import autocast_device, own_copy

PLACES = 8  # by default: samples are shared by monomials, and each place costs one


class Place(NamedTuple):
    """Where a factor is read, relative to the first factor.

    Attributes:
        x: Pixels to the right.
        y: Pixels up.
        element: Number of the group element; 0 is the element of the first factor.
    """

    x: int
    y: int
    element: int


CENTRE = Place(0, 0, 0)


class JointMonomialIntegration(Head):
    r"""Average of monomials over positions and elements together, before group pooling.

    $$A_{c,m}(x) = \frac{1}{UV|G|} \sum_{g,u,v} \prod_i
      \bigl(\max(x_c, 0)[(u,v) + g\,\delta_{mi},\; g\,h_{mi}] + \varepsilon\bigr)^{b_{mi}}$$

    A factor is read at a place: an offset $\delta$ of whole pixels and an element $h$. The first is
    the pixel itself, $\delta = 0$, $h = e$. So quarter turns read pixels as they are; other
    elements interpolate. Places and exponents are shared by the channels, exponents are learned.
    The feature of channel c and monomial m has the index c · (number of monomials) + m.

    Args:
        channels: Channels of the map.
        size: Height and width of the map.
        group: The symmetries.
        monomials: How many.
        factors: Factors of each.
        max_distance: Largest length of an offset; by default half the side of the map, at most 9.
        places: How many places the factors after the first are drawn from; by default 8, or as many
            as there are. Few places are sampled in less time. 0 gives every factor its own.
        seed: Of the places. They follow from the arguments alone, torch's random numbers do not.
        exponents: Lowest and highest exponent at the start.
        floor: Added to every sample before its logarithm; smaller ones make gradients larger.
        scale_free: Take the values of a channel relative to their root mean square over the map,
            of the positive parts, and give the averages this scale: with $s$ for it,
            $s\,A_{c,m}(x / s)$. The floor is then the same part of a channel's values however large
            they are, and twice the map gives twice the features.
        across: Mix the channels by a learned matrix first, so that products go across them.

    Shape:
        `(b, channels, g, h, w)` to `(b, channels · monomials)`.
    """

    takes_group = True
    numbers: Tensor

    def __init__(  # noqa: PLR0913
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        monomials: int = 10,
        factors: int = 3,
        max_distance: int | None = None,
        places: int | None = None,
        seed: int = 0,
        exponents: tuple[float, float] = (0.0, 1.0),
        floor: float = 0.1,
        scale_free: bool = False,
        across: bool = False,
    ) -> None:
        super().__init__()
        owner = "JointMonomialIntegration"
        self.size = as_size(size, owner)
        _check_monomials(monomials, factors, exponents, floor)
        self.channels, self.group, self.floor = channels, group, floor
        found = _places_within(group, _reach(self.size, max_distance))
        _check_places(places, factors, len(found), self.size)
        count = min(PLACES, len(found)) if places is None else places
        random = Random(seed)
        drawn = _some(found, count or len(found), random)
        self._sample([[CENTRE, *_some(drawn, factors - 1, random)] for _ in range(monomials)])
        low, high = exponents
        powers = low + (high - low) * torch.rand(monomials, factors, device="cpu").double()
        self.exponents = nn.Parameter(own_copy(powers))
        mixing = torch.randn(channels, channels) * math.sqrt(2 / channels) if across else None
        self.mixing = None if mixing is None else nn.Parameter(mixing)
        self.scale_free = scale_free
        self.out_features = channels * monomials

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b cm"]:
        """Average."""
        x = as_built(
            x,
            "JointMonomialIntegration",
            channels=self.channels,
            size=self.size,
            group=self.group,
            on_group=True,
        )
        with torch.autocast(autocast_device(x), enabled=False):
            values = x
            if self.mixing is not None:
                values = _mixed(full_precision(x), full_precision(self.mixing))
            if self.scale_free:
                scale = channel_scale(full_precision(values))
                averages = scale * self._average(full_precision(values) / scale[..., None, None])
            else:
                averages = self._average(values)
        return settled(rearrange(averages, "b c m -> b (c m)"), x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        count, factors = self.exponents.shape
        return (
            f"{self.channels}, size={self.size}, group={self.group}, monomials={count}, "
            f"factors={factors}, places={len(self.places) - 1}, floor={self.floor}, "
            f"scale_free={self.scale_free}, across={self.mixing is not None}"
        )

    def _average(self, x: Tensor) -> Float[Tensor, "b c m"]:
        buffers = (getattr(self, name) for name in Sampling._fields)
        return monomial_averages(
            x,
            full_precision(self.exponents),
            self.numbers,
            Sampling(*(full_precision(buffer) for buffer in buffers)),
            plan=self.plan,
            floor=self.floor,
        )

    def _sample(self, factors: list[list[Place]]) -> None:
        """Find the taps that sample the map at the place of every factor."""
        used = dict.fromkeys(place for row in factors for place in row)
        self.places = tuple(used)  # that of the first factors comes first
        numbers = [[self.places.index(place) for place in row] for row in factors]
        offsets = tuple((float(place.x), float(place.y)) for place in self.places)
        elements = tuple(place.element for place in self.places)
        sampling = joint_sampling(self.group, offsets, elements, *self.size)
        self.plan = sampling_plan(sampling, tuple(chain.from_iterable(numbers)), offsets)
        tensors = {"numbers": torch.tensor(numbers, device="cpu"), **sampling._asdict()}
        for name, tensor in tensors.items():
            self.register_buffer(name, own_copy(tensor), persistent=False)


def _mixed(x: Float[Tensor, "b c g h w"], weight: Float[Tensor, "o c"]) -> Tensor:
    """Mix the channels of a map, at every element and position alike."""
    flat = conv2d(rearrange(x, "b c g h w -> b c g (h w)"), rearrange(weight, "o c -> o c 1 1"))
    return rearrange(flat, "b o g (h w) -> b o g h w", h=x.shape[3])


def _check_monomials(
    monomials: int, factors: int, exponents: tuple[float, float], floor: float
) -> None:
    owner = "JointMonomialIntegration"
    if min(monomials, factors) < 1:
        raise ConfigError(
            f"{owner}: monomials and factors must be at least 1, got {monomials} and {factors}"
        )
    if not 0 <= exponents[0] <= exponents[1] < math.inf:
        raise ConfigError(
            f"{owner}: exponents must be a range of numbers that are not negative, as in (0, 2), "
            f"got {exponents}"
        )
    if not torch.finfo(torch.float32).tiny <= floor < math.inf:
        raise ConfigError(f"{owner}: floor must be positive and finite, got {floor}")


def _reach(size: tuple[int, int], max_distance: int | None) -> int:
    """Return the largest distance of a factor."""
    most = min(size) - 1
    reach = min(default_distance(size), most) if max_distance is None else max_distance
    if not 0 <= reach <= most:
        raise ConfigError(
            f"JointMonomialIntegration: a distance of {reach} does not fit a map of "
            f"{size[0]} x {size[1]}; use 0 to {most}"
        )
    return reach


def _check_places(places: int | None, factors: int, found: int, size: tuple[int, int]) -> None:
    owner, wanted = "JointMonomialIntegration", factors - 1
    if wanted > found:
        raise ConfigError(
            f"{owner}: {factors} factors need {wanted} places beside the first, and a map of "
            f"{size[0]} x {size[1]} has {found} in reach; use factors={found + 1} or less"
        )
    if places is None or (places == 0 and wanted <= found) or wanted <= places <= found:
        return
    raise ConfigError(
        f"{owner}: places must be from {wanted}, one less than the factors, to {found}, all in "
        f"reach, or 0 for all, got {places}"
    )


def _places_within(group: Group, reach: int) -> list[Place]:
    """Return every place but that of the first factor."""
    line = range(-reach, reach + 1)
    offsets = [(x, y) for y in line for x in line if math.hypot(x, y) <= reach]
    places = [Place(x, y, element) for x, y in offsets for element in range(group.order)]
    return [place for place in places if place != CENTRE]


def _some(places: list[Place], count: int, random: Random) -> list[Place]:
    """Draw different places; of Python's random numbers these are the same in every version."""
    return sorted(places, key=lambda _: random.random())[:count]


class JointMLPIntegration(Head):
    r"""Average of a perceptron on moved neighbourhoods in all orientations, before group pooling.

    $$A(x) = \frac{1}{UV|G|} \sum_{g,u,v} \sigma(W_l \cdots \sigma(W_1 z_g[u,v])), \qquad
      z_{g,c}[u,v] = \sum_{h,y} x_{c,h}[(u,v) + y]\,K_{g,c,h}(y)$$

    $K$ are steerable filters, one for each channel: what turns with $g$ is the filter in the plane
    and along the elements. Filters for each pair of channels would cost as much as one more layer
    of the network; the matrix $W_1$ does the mixing instead. No bias, so that a map twice as strong
    has features twice as large.

    Args:
        channels: Channels of the map, of every layer, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the filters in pixels; odd. By default 3, or 1 on smaller maps.
        layers: Linear layers, each followed by ReLU.

    Shape:
        `(b, channels, g, h, w)` to `(b, channels)`.
    """

    takes_group = True

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        kernel_size: int | None = None,
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.owner = type(self).__name__
        height, width = as_size(size, self.owner)
        if kernel_size is None:
            kernel_size = 3 if min(height, width) >= 3 else 1
        check_kernel(kernel_size, (height, width), self.owner)
        if layers < 1:
            raise ConfigError(f"{self.owner}: layers must be at least 1, got {layers}")
        self.channels, self.out_features, self.group = channels, channels, group
        self.convolution = GroupConv2d(1, channels, kernel_size, group)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(channels, channels) * math.sqrt(2 / channels))
            for _ in range(layers)
        )

    def forward(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b o"]:
        """Average."""
        check_axes(x, "b c g h w", self.owner, c=self.channels, g=self.group.order)
        check_fits(self.convolution.kernel_size, (x.shape[-2], x.shape[-1]), self.owner)
        with torch.autocast(autocast_device(x), enabled=False):
            hidden = self._filtered(full_precision(x))
            for weight in self.weights:
                hidden = _mixed(hidden, full_precision(weight)).relu()
        return settled(hidden.mean(dim=(2, 3, 4)), x)

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        return f"{self.channels}, group={self.group}, layers={len(self.weights)}"

    def _filtered(self, x: Float[Tensor, "b c g h w"]) -> Float[Tensor, "b c g h w"]:
        """Convolve each channel by itself."""
        layer = self.convolution
        filters = turned_filters(full_precision(layer.weight), layer.basis, layer.quotients)
        flat = conv2d(
            rearrange(x, "b c g h w -> b (c g) h w"),
            rearrange(filters, "c g 1 h y x -> (c g) h y x"),
            padding=layer.padding,
            groups=self.channels,
        )
        return rearrange(flat, "b (c g) h w -> b c g h w", c=self.channels)


class JointWeightedSum(JointMLPIntegration):
    """Average of ReLU of weighted sums of moved neighbourhoods, before group pooling.

    `JointMLPIntegration` with one layer: the mean of ReLU of a group convolution.

    Args:
        channels: Channels of the map, and of the features.
        size: Height and width of the map; other sizes are taken as well.
        group: The symmetries.
        kernel_size: Side of the filters in pixels; odd. By default 3, or 1 on smaller maps.

    Shape:
        `(b, channels, g, h, w)` to `(b, channels)`.
    """

    def __init__(
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        kernel_size: int | None = None,
    ) -> None:
        super().__init__(channels, size, group, kernel_size=kernel_size, layers=1)
