"""What `invint fit` tries: its candidates by name, cheapest first, and each as a recipe."""

import math
from dataclasses import dataclass

from invint.errors import ConfigError, require_extra
from invint.fit.features import batch_of
from invint.models.efficientnet import WEIGHTS, has_weights
from invint.models.registry import MODELS, takes_pixels
from invint.recipes import Recipe, find_recipe
from invint.recipes.recipe import DataChoice, ModelChoice, TrainChoice

NONE = "none"  # in the place of a backbone
BACKBONE = "efficientnet-lite0"
DEPTHS = 4  # maps of the backbone whose means are features
SIDES = (64, 96, 128, 160, 224)  # of pictures for the backbone
ENLARGED = 5  # times the side of small pictures, at most
SMALL_SIDES = (16, 20, 24, 28, 32, 40, 48, 56, 64)  # of pictures for networks from scratch
GRADIENTS_SIDE = 64  # of pictures for oriented gradients
BATCH = 64
ENOUGH, MOST = 300, 2000  # steps of a network from scratch
EPOCHS = 40  # passes over the pictures that settle it
PASSES = (30, 20, 12, 8, 5, 3)  # over the pictures, of the pretrained network
TUNED_BATCH, TUNED_LR = 32, 1e-3


@dataclass(frozen=True)
class Candidate:
    """A way to classify.

    Attributes:
        name: In tables, folders, advice and report.
        title: In words.
        group: Its symmetries; `None` where it has none.
    """

    name: str
    title: str
    group: str | None = None

    @property
    def recipe_name(self) -> str:
        """Name of its recipes."""
        return f"fit/{self.name}"


UPRIGHT = Candidate("upright", "pretrained network as it is")
ORBIT = Candidate("orbit", "pretrained network over quarter turns", "C4")
MIRRORED = Candidate(
    "orbit-mirrored", "pretrained network over quarter turns and mirror images", "D4"
)
POSED = Candidate("orbit-posed", "pretrained network over quarter turns, by the upright one", "C4")
TUNED = Candidate("orbit-tuned", "pretrained network over quarter turns, all of it trained", "C4")
GRADIENTS = Candidate(
    "gradients", "oriented gradients over quarter turns, by the upright picture", "C4"
)
STEERABLE = Candidate("steerable", "steerable network from scratch", "C8")
PLAIN = Candidate("plain", "ordinary network from scratch")
CANDIDATES = {
    each.name: each
    for each in (ORBIT, UPRIGHT, GRADIENTS, POSED, MIRRORED, TUNED, STEERABLE, PLAIN)
}


def candidate_of(recipe_name: str) -> Candidate:
    """Return the candidate that a recipe belongs to."""
    return CANDIDATES[recipe_name.removeprefix("fit/")]


def find_backbone(asked: str | None) -> str | None:
    """Return the name of the pretrained backbone that is there; `None` for none.

    Args:
        asked: Its name, `none`, or nothing for the default one where it is installed.

    Raises:
        ConfigError: The one that was asked for is not there.
    """
    if asked == NONE:
        return None
    name = asked or BACKBONE
    known = [each for each in MODELS if takes_pixels(each) and f"orbit-{each}" in MODELS]
    if name not in known:
        raise ConfigError(f"--backbone {name}: there are {', '.join(known)} and {NONE}")
    if not has_weights():
        if asked is None:
            return None
        require_extra(WEIGHTS, f"--backbone {name}", "pretrained")
    return name


def frozen_recipe(candidate: Candidate, data: DataChoice, backbone: str) -> Recipe:
    """Return the recipe of a pretrained network whose classifier alone is fitted."""
    return Recipe(
        name=candidate.recipe_name,
        about=f"{candidate.title}: its classifier by logistic regression",
        data=data,
        model=ModelChoice(
            name=f"orbit-{backbone}",
            group=candidate.group or "C1",
            depths=DEPTHS,
            group_pool="pose" if candidate is POSED else None,
            pretrained=True,
        ),
        train=TrainChoice(epochs=1, batch_size=BATCH, lr=0.0),
    )


def gradients_recipe(data: DataChoice) -> Recipe:
    """Return the recipe of oriented gradients whose classifier alone is fitted."""
    return Recipe(
        name=GRADIENTS.recipe_name,
        about=f"{GRADIENTS.title}: its classifier by logistic regression",
        data=data,
        model=ModelChoice(name="orbit-gradients", group=GRADIENTS.group, group_pool="pose"),
        train=TrainChoice(epochs=1, batch_size=BATCH, lr=0.0),
    )


def tuned_recipe(data: DataChoice, backbone: str, images: int, passes: int) -> Recipe:
    """Return the recipe of a pretrained network that is trained further, all of it, gently.

    It learns from one random copy of each picture what it then averages over four, at a quarter of
    the price. On 500 pictures of house numbers a third of the rate helped less in as many passes,
    four times the rate lost everything that was learnt, and so did statistics of each batch.
    """
    batch, side = min(batch_size_for(images), TUNED_BATCH), data.side or SIDES[0]
    train = TrainChoice(
        epochs=passes,
        batch_size=batch,
        accumulate=min(math.ceil(batch / batch_of(side)), batch // 2),
        optimizer="adamw",
        lr=TUNED_LR,
        decay="cosine",
        warmup=passes / 10,
        clip_norm=1.0,
        keep_statistics=True,
        one_copy=True,
    )
    about = f"{TUNED.title}: {passes} passes, a learning rate that ends at zero"
    frozen = frozen_recipe(ORBIT, data, backbone)
    return frozen.replace(name=TUNED.recipe_name, about=about, train=train)


def scratch_recipe(candidate: Candidate, data: DataChoice, images: int, steps: int) -> Recipe:
    """Return the settled recipe of a network from scratch, for a number of steps."""
    base = "digits/settled-pooling" if candidate is STEERABLE else "digits/settled-cnn-small"
    batch = batch_size_for(images)
    return find_recipe(base).replace(
        name=candidate.recipe_name,
        about=f"{candidate.title}: {steps:,} steps, a learning rate that ends at zero",
        data=data.replace(augment=("rotate",), test_turns=1),
        train={"epochs": max(1, round(steps * batch / images)), "batch_size": batch},
    )


def whole_steps(images: int) -> int:
    """Return the steps of a whole training from scratch: 40 passes, but 300 to 2,000 steps."""
    return min(max(EPOCHS * images // batch_size_for(images), ENOUGH), MOST)


def batch_size_for(images: int) -> int:
    """Return how many of so many images make a batch."""
    return BATCH if images >= 256 else 32 if images >= 64 else 16


def backbone_sides(native: int) -> list[int]:
    """Return the sides worth trying with a backbone, the smallest first."""
    largest = max(ENLARGED * native, SIDES[0])
    return [side for side in SIDES if side <= largest]


def scratch_sides(native: int) -> list[int]:
    """Return the sides worth trying from scratch, the largest first: down to half of it."""
    largest = min(max(native + native % 2, SMALL_SIDES[0]), SMALL_SIDES[-1])
    return [largest, *(side for side in reversed(SMALL_SIDES) if largest / 2 <= side < largest)]
