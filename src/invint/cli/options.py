"""Options and arguments that several commands have, and what is made of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from invint.recipes import Recipe

OWN_IMAGES = "Your own images"  # heads of groups of options in a help text
MACHINE = "Machine"

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A recipe that `invint recipes` lists, or a TOML or JSON file."
    ),
]
Source = Annotated[
    str, typer.Argument(metavar="RUN|FILE", help="The folder of a run, or an exported network.")
]
Size = Annotated[int | None, typer.Option(metavar="N", help="Number of training images.")]
Data = Annotated[
    str | None, typer.Option(metavar="NAME", help="Another data set than the recipe's.")
]
TestData = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The data set; by default the one the run was on."),
]
Scale = Annotated[
    float | None,
    typer.Option(metavar="FRACTION", help="Fraction of the training steps to make."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a value of the recipe, such as train.lr=3e-4; repeatable.",
    ),
]
Runs = Annotated[Path, typer.Option(metavar="DIR", help="Where the folders of runs are.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where data sets are; by default $INVINT_DATA, or else the user's cache.",
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        rich_help_panel=OWN_IMAGES,
        help="Leave out images of folder:PATH that cannot be read.",
    ),
]
Side = Annotated[
    int | None,
    typer.Option(
        metavar="PIXELS",
        rich_help_panel=OWN_IMAGES,
        help="Side of the square images of folder:PATH; chosen by default.",
    ),
]
TestShare = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION",
        rich_help_panel=OWN_IMAGES,
        help="Fraction of the images to test on, if they come without a test split.",
    ),
]
DropLeaks = Annotated[
    bool,
    typer.Option(
        "--drop-leaks",
        rich_help_panel=OWN_IMAGES,
        help="Leave training images out that the test split has too.",
    ),
]
MinPerClass = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        show_default=False,
        rich_help_panel=OWN_IMAGES,
        help="Leave out classes of folder:PATH with fewer images.",
    ),
]
SkipClass = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=OWN_IMAGES,
        help="Leave out a class of folder:PATH; repeatable.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=MACHINE,
        help="cpu, cuda or mps; by default cuda if there is one.",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(metavar="NAME", rich_help_panel=MACHINE, help="float32 or bfloat16."),
]
Compile = Annotated[
    bool | None,
    typer.Option(rich_help_panel=MACHINE, help="Use torch.compile; by default on CUDA only."),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", rich_help_panel=MACHINE, help="CPU threads per process.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def own_choices(
    data: str | None = None,
    *,
    skip_bad: bool,
    side: int | None,
    test_share: float | None,
    drop_leaks: bool,
    min_per_class: int,
    skip_class: list[str] | None,
) -> dict[str, Any]:
    """Return the choices of data that were made with options."""
    given = {
        "name": data,
        "skip_bad": skip_bad or None,
        "side": side,
        "test_share": test_share,
        "drop_leaks": drop_leaks or None,
        "min_per_class": min_per_class or None,
        "skip_class": skip_class or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def chosen_recipe(
    name: str,
    *,
    size: int | None = None,
    data: str | None = None,
    scale: float | None = None,
    assignments: list[str] | None = None,
) -> "Recipe":
    """Return a recipe with the changes that the options of a command make."""
    from invint.recipes import changed, find_recipe

    given = {"data.size": size, "data.name": data, "train.scale": scale}
    changes = [f"{path}={value}" for path, value in given.items() if value is not None]
    return changed(find_recipe(name), changes + (assignments or []))
