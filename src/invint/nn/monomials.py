"""Invariant integration of monomials, and the monomials themselves as data."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError
from invint.groups import Group
from invint.nn.maps import (
    Head,
    as_built,
    as_size,
    channel_scale,
    check_channels,
    full_precision,
    settled,
)
from invint.ops.monomial import Sampling, monomial_averages, ray_sampling, sampling_plan
from invint.ops.tensors import autocast_device, own_copy

Table = tuple[tuple[float, ...], ...]
DRAWN = ("factors", "max_distance", "own_angles", "exponents")  # what describes random monomials


@dataclass(frozen=True)
class Monomials:
    """Monomials as data: one row each, one column per factor.

    Attributes:
        distances: Pixels between the first factor and each factor; the first is 0.
        angles: Direction of each factor in radians; all 0 for factors on one ray, as in the paper.
        exponents: Power of each factor.
    """

    distances: Table
    angles: Table
    exponents: Table

    def __post_init__(self) -> None:
        shapes = {name: [len(row) for row in table] for name, table in vars(self).items()}
        if not self.distances or not self.distances[0]:
            raise ConfigError("Monomials: the set is empty; it needs one monomial of one factor")
        if len(set(map(tuple, shapes.values()))) > 1 or len(set(shapes["distances"])) > 1:
            raise ConfigError(
                f"Monomials: expected tables of one shape, got rows of length {shapes}"
            )
        for row in self.distances:
            if row[0] != 0 or not all(0 <= distance < math.inf for distance in row):
                raise ConfigError(
                    f"Monomials: distances start at 0 and are not negative, got {row}"
                )
        for row in (*self.angles, *self.exponents):
            if not all(map(math.isfinite, row)):
                raise ConfigError(f"Monomials: angles and exponents must be finite, got {row}")

    def __len__(self) -> int:
        return len(self.distances)

    @classmethod
    def random(
        cls,
        count: int,
        *,
        max_distance: int,
        factors: int = 3,
        own_angles: bool = False,
        exponents: Sequence[float] = (0.0, 1.0),
        max_power: float = math.inf,
        generator: torch.Generator | None = None,
    ) -> "Monomials":
        """Draw distances from 1 … `max_distance`, exponents from a range, all uniformly.

        Args:
            count: Number of monomials.
            max_distance: Largest distance.
            factors: Factors of each monomial.
            own_angles: Draw a direction for every factor instead of one ray for all.
            exponents: Lowest and highest exponent.
            max_power: Scale exponents down where their sum is larger; |G| is the paper's bound.
            generator: Source of random numbers; by default torch's own.
        """
        if count < 1 or factors < 1 or max_distance < 1:
            raise ConfigError(
                "Monomials.random: count, factors and max_distance must be at least 1, "
                f"got {count}, {factors} and {max_distance}"
            )
        low, high = _checked_range(exponents)
        shape, real = (count, factors), torch.float64
        with torch.device("cpu" if generator is None else generator.device):
            distances = torch.randint(1, max_distance + 1, shape, generator=generator).double()
            turns = torch.rand(shape, dtype=real, generator=generator) * own_angles
            powers = low + (high - low) * torch.rand(shape, dtype=real, generator=generator)
        distances[:, 0] = 0
        powers *= (max_power / powers.sum(dim=1, keepdim=True)).clamp(max=1.0)
        return cls(_table(distances), _table(2 * math.pi * turns), _table(powers))

    def keep(self, indices: Sequence[int]) -> "Monomials":
        """Return the monomials with these indices, in this order."""
        for index in indices:
            if isinstance(index, bool) or not 0 <= index < len(self):
                raise ConfigError(
                    f"Monomials: there is no monomial {index}; the last one is {len(self) - 1}"
                )
        return Monomials(
            *(tuple(table[index] for index in indices) for table in vars(self).values())
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, tables: dict[str, Any]) -> "Monomials":
        """Read what `to_dict` wrote."""
        try:
            read = [
                tuple(tuple(float(value) for value in row) for row in tables[name])
                for name in ("distances", "angles", "exponents")
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"Monomials: not a set of monomials ({error!r})") from error
        return cls(*read)


class MonomialIntegration(Head):
    r"""Average of monomials over all positions and the group, each channel by itself.

    Distances and exponents are shared by the channels; exponents are learned. The feature of
    channel c and monomial m has the index c · (number of monomials) + m.

    Args:
        channels: Channels of the map.
        size: Height and width of the map.
        group: The symmetries.
        monomials: The monomials, or how many to draw at random.
        factors: Factors of each random monomial.
        max_distance: Largest distance of a random monomial; by default half the side of the map,
            at most 9.
        own_angles: Give each factor of a random monomial its own direction. On one ray, as in the
            paper, the average cannot tell mirror images apart.
        exponents: Lowest and highest exponent of a random monomial; those that add up to more than
            the order of the group are scaled down to it.
        floor: Added to every sample before its logarithm; smaller ones make gradients larger.
        scale_free: Take the values of a channel relative to their root mean square over the map,
            of the positive parts, and give the averages this scale: with $s$ for it,
            $s\,A_m(x / s)$. The floor is then the same part of a channel's values however large
            they are, and twice the map gives twice the features.
        check_exponents: Refuse negative exponents, and sums above the order of the group.

    Shape:
        `(b, channels, h, w)` to `(b, channels · number of monomials)`.
    """

    distances: Tensor
    angles: Tensor
    numbers: Tensor
    scale_free = False  # of heads pickled by 0.1

    def __init__(  # noqa: PLR0913
        self,
        channels: int,
        size: int | tuple[int, int],
        group: Group,
        *,
        monomials: Monomials | int = 10,
        factors: int = 3,
        max_distance: int | None = None,
        own_angles: bool = False,
        exponents: Sequence[float] = (0.0, 1.0),
        floor: float = 0.1,
        scale_free: bool = False,
        check_exponents: bool = True,
    ) -> None:
        super().__init__()
        owner = "MonomialIntegration"
        check_channels(channels, owner)
        self.size = as_size(size, owner)
        self.channels, self.group, self.floor = channels, group, floor
        self.scale_free = scale_free
        self.precision = torch.get_default_dtype()
        if not torch.finfo(torch.float32).tiny <= floor < math.inf:
            raise ConfigError(f"{owner}: floor must be positive and finite, got {floor}")
        if isinstance(monomials, int):
            reach = default_distance(self.size) if max_distance is None else max_distance
            if factors > 1:
                self._check_reach(reach)
            monomials = Monomials.random(
                monomials,
                max_distance=reach,
                factors=factors,
                own_angles=own_angles,
                exponents=exponents,
                max_power=group.order,
            )
        elif (factors, max_distance, own_angles, *exponents) != (3, None, False, 0.0, 1.0):
            raise ConfigError(
                f"{owner}: factors, max_distance, own_angles and exponents describe random "
                "monomials; with given ones, leave them out"
            )
        if check_exponents:
            _check_exponents(monomials, group)
        with torch.device("cpu"):
            tables = [
                torch.tensor(table, dtype=self.precision) for table in vars(monomials).values()
            ]
        self._derive(*tables[:2])
        tables = [own_copy(table) for table in tables]
        self.register_buffer("distances", tables[0])
        self.register_buffer("angles", tables[1])
        self.exponents = nn.Parameter(tables[2])
        self.out_features = channels * len(monomials)

    @property
    def monomials(self) -> Monomials:
        """The monomials, with the exponents as they are now."""
        tables = (self.distances, self.angles, self.exponents.detach())
        return Monomials(*(_table(table) for table in tables))

    def with_monomials(
        self, monomials: Monomials, *, check_exponents: bool = True
    ) -> "MonomialIntegration":
        """Return a head with other monomials, and everything else as it is here."""
        head = MonomialIntegration(
            self.channels,
            self.size,
            self.group,
            monomials=monomials,
            floor=self.floor,
            scale_free=self.scale_free,
            check_exponents=check_exponents,
        ).to(self.exponents)
        tables = (torch.tensor(table, dtype=torch.float64) for table in vars(monomials).values())
        with torch.no_grad():
            for mine, table in zip(
                (head.distances, head.angles, head.exponents), tables, strict=True
            ):
                mine.copy_(table)
        head.precision = self.precision
        head._derive(head.distances, head.angles)
        head.exponents.requires_grad_(self.exponents.requires_grad)
        return head.train(self.training)

    def keep(self, indices: Sequence[int]) -> "MonomialIntegration":
        """Return a head with only these monomials; it computes the same features for them."""
        # Training may have led the exponents anywhere.
        return self.with_monomials(self.monomials.keep(indices), check_exponents=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b cm"]:
        """Average."""
        owner = "MonomialIntegration"
        x = as_built(x, owner, channels=self.channels, size=self.size, group=self.group)
        with torch.autocast(autocast_device(x), enabled=False):
            if self.scale_free:
                scale = channel_scale(full_precision(x))
                averages = scale * self._average(full_precision(x) / scale[..., None])
            else:
                averages = self._average(x)
        return settled(rearrange(averages, "b c m -> b (c m)"), x)

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

    def extra_repr(self) -> str:
        """Describe the head as a printed model shows it."""
        count, factors = self.exponents.shape
        return (
            f"{self.channels}, size={self.size}, group={self.group}, monomials={count}, "
            f"factors={factors}, floor={self.floor}, scale_free={self.scale_free}"
        )

    def _apply(self, *args: Any, **kwargs: Any) -> "MonomialIntegration":
        before = self.angles.dtype
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.angles.dtype != before:  # rounded: sample where a copy that is loaded would
            self._derive(self.distances, self.angles)
        return self

    def _load_from_state_dict(
        self, state_dict: Any, prefix: Any, *args: Any, **kwargs: Any
    ) -> None:
        coming = state_dict.get(f"{prefix}distances")
        if coming is not None and coming.numel():  # before anything is overwritten
            self._check_reach(coming.max().item())
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        # Distances and angles are state; what follows from them is not.
        self._derive(self.distances, self.angles)

    def _check_reach(self, reach: float) -> None:
        """Raise `ConfigError` unless a distance fits the map."""
        most, size = min(self.size) - 1, f"{self.size[0]} x {self.size[1]}"
        if reach > 0 and most == 0:
            raise ConfigError(
                f"MonomialIntegration: a map of {size} has no distances; use factors=1"
            )
        if reach > most:
            raise ConfigError(
                f"MonomialIntegration: a distance of {reach:g} does not fit a map of {size}; "
                f"use at most {most}"
            )

    def _derive(self, distances: Tensor, angles: Tensor) -> None:
        """Find the distinct offsets of all factors, and the taps that sample the map there."""
        places = torch.polar(distances.cpu().double(), angles.cpu().double())
        flat = torch.round(torch.view_as_real(places), decimals=9).flatten(0, 1)
        distinct, number = torch.unique(flat, dim=0, return_inverse=True)
        self._check_reach(distances.max().item())
        centre = int(number[0])  # of the first factor, whose distance is 0; it comes first
        order = [centre, *(row for row in range(len(distinct)) if row != centre)]
        positions = tuple((x, y) for x, y in distinct[order].tolist())
        offsets = tuple(order.index(row) for row in number.tolist())
        numbers = torch.tensor(offsets, device="cpu").view_as(places.real)
        sampling = ray_sampling(self.group, positions, *self.size)
        self.plan = sampling_plan(sampling, offsets, positions)
        like = getattr(self, "exponents", own_copy(distances))
        for name, tensor in {"numbers": numbers, **sampling._asdict()}.items():
            copy = tensor.clone()
            if tensor.is_floating_point():  # rounded as at construction, whenever it is derived
                copy = copy.to(self.precision).to(like.dtype)
            self.register_buffer(name, copy.to(like.device), persistent=False)


def default_distance(size: tuple[int, int]) -> int:
    """Return half the shorter side, from 1 to 9: farther samples mostly lie outside."""
    return min(max(min(size) // 2, 1), 9)


def _check_exponents(monomials: Monomials, group: Group) -> None:
    for row in monomials.exponents:
        if min(row) < 0:
            raise ConfigError(f"MonomialIntegration: exponents must not be negative, got {row}")
        if sum(row) > group.order * (1 + 1e-6):  # rounding aside
            raise ConfigError(
                f"MonomialIntegration: exponents must not add up to more than the order of "
                f"{group}, {group.order}, got {row}"
            )


def _checked_range(exponents: Sequence[float]) -> tuple[float, float]:
    low, high = exponents if len(exponents) == 2 else (math.nan, math.nan)
    if not 0 <= low <= high < math.inf:
        raise ConfigError(
            "Monomials.random: exponents must be the lowest and the highest, not negative and "
            f"finite, as in (0, 2), got {tuple(exponents)}"
        )
    return low, high


def _table(tensor: Tensor) -> Table:
    return tuple(tuple(row) for row in tensor.tolist())
