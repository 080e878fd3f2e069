"""Monomial selection as a phase of a run: between epochs, planned by the recipe."""

from typing import TYPE_CHECKING, Any

import torch

from invint.nn import Monomials
from invint.recipes.recipe import Recipe
from invint.run.building import Images
from invint.train.pace import Pace

if TYPE_CHECKING:
    from invint.run.training import Run


class Selector:
    """Knows when monomials are chosen, and chooses them.

    Args:
        recipe: Says how.
        pace: Says when.
    """

    def __init__(self, recipe: Recipe, pace: Pace) -> None:
        self.recipe, self.pace = recipe, pace
        self.first_head = recipe.model.head
        self.marks: tuple[int, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe, pace: Pace) -> "Selector":
        """Return the selector of a recipe."""
        return cls(recipe, pace)

    def select(self, run: "Run") -> dict[str, Any] | None:
        """Select if it is time, and return the log entry."""
        del run
        return None


def initial(recipe: Recipe, images: Images, seed: int) -> Monomials | None:
    """Return the monomials a run begins with."""
    del recipe, images, seed
    return None


__unused = torch
