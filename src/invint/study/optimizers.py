"""What proposes configurations to a tuning: BOHB, or chance."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from invint.errors import ConfigError
from invint.extras import needed
from invint.study.space import OWNER, Configuration, Space, parameter_space, rounded

ETA = 3  # of Hyperband: a third of the configurations gets three times the iterations
ROUNDS = 10**6  # the budget ends a tuning, not the optimizer


class Proposal(NamedTuple):
    """What to try next.

    Attributes:
        configuration: The values, by their path in the recipe.
        fidelity: Share of the iterations.
        token: By which the optimizer knows its proposal again.
    """

    configuration: Configuration
    fidelity: float
    token: Any


@runtime_checkable
class Optimizer(Protocol):
    """Proposes what to try, and learns what came of it."""

    def propose(self) -> Proposal | None:
        """Return what to try next; none as long as it waits for answers."""

    def learn(self, proposal: Proposal, error: float | None) -> None:
        """Take the error of a proposal; none if it failed."""


class Bohb:
    """Bayesian optimization with Hyperband (Falkner et al. 2018), by blackboxopt.

    Args:
        space: What may be changed.
        scales: Lowest and highest share of the iterations.
        seed: Of the proposals.
    """

    def __init__(self, space: Space, scales: tuple[float, float], seed: int) -> None:
        self.space = space
        self.library = needed("blackboxopt", OWNER, "tune")
        with quiet():
            self.optimizer = needed("blackboxopt.optimizers.bohb", OWNER, "tune").BOHB(
                search_space=parameter_space(space),
                objective=self.library.Objective("validation_error", greater_is_better=False),
                min_fidelity=lowered(scales[0]),
                max_fidelity=scales[1],
                num_iterations=ROUNDS,
                eta=ETA,
                min_samples_in_model=len(space) + 1,
                seed=seed + 1,  # to blackboxopt, the seed 0 is none
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
    """Configurations drawn at random, all with the highest share of the iterations.

    Args:
        space: What may be changed.
        scales: Lowest and highest share of the iterations.
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
    """Return the lowest and highest share of the iterations, if they make sense."""
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
        shares = [high / ETA**stage for stage in range(bracket - 1, -1, -1)]
        brackets.append(list(zip(sizes, shares, strict=True)))
    return brackets


@contextmanager
def quiet() -> Iterator[None]:
    """Keep a warning to ourselves: statsmodels will seed otherwise what no density here draws."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*entropy initialized", FutureWarning)
        yield
