"""How large, how long, how often: what fits the time given, measured on this machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from invint.errors import ConfigError
from invint.recipes import Recipe, find_recipe
from invint.recipes.recipe import DataChoice
from invint.train import Execution
from invint.train.timing import random_data, seconds_per_step

SIDES = (16, 20, 24, 28, 32, 40, 48, 56, 64)  # sides of images worth trying
EPOCHS = 20  # passes over the images that make a whole training
FEWEST, ENOUGH, MOST = 30, 300, 2000  # steps
SEEDS = 5  # at most
WANTED_SEEDS = 3  # images are made smaller for their sake, down to half the side
MEASURED = 0.2  # seconds of steps, of each network at each side
EVALUATION = 40  # steps that take as long as testing a network, upright and turned
OVERHEAD = 20.0  # seconds for the report and the exported files
VALIDATION = 0.2

Clock = Callable[[int], float]  # from a side to the seconds of one step of every network


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is trained.

    Attributes:
        side: Of the images, in pixels.
        batch_size: Images per step.
        steps: Of each network.
        seeds: Times each network is trained, on other splits and with other weights.
        seconds: How long all of it will take, by the measurement.
        whole: Whether there is time for a whole training of each network.
    """

    side: int
    batch_size: int
    steps: int
    seeds: int
    seconds: float = 0.0
    whole: bool = True

    def __post_init__(self) -> None:
        if min(self.side, self.batch_size, self.steps, self.seeds) < 1:
            raise ConfigError(f"Plan: everything must be 1 or more, got {self}")


def candidate_sides(native: int) -> list[int]:
    """Return the sides to try, the largest first: that of the pictures if it is not too large."""
    largest = min(max(native + native % 2, SIDES[0]), SIDES[-1])
    smaller = [side for side in SIDES if largest / 2 <= side < largest]
    return [largest, *reversed(smaller)]


def make_plan(images: int, sides: Sequence[int], seconds: float, clock: Clock) -> Plan:
    """Choose side, steps and seeds for the time given.

    The largest images for which every network can be trained whole and three times over; if there
    are none, the largest for which once is possible; if that takes too long too, the smallest, and
    shorter. A whole training is 20 passes over the images, but 300 to 2,000 steps.

    Args:
        images: Number of training images.
        sides: Sides to try, the largest first.
        seconds: Time for everything.
        clock: Measures the seconds of one step of every network at a side.
    """
    batch = batch_size_for(images)
    goal = min(max(EPOCHS * images // batch, ENOUGH), MOST)
    left = max(seconds - OVERHEAD, 0.5 * seconds)
    costs: dict[int, float] = {}
    for side in sides:
        costs[side] = clock(side)
        if _seeds(left, costs[side], goal) >= WANTED_SEEDS:
            break
    for least in (WANTED_SEEDS, 1):
        for side, cost in costs.items():
            seeds = min(_seeds(left, cost, goal), SEEDS)
            if seeds >= least:
                spent = seeds * cost * (goal + EVALUATION) + OVERHEAD
                return Plan(side=side, batch_size=batch, steps=goal, seeds=seeds, seconds=spent)
    side, cost = list(costs.items())[-1]
    steps = max(FEWEST, int(left / cost) - EVALUATION)
    spent = cost * (steps + EVALUATION) + OVERHEAD
    return Plan(side=side, batch_size=batch, steps=steps, seeds=1, seconds=spent, whole=False)


def batch_size_for(images: int) -> int:
    """Return how many of so many images make a batch."""
    return 64 if images >= 256 else 32 if images >= 64 else 16


def _seeds(seconds: float, cost: float, steps: int) -> int:
    return int(seconds / (cost * (steps + EVALUATION)))


def recipes(plan: Plan, data: DataChoice, images: int) -> list[Recipe]:
    """Return the networks to compare: one set of hyper-parameters for all of them.

    Args:
        plan: How long, with which batches.
        data: The pictures, and what is held out of them for testing.
        images: Number of training images.
    """
    epochs = max(1, round(plan.steps * plan.batch_size / images))
    return [
        find_recipe(f"digits/{base}").replace(
            name=f"fit/{name}",
            about=about,
            data=data.replace(augment=augment, validation=VALIDATION),
            train={
                "epochs": epochs,
                "batch_size": plan.batch_size,
                "lr_decay_epochs": (0.45 * epochs,),
                "class_weights": False,
            },
        )
        for name, about, base, augment in (
            ("cnn", "Ordinary network, images as they are", "cnn", ()),
            ("cnn-turned", "Ordinary network, trained on turned copies", "cnn", ("rotate",)),
            ("pooling", "Steerable network with the spatial maximum", "pooling", ("rotate",)),
            ("local-ws", "Steerable network with invariant integration", "local-ws", ("rotate",)),
        )
    ]


def stopwatch(images: int, channels: int, classes: int) -> Clock:
    """Return a clock that times a few training steps of each network, on random images.

    Args:
        images: Number of training images.
        channels: Of the images.
        classes: Their number.
    """

    def clock(side: int) -> float:
        plan = Plan(side=side, batch_size=batch_size_for(images), steps=1, seeds=1)
        data = random_data(plan.batch_size, side=side, channels=channels, classes=classes)
        return sum(
            seconds_per_step(recipe, data, Execution(compile=False), enough=MEASURED, warm_up=1)
            for recipe in recipes(plan, DataChoice(), images)
        )

    return clock
