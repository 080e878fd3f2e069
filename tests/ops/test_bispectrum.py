"""Invariants along the group axis: against sums over the group, and backwards to the signal."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from invint import Cyclic, Dihedral, Group
from invint.ops.bispectrum import FLOOR, bispectrum_size, group_bispectrum, group_waves

GROUPS = [kind(n) for kind in (Cyclic, Dihedral) for n in (1, 2, 3, 4, 5, 6, 8, 16)]
LARGER = [group for group in GROUPS if group.n > 2]
each_group = pytest.mark.parametrize("group", GROUPS, ids=str)


def invariants(signals: Tensor, group: Group) -> Tensor:
    """Return those of signals `(b, g)`."""
    waves = group_waves(group.n).to(signals.dtype)
    return group_bispectrum(signals[:, None, :, None, None], waves)[:, 0, :, 0, 0]


def orbit(signal: Tensor, group: Group) -> Tensor:
    """Return all moved copies of a signal, as the group axis of a feature map moves."""
    return torch.stack([signal[list(row)] for row in group.quotients])


def signals_on(group: Group, count: int = 1) -> Tensor:
    return torch.randn(count, group.order, dtype=torch.float64)


@each_group
def test_moved_signals_have_the_same_invariants(group: Group) -> None:
    found = invariants(orbit(signals_on(group)[0], group), group)
    assert found.shape == (group.order, bispectrum_size(group))
    assert (found - found[:1]).abs().max() < 1e-12


@pytest.mark.parametrize("group", [g for g in GROUPS if g.n > 1], ids=str)
def test_they_are_entries_of_the_transformed_correlations(group: Group) -> None:
    signal = signals_on(group)[0]
    deviation = math.sqrt(float(signal.var(correction=0)) + FLOOR**2)
    correlations = Correlations(group, (signal - signal.mean()) / deviation)
    mean, spread, *entries = invariants(signal[None], group)[0].tolist()
    assert (mean, spread) == pytest.approx((signal.mean().item(), deviation - FLOOR))
    expected = correlations.dihedral() if group.has_flips else correlations.cyclic()
    assert entries == pytest.approx([deviation * each for each in expected], rel=1e-9, abs=1e-12)


class Correlations:
    """The correlations of a signal and their transforms over rotations, sum by sum."""

    def __init__(self, group: Group, signal: Tensor) -> None:
        self.group, self.signal = group, signal.tolist()
        self.triples = (group.n - 1) // 2
        self.mirror = group.n if group.has_flips else 0

    def product(self, g: int, h: int) -> int:
        return self.group.quotients[g].index(h)

    def at(self, *elements: int) -> float:
        """Return the mean over g of f(g) f(ga) f(gb) …"""
        total = 0.0
        for g in range(self.group.order):
            values = [self.signal[self.product(g, a)] for a in (0, *elements)]
            total += math.prod(values)
        return total / self.group.order

    def transformed(self, start: int, *frequencies: int) -> complex:
        """Transform the correlation at (s r^p, s r^q), where s is `start`, over p and q."""
        n, total = self.group.n, 0j
        for turns in itertools.product(range(n), repeat=len(frequencies)):
            phase = sum(f * turn for f, turn in zip(frequencies, turns, strict=True))
            value = self.at(*(self.product(start, turn) for turn in turns))
            total += value * complex(
                math.cos(2 * math.pi * phase / n), -math.sin(2 * math.pi * phase / n)
            )
        return total / float(n ** len(frequencies))

    def cyclic(self) -> list[float]:
        triples = [self.transformed(0, 1, k) for k in range(1, self.triples + 1)]
        power = self.transformed(0, 1).real
        return [power, *(z.real for z in triples), *(z.imag for z in triples)]

    def dihedral(self) -> list[float]:
        power, cross = 2 * self.transformed(0, 1).real, self.transformed(self.mirror, 1)
        same, other = (
            [2 * self.transformed(start, 1, k) for k in range(self.triples + 1)]
            for start in (0, self.mirror)
        )
        same_parts = [*(z.real for z in same), *(z.imag for z in same[1:])]
        other_parts = [*(z.real for z in other[1:]), *(z.imag for z in other[1:])]
        return [power, cross.real, cross.imag, *same_parts, *other_parts]


@pytest.mark.parametrize("group", LARGER, ids=str)
def test_a_signal_comes_back_from_its_invariants_but_for_how_it_was_moved(group: Group) -> None:
    solve = solved_dihedral if group.has_flips else solved_cyclic
    for signal in signals_on(group, 5):
        mean, spread, *entries = invariants(signal[None], group)[0]
        deviation = spread + FLOOR
        found = mean + deviation * solve(torch.stack(entries) / deviation, group.n)
        assert (orbit(signal, group) - found).abs().amax(dim=1).min() < 1e-6


def solved_cyclic(entries: Tensor, n: int) -> Tensor:
    """Solve for the transform, frequency by frequency."""
    real, imaginary = entries[1:].chunk(2)
    spectrum = [torch.zeros_like(real[0] + 0j), entries[0].sqrt() + 0j]
    for triple in torch.complex(real, imaginary):
        spectrum.append((triple / (spectrum[1] * spectrum[-1])).conj())
    transform = torch.stack(spectrum)
    return signal_of(transform, first_phase(transform, n), n)


def solved_dihedral(entries: Tensor, n: int) -> Tensor:
    """Solve for both transforms: each pair of triples is two linear equations in two numbers."""
    triples = (n - 1) // 2
    power, cross = entries[0], torch.complex(entries[1], entries[2])
    zeroth, parts = entries[3], entries[4:].chunk(4)
    same, other = torch.complex(parts[0], parts[1]), torch.complex(parts[2], parts[3])
    total, gap = (power + 2 * cross.abs()).sqrt(), (power - 2 * cross.abs()).sqrt()
    first = (total + gap) / 2 + 0j
    second = (cross / first).conj()
    difference = zeroth / (first.abs() ** 2 - second.abs() ** 2) + 0j
    upright, mirrored = [difference, first], [-difference, second]
    for k in range(triples):
        a, b = first * upright[-1], (second * mirrored[-1]).conj()
        matrix = torch.stack((torch.stack((a, b)), torch.stack((b.conj(), a.conj()))))
        next_a, next_b = torch.linalg.solve(matrix, torch.stack((same[k], other[k].conj())))
        upright.append(next_a.conj())
        mirrored.append(next_b)
    transforms = [torch.stack(upright), torch.stack(mirrored)]
    phase = first_phase(transforms[0], n)
    return torch.cat([signal_of(transform, phase, n) for transform in transforms])


def first_phase(transform: Tensor, n: int) -> Tensor:
    """Return by how much the first frequency must be turned for the signal to be real."""
    highest = len(transform) - 1
    return -(transform[highest] * transform[n - highest]).angle() / n


def signal_of(transform: Tensor, phase: Tensor, n: int) -> Tensor:
    turned = transform * torch.polar(torch.ones_like(phase), phase) ** torch.arange(len(transform))
    signal: Tensor = torch.fft.irfft(turned[: n // 2 + 1], n, norm="forward")
    return signal


@pytest.mark.parametrize("n", [3, 4, 5, 8, 16])
def test_the_way_round_is_seen_on_rotations_alone(n: int) -> None:
    """A mirror image has its responses the other way round; on D_n it is a moved copy."""
    signal = signals_on(Cyclic(n))
    there, back = (invariants(each, Cyclic(n))[0] for each in (signal, signal.flip(1)))
    triples = (n - 1) // 2
    torch.testing.assert_close(there[:-triples], back[:-triples])
    torch.testing.assert_close(there[-triples:], -back[-triples:])
    assert there[-triples:].abs().max() > 1e-3
    on_both = torch.cat((signal, signals_on(Cyclic(n))), dim=1)
    mirrored = on_both[:, list(Dihedral(n).quotients[n])]
    found = (invariants(each, Dihedral(n)) for each in (on_both, mirrored))
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(4)], ids=str)
def test_other_signals_have_other_invariants(group: Group) -> None:
    found = invariants(signals_on(group, 50), group)
    apart = torch.cdist(found, found) + torch.eye(50)
    assert apart.min() > 1e-3


@pytest.mark.parametrize(
    "group", [Cyclic(1), Cyclic(3), Cyclic(4), Dihedral(1), Dihedral(3)], ids=str
)
def test_gradients(group: Group) -> None:
    signals = signals_on(group, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: invariants(x, group), signals)


@pytest.mark.parametrize("group", [Cyclic(8), Dihedral(8)], ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e-3, 1.0, 1e4, 1e15])
@pytest.mark.parametrize("kind", ["flat", "one", "random"])
def test_gradients_are_bounded_at_every_size(group: Group, size: float, kind: str) -> None:
    signal = {
        "flat": torch.ones(1, group.order),
        "one": torch.eye(group.order)[:1],
        "random": torch.randn(1, group.order),
    }[kind]
    signal = (size * signal).requires_grad_()
    found = invariants(signal, group)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert found.isfinite().all()
    assert signal.grad is not None
    assert signal.grad.abs().max() < 10


def test_twice_the_signal_gives_twice_the_invariants() -> None:
    signals = 100 * signals_on(Dihedral(8), 3)
    once, twice = (invariants(each, Dihedral(8)) for each in (signals, 2 * signals))
    torch.testing.assert_close(twice, 2 * once, rtol=1e-4, atol=2e-3)  # up to the floor
