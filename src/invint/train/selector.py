"""Monomial selection as a phase of a run: between epochs, planned by the recipe."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from invint.errors import ConfigError
from invint.models import Network
from invint.nn import MonomialIntegration, Monomials
from invint.nn.monomials import default_distance
from invint.recipes.recipe import Recipe
from invint.recipes.schedule import Schedule
from invint.selection import (
    best,
    check_candidates,
    connectivity,
    exchange,
    features_of_maps,
    find_monomials,
    initial_monomials,
    magnitude,
    maps_of,
)
from invint.selection.pruning import first_dense
from invint.train.loop import Batch
from invint.train.setup import RunData, derive_seed, make_card

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Selection:
    """Which monomials a network is to have from now on.

    Attributes:
        scores: One for each monomial before it.
        kept: Indices of the survivors, among the monomials before it.
        start: All monomials before it; only of the first selection.
        exchanged: The monomials to put in the place of pooling, if it is that.
        facts: More for the log.
    """

    scores: tuple[float, ...]
    kept: tuple[int, ...]
    start: Monomials | None = None
    exchanged: Monomials | None = None
    facts: dict[str, Any] = field(default_factory=dict)


class Selector:
    """Decides when monomials are selected, and which; the run applies it.

    Args:
        recipe: Says how.
        data: Says how large the map under the head is.
        seed: Of the monomials drawn.
    """

    def __init__(self, recipe: Recipe, data: RunData, seed: int) -> None:
        self.recipe, self.choice, self.seed = recipe, recipe.selection, seed
        self.exchanges = self.choice.method == "lse"
        self.head = _probe(recipe, data) if recipe.model.head == "monomials" else None
        if self.head is not None:  # how large its map is, a recipe alone does not know
            distance = default_distance(self.head.size)
            check_candidates(self.choice.initial, self.choice.start, max_distance=distance)

    @property
    def first_head(self) -> str | None:
        """The head a run begins with: pooling, where monomials are exchanged after pre-training."""
        return "max" if self.exchanges else self.recipe.model.head

    def first_monomials(self) -> Monomials | None:
        """Return the monomials a run begins with, if any."""
        return None if self.head is None or self.exchanges else self._drawn(self.choice.start)

    def marks(self, schedule: Schedule) -> list[int]:
        """Return the steps before which something is chosen."""
        if self.exchanges:
            return [schedule.step_at(self.choice.pretrain)]
        return [schedule.step_at(epoch) for epoch, _ in self.choice.steps]

    def check(self, schedule: Schedule) -> None:
        """Raise `ConfigError` if nothing is left to train once everything is chosen."""
        last = max(self.marks(schedule), default=0)
        if last >= schedule.steps:
            raise ConfigError(
                f"selection: the last choice falls on step {last}, the end of a run of "
                f"{schedule.steps} steps; train longer, or choose earlier"
            )

    def is_due(self, step: int, selected: int, schedule: Schedule) -> bool:
        """Return whether something is to be selected before a step."""
        marks = self.marks(schedule)
        return selected < len(marks) and step >= marks[selected]

    def is_done(self, selected: int, schedule: Schedule) -> bool:
        """Return whether all is selected, and the network has the form it will keep."""
        return selected == len(self.marks(schedule))

    def decide(
        self, network: Network, images: Iterable[Batch], loss: Loss, selected: int
    ) -> Selection:
        """Return the next selection.

        Args:
            network: As it is trained so far; it is not changed.
            images: The images trained on.
            loss: Takes logits and labels to the loss of a batch.
            selected: How many selections there were before.
        """
        if self.exchanges:
            return self._exchange(network, images)
        _, count = self.choice.steps[selected]
        if self.choice.method == "magnitude":
            _, _, head = find_monomials(network)
            scores = magnitude(first_dense(network)[1].weight, len(head.exponents))
        else:
            scores = connectivity(network, images, loss)
        kept = best(scores.cpu(), count)
        start = None if selected else self.first_monomials()
        return Selection(tuple(scores.tolist()), tuple(kept), start)

    def _exchange(self, network: Network, images: Iterable[Batch]) -> Selection:
        """Select monomials by least squares on the maps that pooling was given."""
        if self.head is None:
            raise RuntimeError("exchanging without monomials, which a recipe refuses")
        maps, labels = maps_of(network, images)
        start, candidates = self._drawn(self.choice.start), iter(self._candidates())
        found = exchange(
            features_of_maps(self.head.to(maps.device), maps),
            labels,
            start,
            lambda: next(candidates),
            ridge=self.choice.ridge,
            patience=self.choice.patience,
            candidates=self.choice.candidates,
        )
        facts = {"tried": len(found.accepted), "accepted": sum(found.accepted)}
        objective = [found.objectives[0], found.objectives[-1]]
        everything = tuple(range(len(start)))
        return Selection(
            tuple(found.costs), everything, start, found.monomials, facts | {"objective": objective}
        )

    def _candidates(self) -> list[Monomials]:
        drawn = self._drawn(self.choice.candidates, kind="random", purpose="candidates")
        return [drawn.keep([index]) for index in range(len(drawn))]

    def _drawn(
        self, count: int, *, kind: str | None = None, purpose: str = "monomials"
    ) -> Monomials:
        if self.head is None:
            raise RuntimeError("drawing monomials for a head without them")
        return initial_monomials(
            kind or self.choice.initial,
            count,
            max_distance=default_distance(self.head.size),
            max_power=self.head.group.order,
            generator=torch.Generator().manual_seed(derive_seed(purpose, self.seed)),
        )


def _probe(recipe: Recipe, data: RunData) -> MonomialIntegration:
    """Return the head of the recipe's network, with one monomial: its size and group count."""
    with torch.random.fork_rng(devices=[]):
        network = make_card(recipe, data, monomials=1, head="monomials").build()
    return find_monomials(network)[2]
