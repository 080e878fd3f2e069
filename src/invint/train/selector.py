"""Monomial selection as a phase of a run: between epochs, planned by the recipe."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from invint.errors import ConfigError
from invint.models import Network
from invint.nn import MonomialIntegration, Monomials
from invint.nn.monomials import DRAWN, default_distance
from invint.recipes.recipe import Recipe
from invint.recipes.schedule import Schedule
from invint.selection import (
    best,
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
        schedule: Of the run.
        seed: Of the monomials drawn.

    Attributes:
        start: The monomials drawn at the start, if the head has some.
        marks: The steps before which something is selected.
    """

    def __init__(self, recipe: Recipe, data: RunData, schedule: Schedule, seed: int) -> None:
        self.choice, self.options, self.seed = recipe.selection, recipe.head.given, seed
        self.exchanges = self.choice.method == "lse"
        # A run that exchanges pre-trains with pooling, before it has monomials.
        self.first_head = "max" if self.exchanges else recipe.model.head
        self.start: Monomials | None = None
        if recipe.model.head == "monomials":
            with torch.random.fork_rng(devices=[]):  # of the network, only its head is looked at
                network = make_card(recipe, data, monomials=1, head="monomials").build()
            # Of several depths the last map comes first.
            heads = (each for each in network.modules() if isinstance(each, MonomialIntegration))
            self.head = next(heads)
            self.start = self._drawn(self.choice.initial, self.choice.start, "monomials")
        epochs = (epoch for epoch, _ in self.choice.steps)
        self.marks = [
            schedule.step_at(each)
            for each in ([self.choice.pretrain] if self.exchanges else epochs)
        ]
        last = max(self.marks, default=0)
        if last >= schedule.steps:
            raise ConfigError(
                f"selection: the last choice falls on step {last}, the end of a run of "
                f"{schedule.steps} steps; train longer, or choose earlier"
            )

    @property
    def first_monomials(self) -> Monomials | None:
        """The monomials a run begins with, if any."""
        return None if self.exchanges else self.start

    def is_due(self, step: int, selected: int) -> bool:
        """Return whether something is to be selected before a step."""
        return not self.is_done(selected) and step >= self.marks[selected]

    def is_done(self, selected: int) -> bool:
        """Return whether all is selected, and the network has the form it will keep."""
        return selected == len(self.marks)

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
            signed, statistics = self.choice.signed, self.choice.statistics
            scores = connectivity(network, images, loss, signed=signed, statistics=statistics)
        kept = best(scores.cpu(), count)
        return Selection(tuple(scores.tolist()), tuple(kept), None if selected else self.start)

    def _exchange(self, network: Network, images: Iterable[Batch]) -> Selection:
        """Select monomials by least squares on the maps that pooling was given."""
        if self.start is None:
            raise RuntimeError("exchanging without monomials, which a recipe refuses")
        maps, labels = maps_of(network, images)
        drawn = self._drawn("random", self.choice.candidates, "candidates")
        candidates = (drawn.keep([index]) for index in range(len(drawn)))
        found = exchange(
            features_of_maps(self.head.to(maps.device), maps),
            labels,
            self.start,
            lambda: next(candidates),
            ridge=self.choice.ridge,
            patience=self.choice.patience,
            candidates=self.choice.candidates,
        )
        return Selection(
            scores=found.costs,
            kept=tuple(range(len(self.start))),
            start=self.start,
            exchanged=found.monomials,
            facts={
                "tried": len(found.accepted),
                "accepted": sum(found.accepted),
                "objective": [found.objectives[0], found.objectives[-1]],
            },
        )

    def _drawn(self, kind: str, count: int, purpose: str) -> Monomials:
        options = {name: value for name, value in self.options.items() if name in DRAWN}
        return initial_monomials(
            kind,
            count,
            **{"max_distance": default_distance(self.head.size)} | options,
            max_power=self.head.group.order,
            generator=torch.Generator().manual_seed(derive_seed(purpose, self.seed)),
        )
