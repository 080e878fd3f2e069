"""The record of an audit: numbers by angle, thresholds, a file, a table, a picture."""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from invint.audit.drawing import draw_turns
from invint.audit.tables import table_lines
from invint.audit.turn import Turn
from invint.audit.turning import BORDERS
from invint.errors import ConfigError
from invint.files import write_whole

FORMAT = 1  # of the JSON files


@dataclass(frozen=True)
class Audit:
    """The numbers of one model by angle, and how they were measured.

    Attributes:
        name: The model: its own `name`, its function, its class or its file.
        images: Number of images.
        size: Their height and width.
        border: What was done about the border of turned images: `disc` or `pad`.
        precision: What the model computed in.
        turns: One entry for each angle, then one for each angle of the mirror images.
    """

    name: str
    images: int
    size: tuple[int, int]
    border: str
    precision: str
    turns: tuple[Turn, ...]

    @property
    def worst(self) -> Turn:
        """The turn with the largest drift of any image."""
        return max(self.turns, key=lambda turn: turn.max_drift)

    @property
    def worst_drift(self) -> float:
        """Largest drift of any image at any angle."""
        return self.worst.max_drift

    @property
    def worst_exact_drift(self) -> float:
        """Largest drift of any image under turns that permute pixels."""
        turns = [turn for turn in self.turns if turn.exact]
        if all(turn.upright for turn in turns):
            raise ConfigError(
                "Audit.worst_exact_drift: no turn permutes pixels; audit 90, 180 or 270 degrees"
            )
        return max(turn.max_drift for turn in turns)

    @property
    def worst_accuracy(self) -> float:
        """Accuracy at the worst angle."""
        known = [turn.accuracy for turn in self.turns if turn.accuracy is not None]
        if not known:
            raise ConfigError("Audit.worst_accuracy: audited without labels; give audit_model some")
        return min(known)

    def passes(
        self,
        *,
        max_drift: float | None = None,
        exact_drift: float | None = 1e-3,
        min_accuracy: float | None = None,
    ) -> bool:
        """Compare with thresholds; `None` leaves one out.

        Args:
            max_drift: Of any image at any angle. There is no right value: interpolation is in it.
            exact_drift: Of any image under turns that permute pixels. Rounding alone is around
                1e-15 in float64, 1e-6 in float32 and 1e-2 in bfloat16.
            min_accuracy: At the worst angle.
        """
        if max_drift is None and exact_drift is None and min_accuracy is None:
            raise ConfigError("Audit.passes: nothing to compare with; give at least one threshold")
        kept = (  # compared one and all, so that a threshold without numbers is never skipped
            max_drift is None or self.worst_drift <= max_drift,
            exact_drift is None or self.worst_exact_drift <= exact_drift,
            min_accuracy is None or self.worst_accuracy >= min_accuracy,
        )
        return all(kept)

    def exit_status(
        self,
        *,
        max_drift: float | None = None,
        exact_drift: float | None = 1e-3,
        min_accuracy: float | None = None,
    ) -> int:
        """Return 0 if the audit passes and 1 if not, as `sys.exit` in a CI wants it."""
        return int(
            not self.passes(max_drift=max_drift, exact_drift=exact_drift, min_accuracy=min_accuracy)
        )

    def table(self, *, markdown: bool = False) -> str:
        """Return everything as aligned text, or as Markdown."""
        height, width = self.size
        about = (
            f"{self.name}: {self.images} images of {height} x {width} pixels, {self.precision}",
            f"border {self.border}: {BORDERS[self.border]}",
        )
        table = table_lines(self.turns, markdown=markdown)
        return "\n".join([*about, "", *table, "", *self._summary()])

    def _summary(self) -> list[str]:
        lines = [f"worst drift {self.worst_drift:.2g} at {self.worst}"]
        if any(turn.exact and not turn.upright for turn in self.turns):
            lines.append(f"worst drift where pixels are permuted {self.worst_exact_drift:.2g}")
        if self.turns[0].accuracy is not None:
            turn = min(self.turns, key=lambda turn: turn.accuracy or 0.0)
            lines.append(f"worst accuracy {self.worst_accuracy:.1%} at {turn}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; an infinite drift becomes `None`."""
        turns = [
            {key: None if value == math.inf else value for key, value in asdict(turn).items()}
            for turn in self.turns
        ]
        return {"format": FORMAT} | asdict(self) | {"size": list(self.size), "turns": turns}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False, ensure_ascii=False)
        write_whole(Path(path), text + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Audit":
        """Read a JSON file that `save` has written."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            if values.pop("format") != FORMAT:
                raise ConfigError(f"{path}: not an audit of format {FORMAT}; audit again")
            turns = tuple(Turn.from_dict(turn) for turn in values.pop("turns"))
            return cls(**values | {"size": tuple(values["size"]), "turns": turns})
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: not an audit; Audit.save writes them") from error

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw drift, and accuracy if known, around the circle; `path` ends in .png, .svg or .pdf.

        Dots mark the turns that permute pixels.
        """
        if Path(path).suffix not in (".png", ".svg", ".pdf"):
            raise ConfigError(f"Audit.draw: expected a .png, .svg or .pdf file, got {str(path)!r}")
        title = f"{self.name}, {self.precision}, border {self.border}"
        draw_turns(self.turns, title, Path(path))
