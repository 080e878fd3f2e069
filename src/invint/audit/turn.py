"""What one turn does to the answers of a model, in numbers."""

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Turn:
    r"""What one turn does to the logits $f$ of the images $x$.

    Attributes:
        angle: Counter-clockwise, in degrees, from 0 to 360.
        mirrored: Whether the images were mirrored, `y → -y`, before they were turned.
        exact: Whether the turn permutes pixels: no interpolation has a share in the numbers.
        mean_drift: Mean over images of $\lVert f(Rx) - f(x) \rVert / \lVert f(x) \rVert$.
        max_drift: The same for the worst image; infinite where logits are not finite.
        changed: Share of images whose label, the largest logit, is another than upright.
        accuracy: Share of images with the right label, if labels were given.
    """

    angle: float
    mirrored: bool
    exact: bool
    mean_drift: float
    max_drift: float
    changed: float
    accuracy: float | None = None

    @property
    def upright(self) -> bool:
        """Whether this is no turn at all."""
        return self.angle == 0 and not self.mirrored

    def __str__(self) -> str:
        return f"{self.angle:g}°, mirrored" if self.mirrored else f"{self.angle:g}°"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Turn":
        """Read what JSON holds of a turn: a drift of `None` is infinite."""
        drifts = {key: values[key] for key in ("mean_drift", "max_drift")}
        infinite = {key: math.inf for key, value in drifts.items() if value is None}
        return cls(**values | infinite)
