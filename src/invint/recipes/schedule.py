"""How long a run is and how fast it learns: nominal epochs, steps, learning rates."""

import math
from dataclasses import dataclass
from typing import Literal

from invint.errors import ConfigError

Decay = Literal["exponential", "step", "milestones"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The clock of a run. An epoch is a pass over the *full* training set, whatever is used of it.

    A run on 100 of 12,000 images thus takes the same steps as one on all of them.

    Attributes:
        images: Number of images of the full training set.
        batch_size: Images per step.
        epochs: Length of the run in epochs.
        scale: Fraction of the steps to take; everything counted in epochs scales with it.
    """

    images: int
    batch_size: int
    epochs: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        if min(self.images, self.batch_size, self.epochs) <= 0 or not 0 < self.scale <= 1:
            raise ConfigError(
                "Schedule: images, batch size and epochs must be positive and the scale in (0, 1], "
                f"got {self.images}, {self.batch_size}, {self.epochs} and {self.scale}"
            )

    @property
    def steps_per_epoch(self) -> float:
        """Steps of one epoch; need not be whole."""
        return self.images * self.scale / self.batch_size

    @property
    def steps(self) -> int:
        """Steps of the whole run: E · N / B."""
        return max(1, self.step_at(self.epochs))

    def step_at(self, epoch: float) -> int:
        """Return the number of steps done when an epoch is over."""
        return math.floor(epoch * self.steps_per_epoch + 1e-9)

    def epoch_at(self, step: int) -> float:
        """Return how many epochs are over after a number of steps."""
        return step / self.steps_per_epoch


def learning_rate(
    epoch: float, *, lr: float, decay: str, factor: float, epochs: tuple[float, ...]
) -> float:
    r"""Return the learning rate after `epoch` epochs $t$.

    With factor $d$ and epochs $T$: `exponential` is $\eta d^{t/T}$, `step` is
    $\eta d^{\lfloor t/T \rfloor}$, and `milestones` multiplies by $d$ at each of several epochs.
    """
    if not epochs or min(epochs) <= 0:
        raise ConfigError(
            f"expected one or more epochs above 0 for the decay of the learning rate, got {epochs}"
        )
    if decay == "exponential":
        power = epoch / epochs[0]
    elif decay == "step":
        power = math.floor(epoch / epochs[0] + 1e-9)
    elif decay == "milestones":
        power = sum(epoch + 1e-9 >= each for each in epochs)
    else:
        raise ConfigError(f"no decay {decay!r}; there are exponential, step and milestones")
    return lr * math.pow(factor, power)
