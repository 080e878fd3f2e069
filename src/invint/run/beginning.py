"""The beginning of a run: what it is, from what it learns, and with what it began."""

from invint.errors import RunError
from invint.recipes.recipe import Recipe
from invint.run.building import Images
from invint.run.execution import Execution
from invint.run.folder import FORMAT_VERSION, RunFolder
from invint.run.watch import Watch


def describe(folder: RunFolder, recipe: Recipe, seed: int) -> None:
    """Write the recipe of a run, unless an earlier start did."""
    written = folder.read("recipe.json")
    if written is None:
        about = {"format": FORMAT_VERSION, "name": recipe.name, "about": recipe.about}
        about |= {"choices": recipe.choices, "source": recipe.source}
        folder.write("recipe.json", about | {"hash": recipe.hash, "seed": seed})
    elif written.get("format") != FORMAT_VERSION:
        raise RunError(
            f"{folder.path}: format {written.get('format')}, this invint reads "
            f"{FORMAT_VERSION}; go on with the version that wrote it"
        )


def describe_images(folder: RunFolder, images: Images, seed: int) -> None:
    """Write which images are trained on, or refuse others than those of an earlier start."""
    chosen, before = images.describe(seed), folder.read("subset.json")
    if before is None:
        folder.write("subset.json", chosen, indent=None)
    elif before != chosen:
        raise RunError(
            f"{folder.path}: the data set has changed since the run began; put it back, "
            "or remove the folder to begin anew"
        )


def describe_environment(folder: RunFolder, execution: Execution, watch: Watch) -> None:
    """Write with what a run begins, or say what has changed since it did."""
    begun, now = folder.read("environment.json"), execution.environment()
    if begun is None:
        folder.write("environment.json", now)
        return
    for key in ("invint", "torch", "machine", "processes"):
        if begun.get(key) != now[key]:
            watch.noted(
                f"the run began with {key} {begun.get(key)} and goes on with {now[key]}: "
                "the last bits may differ"
            )
