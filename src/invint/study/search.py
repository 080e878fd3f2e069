"""What tuning may change in a recipe: the appendix's hyper-parameters, each in its range."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from invint.errors import ConfigError, require_extra
from invint.models.registry import MODELS
from invint.nn.heads import head_options
from invint.recipes import Recipe
from invint.recipes.recipe import with_choices
from invint.recipes.schedule import TO_ZERO
from invint.selection import catalog_size

OWNER = "invint tune"
Configuration = dict[str, float | int]

REG = {
    "digits": (1e-5, 1.0),
    "rotmnist": (1e-4, 3.0),
    "svhn": (1e-4, 1.0),
    "cifar10": (1e-6, 1.0),
    "stl10": (1e-10, 1e-2),
}
ANY_REG = (1e-8, 1.0)
BATCH_SIZES = {"stl10": (32, 64, 96, 128)}
ANY_BATCH_SIZE = (32, 64, 128)


@dataclass(frozen=True)
class Range:
    """A number between two bounds.

    Attributes:
        path: Which choice of the recipe, as `train.lr`.
        low: The lowest value.
        high: The highest value.
        log: Whether every factor counts alike, not every difference.
        whole: Whether the number is whole.
    """

    path: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def including(self, value: float) -> "Range":
        """Return the range, widened if need be so that a value is in it."""
        if self.log and value <= 0:
            return self
        return replace(self, low=min(self.low, value), high=max(self.high, value))

    def rounded(self, value: Any) -> float | int:
        """Return a value as one would write it: two digits, or a whole number."""
        if self.whole:
            return int(value)
        return float(f"{value:.1e}") if self.log else round(float(value), 2)

    def parameter(self) -> Any:
        """Return the range as the optimizer has it."""
        parameters = require_extra("parameterspace", OWNER, "tune")
        kind = parameters.IntegerParameter if self.whole else parameters.ContinuousParameter
        bounds = (int(self.low), int(self.high)) if self.whole else (self.low, self.high)
        return kind(
            name=plain(self.path), bounds=bounds, transformation="log" if self.log else None
        )


@dataclass(frozen=True)
class Choice:
    """One of a few numbers, in ascending order.

    Attributes:
        path: Which choice of the recipe, as `train.batch_size`.
        values: The numbers.
    """

    path: str
    values: tuple[int, ...]
    log = True

    def including(self, value: int) -> "Choice":
        """Return the choice with one more number, unless it is among them."""
        return replace(self, values=tuple(sorted({*self.values, value})))

    def rounded(self, value: Any) -> int:
        """Return the number itself."""
        return int(value)

    def parameter(self) -> Any:
        """Return the choice as the optimizer has it."""
        parameters = require_extra("parameterspace", OWNER, "tune")
        return parameters.OrdinalParameter(name=plain(self.path), values=list(self.values))


Space = tuple[Range | Choice, ...]

ANY_SIDE = 5  # of the smallest map that our data sets leave under a head, that of digits

PLAIN_SGD: Space = (
    Range("train.lr", 1e-3, 0.5, log=True),
    Range("train.weight_decay", 1e-5, 1e-2, log=True),
    Range("model.dropout", 0.0, 0.8),
)
HEAD: Space = (  # of each head, what it has of these
    Choice("head.max_distance", (1, 2, 3, 4, 6, 9, 12)),
    Range("head.exponents", 0.5, 4.0),
    Range("head.floor", 1e-3, 1.0, log=True),
    Choice("head.kernel_size", (1, 3, 5, 7)),
    Choice("head.layers", (1, 2, 3)),
    Range("head.power", 1.5, 50.0, log=True),
    Range("head.sharpness", 0.1, 50.0, log=True),
)


def search_space(recipe: Recipe, side: int = ANY_SIDE) -> Space:
    """Return what is tuned of a recipe: what its appendix column has, and the recipe's own values.

    Steerable networks have the rows of the appendix and options of their head; where the learning
    rate ends at zero, warm-up, label smoothing, the longest gradient and, if statistics are found
    anew, the average of weights take the place of its decay. Plain networks have no penalties on
    steerable filters; those trained by stochastic gradient descent keep their milestones, and have
    learning rate, weight decay and dropout.

    Args:
        recipe: What is tuned.
        side: Of the last map, the shorter one: distances and kernels are to fit.
    """
    sgd = recipe.train.optimizer == "sgd"
    space = PLAIN_SGD if sgd else _adam(recipe) + _steerable(recipe)
    space += tuple(_of_head(recipe, side)) if is_steerable(recipe) else ()
    return tuple(_with_own(each, recipe) for each in space)


def parameter_space(space: Space) -> Any:
    """Return a search space of the optimizer, without a seed."""
    found = require_extra("parameterspace", OWNER, "tune").ParameterSpace()
    for each in space:
        found.add(each.parameter())
    return found


def plain(path: str) -> str:
    """Return a path as a name that the optimizer accepts."""
    return path.replace(".", "_")


def rounded(space: Space, configuration: Mapping[str, Any]) -> Configuration:
    """Return a configuration of the optimizer by paths, in plain numbers with few digits."""
    return {each.path: each.rounded(configuration[plain(each.path)]) for each in space}


def configured(recipe: Recipe, configuration: Mapping[str, float | int]) -> Recipe:
    """Return a recipe with the values of a configuration."""
    parts: dict[str, dict[str, Any]] = {}
    for path, value in configuration.items():
        part, _, key = path.partition(".")
        parts.setdefault(part, {})[key] = value
    return with_choices(recipe, parts, OWNER)


def own_value(recipe: Recipe, path: str) -> Any:
    """Return what a recipe has for a path; of a list, its last number."""
    part, _, key = path.partition(".")
    value = getattr(getattr(recipe, part), key)
    return value[-1] if isinstance(value, Sequence) else value


def _adam(recipe: Recipe) -> Space:
    epochs = recipe.train.epochs
    if recipe.train.decay == "milestones":
        raise ConfigError(
            f"{recipe.name}: tuning changes one lr_decay_epochs, not milestones; choose "
            "--set train.decay=exponential or step"
        )
    sizes = BATCH_SIZES.get(recipe.data.name, ANY_BATCH_SIZE)
    rate = Range("train.lr", 3e-5, 3e-2, log=True)
    rest = (Choice("train.batch_size", sizes), Range("model.dropout", 0.0, 0.8))
    if recipe.train.decay in TO_ZERO:
        return (rate, *_settled(recipe), *rest)
    return (
        rate,
        Range("train.lr_decay", 0.02, 1.0, log=True),
        Range("train.lr_decay_epochs", epochs / 10, float(epochs), log=True),
        *rest,
    )


def _settled(recipe: Recipe) -> Space:
    """Return what there is to tune where the rate ends at zero; averages need new statistics."""
    space: Space = (
        Range("train.warmup", 0.0, recipe.train.epochs / 5),
        Range("train.label_smoothing", 0.0, 0.2),
        Range("train.clip_norm", 0.1, 100.0, log=True),
    )
    return (*space, Range("train.ema", 0.0, 0.99)) if recipe.train.statistics else space


def _steerable(recipe: Recipe) -> Space:
    entry, head = MODELS.get(recipe.model.name), recipe.model.head or "max"
    if entry is None:
        raise ConfigError(f"{recipe.name}: no network {recipe.model.name!r}")
    if entry.group is None:
        return ()
    space: Space = (Range("train.reg", *REG.get(recipe.data.name, ANY_REG), log=True),)
    default = entry.n_fc.get(head, entry.n_fc.get("max"))
    if recipe.model.n_fc is not None or default is not None:  # else there is no hidden layer
        space += (Range("model.n_fc", 8, 128, log=True, whole=True),)
    if head == "attention":
        space += (
            Choice("model.attention_heads", (1, 2, 4)),
            Range("model.attention_dropout", 0.0, 0.5),
        )
    return space


def is_steerable(recipe: Recipe) -> bool:
    """Say whether the network of a recipe has a head to choose."""
    entry = MODELS.get(recipe.model.name)
    return entry is not None and entry.group is not None


def _of_head(recipe: Recipe, side: int) -> Iterator[Range | Choice]:
    """Yield the options of the head, with values that fit a map of this side."""
    known = head_options(recipe.model.head or "max")
    for each in HEAD:
        name = each.path.partition(".")[2]
        if isinstance(each, Choice):
            each = replace(
                each, values=tuple(v for v in each.values if _fits(recipe, name, v, side))
            )
        if name in known and not (isinstance(each, Choice) and len(each.values) < 2):
            yield each


def _fits(recipe: Recipe, name: str, value: int, side: int) -> bool:
    """Say whether a map of this side has room for it, and a catalog for its distances."""
    if name == "kernel_size":
        return value <= side
    if name != "max_distance":
        return True
    choice, factors = recipe.selection, recipe.head.factors or 3
    room = choice.initial != "catalog" or catalog_size(value, factors) <= choice.start
    return value < side and room


def _with_own(parameter: Range | Choice, recipe: Recipe) -> Range | Choice:
    value = own_value(recipe, parameter.path)
    return parameter if value is None else parameter.including(value)


ETA = 3  # of Hyperband: a third of the configurations gets three times the iterations
ROUNDS = 10**6  # the budget ends a tuning, not the optimizer


class Proposal(NamedTuple):
    """What to try next.

    Attributes:
        configuration: The values, by their path in the recipe.
        fidelity: Fraction of the iterations.
        token: By which the optimizer knows its proposal again.
    """

    configuration: Configuration
    fidelity: float
    token: Any


@runtime_checkable
class Optimizer(Protocol):
    """Proposes what to try, and learns what came of it."""

    def propose(self) -> Proposal | None:
        """Return what to try next; `None` as long as it waits for results."""

    def learn(self, proposal: Proposal, error: float | None) -> None:
        """Take the error of a proposal; `None` if it failed."""


class Bohb:
    """Bayesian optimization with Hyperband (Falkner et al. 2018), by blackboxopt.

    Args:
        space: What may be changed.
        scales: Lowest and highest fraction of the iterations.
        seed: Of the proposals.
    """

    def __init__(self, space: Space, scales: tuple[float, float], seed: int) -> None:
        self.space = space
        self.library = require_extra("blackboxopt", OWNER, "tune")
        with quiet():
            self.optimizer = require_extra("blackboxopt.optimizers.bohb", OWNER, "tune").BOHB(
                search_space=parameter_space(space),
                objective=self.library.Objective("validation_error", greater_is_better=False),
                min_fidelity=lowered(scales[0]),
                max_fidelity=scales[1],
                num_iterations=ROUNDS,
                eta=ETA,
                min_samples_in_model=len(space) + 1,
                seed=seed + 1,  # to blackboxopt, the seed 0 means none
            )

    def propose(self) -> Proposal | None:
        """Return a configuration drawn at random or from the model, or one promoted."""
        try:
            with quiet():
                found = self.optimizer.generate_evaluation_specification()
        except self.library.OptimizerNotReady:
            return None
        configuration = rounded(self.space, found.configuration)
        return Proposal(configuration, float(found.settings["fidelity"]), found)

    def learn(self, proposal: Proposal, error: float | None) -> None:
        """Refit the model."""
        answer = proposal.token.create_evaluation(objectives={"validation_error": error})
        with quiet():
            self.optimizer.report(answer)


class RandomSearch:
    """Configurations drawn at random, all with the highest fraction of the iterations.

    Args:
        space: What may be changed.
        scales: Lowest and highest fraction of the iterations.
        seed: Of the proposals.
    """

    def __init__(self, space: Space, scales: tuple[float, float], seed: int) -> None:
        self.space, self.scale = space, scales[1]
        self.drawn = parameter_space(space)
        self.drawn.seed(seed + 1)

    def propose(self) -> Proposal:
        """Draw a configuration."""
        return Proposal(rounded(self.space, self.drawn.sample()), self.scale, None)

    def learn(self, proposal: Proposal, error: float | None) -> None:
        """Learn nothing."""


OPTIMIZERS: dict[str, Callable[[Space, tuple[float, float], int], Optimizer]] = {
    "bohb": Bohb,
    "random": RandomSearch,
}


def check_scales(low: float, high: float) -> tuple[float, float]:
    """Return the lowest and highest fraction of the iterations, if they make sense."""
    if not 0 < low <= high <= 1:
        raise ConfigError(
            f"{OWNER}: expected 0 < --min-scale ≤ --max-scale ≤ 1, got {low:g} and {high:g}"
        )
    return low, high


def lowered(scale: float) -> float:
    """Return a little less, so that a third of 0.15 is not above 0.05 by rounding."""
    return scale * (1 - 1e-9)


def round_of_brackets(scales: tuple[float, float]) -> list[list[tuple[int, float]]]:
    """Return the brackets of Hyperband: for each of their stages, trials and fidelity."""
    low, high = scales
    stages = 1 + math.floor(math.log(high / lowered(low), ETA))
    brackets = []
    for bracket in range(stages, 0, -1):
        first = math.ceil(stages / bracket * ETA ** (bracket - 1))
        sizes = [first // ETA**stage for stage in range(bracket)]
        fidelities = [high / ETA**stage for stage in range(bracket - 1, -1, -1)]
        brackets.append(list(zip(sizes, fidelities, strict=True)))
    return brackets


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a warning to ourselves: statsmodels will seed otherwise what no density here draws."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*entropy initialized", FutureWarning)
        yield
