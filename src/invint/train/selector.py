"""Monomial selection as a phase of a run: between epochs, planned by the recipe."""

from typing import TYPE_CHECKING, Any

import torch

from invint.errors import ConfigError
from invint.nn import MonomialIntegration, Monomials
from invint.nn.monomials import default_distance
from invint.recipes.recipe import Recipe
from invint.recipes.schedule import Pace
from invint.selection import (
    best,
    check_plan,
    connectivity,
    exchange,
    features_of_maps,
    find_monomials,
    initial_monomials,
    magnitude,
    maps_of,
    prune,
    selection_event,
)
from invint.selection.pruning import first_dense
from invint.train.setup import Images, make_card, mixed

if TYPE_CHECKING:
    from invint.train.run import Run


class Selector:
    """Knows when monomials are chosen, and chooses them.

    Args:
        recipe: Says how.
        images: Say how large the map under the head is.
        seed: Of the monomials drawn.
    """

    def __init__(self, recipe: Recipe, images: Images, seed: int) -> None:
        self.recipe, self.choice, self.seed = recipe, recipe.selection, seed
        self.exchanges = self.choice.method == "lse"
        self.head = _probe(recipe, images) if recipe.model.head == "monomials" else None
        choice = {key: value for key, value in vars(self.choice).items() if key != "method"}
        check_plan(
            method=self.choice.method,
            head=recipe.model.head,
            epochs=recipe.train.epochs,
            max_distance=None if self.head is None else default_distance(self.head.size),
            **choice,
        )

    @property
    def first_head(self) -> str | None:
        """The head a run begins with: pooling, where monomials are exchanged after pre-training."""
        return "max" if self.exchanges else self.recipe.model.head

    def first_monomials(self) -> Monomials | None:
        """Return the monomials a run begins with, if any."""
        return None if self.head is None or self.exchanges else self._drawn(self.choice.start)

    def marks(self, pace: Pace) -> list[int]:
        """Return the steps before which something is chosen."""
        if self.exchanges:
            return [pace.step_at(self.choice.pretrain)]
        return [pace.step_at(epoch) for epoch, _ in self.choice.steps]

    def check(self, pace: Pace) -> None:
        """Raise `ConfigError` if nothing is left to train once everything is chosen."""
        last = max(self.marks(pace), default=0)
        if last >= pace.steps:
            raise ConfigError(
                f"selection: the last choice falls on step {last}, the end of a run of "
                f"{pace.steps} steps; train longer, or choose earlier"
            )

    def done(self, run: "Run") -> bool:
        """Return whether everything is chosen, and the network has the form it will keep."""
        return run.selected == len(self.marks(run.pace))

    def begin(self, run: "Run") -> list[dict[str, Any]]:
        """Return the line for the log about monomials that are kept as they were drawn."""
        start = self.first_monomials()
        if start is None or run.step or self.choice.method != "none":
            return []
        return [{"event": "monomials", "epoch": 0.0, "step": 0, "start": start.to_dict()}]

    def select(self, run: "Run") -> list[dict[str, Any]]:
        """Choose what is due, and return the lines for the log."""
        entries = []
        marks = self.marks(run.pace)
        while run.selected < len(marks) and run.step >= marks[run.selected]:
            entries.append(self._exchange(run) if self.exchanges else self._prune(run))
            run.selected += 1
        return entries

    def _prune(self, run: "Run") -> dict[str, Any]:
        """Keep the monomials with the highest scores."""
        _, count = self.choice.steps[run.selected]
        _, _, head = find_monomials(run.network)
        if self.choice.method == "magnitude":
            scores = magnitude(first_dense(run.network)[1].weight, len(head.exponents))
        else:
            scores = connectivity(run.network, run.training_images(), run.cross_entropy)
        scores = run.processes.from_main(scores.cpu())  # running statistics differ between them
        kept = best(scores, count)
        prune(run.network, run.optimizer, kept)
        run.rebuilt()
        return self._entry(
            run, scores.tolist(), kept, None if run.selected else self.first_monomials()
        )

    def _exchange(self, run: "Run") -> dict[str, Any]:
        """Put monomials in the place of pooling, chosen by least squares on what it was given."""
        if self.head is None:
            raise RuntimeError("exchanging without monomials, which check_plan refuses")
        maps, labels = maps_of(run.network, run.training_images())
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
        found = run.processes.from_main(found)
        pretrained = run.network.features.state_dict()
        run.build("monomials", found.monomials)
        run.network.features.load_state_dict(pretrained)
        everything = list(range(len(start)))
        entry = self._entry(run, list(found.costs), everything, start)
        tried = {"tried": len(found.accepted), "accepted": sum(found.accepted)}
        return entry | tried | {"objective": [found.objectives[0], found.objectives[-1]]}

    def _entry(
        self, run: "Run", scores: list[float], kept: list[int], start: Monomials | None
    ) -> dict[str, Any]:
        return selection_event(
            epoch=round(run.pace.epoch_at(run.step), 6),
            step=run.step,
            method=self.choice.method,
            scores=scores,
            kept=kept,
            monomials=find_monomials(run.network)[2].monomials,
            start=start,
        )

    def _candidates(self) -> list[Monomials]:
        drawn = self._drawn(self.choice.candidates, kind="random", purpose="candidates")
        return [drawn.keep([number]) for number in range(len(drawn))]

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
            generator=torch.Generator().manual_seed(mixed(purpose, self.seed)),
        )


def _probe(recipe: Recipe, images: Images) -> MonomialIntegration:
    """Return the head of the recipe's network, with one monomial: its size and group count."""
    with torch.random.fork_rng(devices=[]):
        network = make_card(recipe, images, monomials=1, head="monomials").build()
    return find_monomials(network)[2]
