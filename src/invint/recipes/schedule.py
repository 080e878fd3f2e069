"""How long a run is and how fast it learns: nominal epochs, steps, learning rates."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from invint.errors import ConfigError

Decay = Literal["exponential", "step", "milestones", "cosine", "linear"]
TO_ZERO = ("cosine", "linear")  # with the end of the run


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
    epoch: float,
    *,
    lr: float,
    decay: str,
    factor: float = 1.0,
    epochs: tuple[float, ...] = (1.0,),
    length: float = math.inf,
    warmup: float = 0.0,
) -> float:
    r"""Return the learning rate after `epoch` epochs $t$.

    With factor $d$ and epochs $T$: `exponential` is $\eta d^{t/T}$, `step` is
    $\eta d^{\lfloor t/T \rfloor}$, and `milestones` multiplies by $d$ at each of several epochs.
    Two end at zero with the run, after its length $E$: `cosine` is
    $\tfrac{\eta}{2}(1 + \cos \pi t/E)$ and `linear` is $\eta (1 - t/E)$. During the warm-up
    $t < w$ any of them is multiplied by $t/w$.
    """
    if not epochs or min(epochs) <= 0:
        raise ConfigError(
            f"expected one or more epochs above 0 for the decay of the learning rate, got {epochs}"
        )
    if decay == "exponential":
        fraction = math.pow(factor, epoch / epochs[0])
    elif decay == "step":
        fraction = math.pow(factor, math.floor(epoch / epochs[0] + 1e-9))
    elif decay == "milestones":
        fraction = math.pow(factor, sum(epoch + 1e-9 >= each for each in epochs))
    elif decay == "cosine":
        fraction = (1 + math.cos(math.pi * min(epoch / length, 1.0))) / 2
    elif decay == "linear":
        fraction = 1 - min(epoch / length, 1.0)
    else:
        raise ConfigError(f"no decay {decay!r}; there are {', '.join(get_args(Decay))}")
    return lr * fraction * (epoch / warmup if epoch < warmup else 1.0)
