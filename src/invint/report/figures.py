"""What a figure of the page is, and how recipes are named and coloured in all of them."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDE, NARROW = 720, 400  # widths of a figure on a desk and on a phone


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        name: For the file it is saved as.
        title: Heading.
        caption: What is drawn, and how to read it.
        svg: The drawing.
        narrow: The drawing for a phone, where it is another.
    """

    name: str
    title: str
    caption: str
    svg: str
    narrow: str = ""


@dataclass(frozen=True)
class Series:
    """A recipe in figures: always of the same name and colour.

    Attributes:
        recipe: Its name.
        name: What figures call it.
        colour: Number of the colour.
    """

    recipe: str
    name: str
    colour: int

    @property
    def kind(self) -> str:
        """The class that gives the colour."""
        return f"s{self.colour % 10}"


def series_of(recipes: Sequence[str]) -> dict[str, Series]:
    """Return name and colour of each recipe; names leave the set out where all share it."""
    sets = {recipe.partition("/")[0] for recipe in recipes}
    names = [recipe.partition("/")[2] if len(sets) == 1 else recipe for recipe in recipes]
    return {
        recipe: Series(recipe, name or recipe, number)
        for number, (recipe, name) in enumerate(zip(recipes, names, strict=True))
    }


def slug(*words: object) -> str:
    """Return words as a file name."""
    text = "-".join(str(word) for word in words).lower()
    return "".join(letter if letter.isalnum() else "-" for letter in text)
