"""How much the answers of a model change as images turn: measured, kept and told."""

import copy
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from invint.errors import ConfigError, ShapeError, check_axes, require_extra
from invint.files import write_atomically
from invint.nn.modes import evaluating
from invint.ops.grids import inscribed_disc, permute_grid, rotate

BORDERS = {
    "disc": "every image, the upright one too, masked with the inscribed disc",
    "pad": "every image, the upright one too, padded with zeros so that nothing is cut",
}


def turned(x: Tensor, angle: float, mirrored: bool, border: str) -> Tensor:
    """Return images mirrored if asked for, then turned counter-clockwise by degrees."""
    if border == "pad":
        height, width = x.shape[-2:]
        diagonal = math.hypot(height, width) + 2  # interpolation reaches a pixel further
        rows, columns = (math.ceil((diagonal - side) / 2) for side in (height, width))
        x = pad(x, (columns, columns, rows, rows))
    quarters = round(angle / 90)  # exact, they permute pixels; the rest is interpolated
    rest = angle - 90 * quarters
    x = permute_grid(x, 0, mirrored)
    if rest:  # the pixels at the edge continue outwards: no dark rim around the disc
        wide = pad(x, (2, 2, 2, 2), mode="replicate")
        x = rotate(wide, math.radians(rest), mode="bicubic")[:, :, 2:-2, 2:-2]
    x = permute_grid(x, quarters, False)
    return x * inscribed_disc(x) if border == "disc" else x


@dataclass(frozen=True)
class Turn:
    r"""What one turn does to the logits $f$ of the images $x$.

    Attributes:
        angle: Counter-clockwise, in degrees, from 0 to 360.
        mirrored: Whether the images were mirrored, `y → -y`, before they were turned.
        exact: Whether the turn permutes pixels: no interpolation has a share in the numbers.
        mean_drift: Mean over images of $\lVert f(Rx) - f(x) \rVert / \lVert f(x) \rVert$.
        max_drift: The same for the worst image; infinite where logits are not finite.
        changed: Fraction of images whose label, the largest logit, is another than upright.
        accuracy: Fraction of images with the right label, if labels were given.
        confidence: Mean over images of the probability of the label; `None` if not measured.
    """

    angle: float
    mirrored: bool
    exact: bool
    mean_drift: float
    max_drift: float
    changed: float
    accuracy: float | None = None
    confidence: float | None = None

    @property
    def upright(self) -> bool:
        """Whether this is no turn at all."""
        return self.angle == 0 and not self.mirrored

    def __str__(self) -> str:
        return f"{self.angle:g}°, mirrored" if self.mirrored else f"{self.angle:g}°"


HEAD = ("angle", "mirrored", "grid", "mean drift", "max drift", "changed", "accuracy")


def _table_lines(turns: Sequence[Turn], *, markdown: bool) -> list[str]:
    """Return the lines of a table, without the accuracy where it is not known."""
    rows = [HEAD if turns[0].accuracy is not None else HEAD[:-1]]
    for turn in turns:
        mirrored, exact = "yes" if turn.mirrored else "no", "exact" if turn.exact else "-"
        drifts = f"{turn.mean_drift:.1e}", f"{turn.max_drift:.1e}"
        known = () if turn.accuracy is None else (f"{turn.accuracy:.1%}",)
        rows.append((f"{turn.angle:g}°", mirrored, exact, *drifts, f"{turn.changed:.1%}", *known))
    if markdown:
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        return [head, f"|{' ---: |' * len(rows[0])}", *body]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]


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
    def least_sure(self) -> Turn | None:
        """The turn with the lowest mean confidence; `None` where that was not measured."""
        known = [turn for turn in self.turns if turn.confidence is not None]
        return min(known, key=lambda turn: turn.confidence or 0.0, default=None)

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

    def exit_status(self, **thresholds: float | None) -> int:
        """Return 0 if the audit passes and 1 if not, as `sys.exit` in a CI wants it.

        Thresholds are those of `passes`.
        """
        return int(not self.passes(**thresholds))

    def table(self, *, markdown: bool = False) -> str:
        """Return everything as aligned text, or as Markdown."""
        height, width = self.size
        lines = [
            f"{self.name}: {self.images} images of {height} x {width} pixels, {self.precision}",
            f"border {self.border}: {BORDERS[self.border]}",
            "",
            *_table_lines(self.turns, markdown=markdown),
            "",
            f"worst drift {self.worst_drift:.2g} at {self.worst}",
        ]
        if any(turn.exact and not turn.upright for turn in self.turns):
            lines.append(f"worst drift where pixels are permuted {self.worst_exact_drift:.2g}")
        if self.turns[0].accuracy is not None:
            turn = min(self.turns, key=lambda turn: turn.accuracy or 0.0)
            lines.append(f"worst accuracy {self.worst_accuracy:.1%} at {turn}")
        return "\n".join(lines)

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
        write_atomically(Path(path), text + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Audit":
        """Read a JSON file that `save` has written."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
            if values.pop("format") != FORMAT:
                raise ConfigError(f"{path}: not an audit of format {FORMAT}; audit again")
            drifts = ("mean_drift", "max_drift")  # JSON has no infinity
            turns = [
                Turn(**turn | {key: math.inf for key in drifts if turn[key] is None})
                for turn in values.pop("turns")
            ]
            return cls(**values | {"size": tuple(values["size"]), "turns": tuple(turns)})
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read ({error})") from error
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}: not an audit; Audit.save writes them") from error

    def draw(self, path: str | os.PathLike[str]) -> None:
        """Draw drift, and accuracy if known, around the circle; `path` ends in .png, .svg or .pdf.

        Dots mark the turns that permute pixels.
        """
        from invint.figures.circles import draw_audit  # knows audits, and brings matplotlib

        draw_audit(self, Path(path))


Model = Callable[[Tensor], Tensor] | str | os.PathLike[str]
FULL, HALF = (torch.float32, torch.float64), (torch.bfloat16, torch.float16)


class _Subject(NamedTuple):
    """A model ready to run: it moves and converts its batch itself."""

    name: str
    precision: str
    run: Callable[[Tensor], Any]


def _subject(model: Model, images: Tensor, precision: torch.dtype | None) -> _Subject:
    """Return what runs a model on such images, in its own precision or another."""
    if precision is not None and precision not in FULL + HALF:
        names = ", ".join(str(dtype) for dtype in FULL + HALF)
        raise ConfigError(f"audit_model: precision must be one of {names}, got {precision!r}")
    if isinstance(model, str | os.PathLike):
        return _onnx_subject(Path(model), precision)
    half = precision in HALF
    full = torch.float32 if half else precision
    dtype, device = full or images.dtype, images.device
    if isinstance(model, nn.Module):
        tensors = (*model.parameters(), *model.buffers())
        own = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
        if own is not None:
            dtype, device = full or own.dtype, own.device
            model = model if own.dtype == dtype else copy.deepcopy(model).to(dtype).eval()
    function = model

    def run(batch: Tensor) -> Any:
        with torch.no_grad(), torch.autocast(device.type, dtype=precision, enabled=half):
            return function(batch.to(device, dtype))

    own_name = getattr(model, "name", None)
    named = getattr(model, "__name__", type(model).__name__)
    name = own_name if isinstance(own_name, str) else named
    return _Subject(name, f"{_name(precision)} autocast" if half else _name(dtype), run)


def _onnx_subject(path: Path, precision: torch.dtype | None) -> _Subject:
    if not path.is_file():
        raise ConfigError(f"audit_model: there is no file {str(path)!r}")
    runtime = require_extra("onnxruntime", f"audit_model: {path.name}", "onnx")
    try:
        session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class for its errors
        raise ConfigError(f"audit_model: {path} is not an ONNX file ({error})") from error
    entries = session.get_inputs()
    kinds = {"tensor(float)": torch.float32, "tensor(double)": torch.float64}
    kinds |= {"tensor(float16)": torch.float16}
    if len(entries) != 1 or entries[0].type not in kinds:
        found = ", ".join(f"{entry.name} {entry.type}" for entry in entries)
        raise ConfigError(f"audit_model: {path} must take one float tensor, got {found}")
    entry, dtype = entries[0], kinds[entries[0].type]
    if precision not in (None, dtype):
        raise ConfigError(
            f"audit_model: {path} computes in {_name(dtype)}, got {precision}; leave precision out"
        )

    def run(batch: Tensor) -> Tensor:
        _check_entry(entry.shape, batch, path)
        fixed = entry.shape[0] if isinstance(entry.shape[0], int) else len(batch)
        parts = []
        for part in torch.split(batch.cpu().to(dtype), fixed):
            filled = pad(part, (0, 0, 0, 0, 0, 0, 0, fixed - len(part)))
            (logits, *_) = session.run(None, {entry.name: filled.numpy()})
            parts.append(torch.from_numpy(logits)[: len(part)])
        return torch.cat(parts)

    return _Subject(path.name, f"{_name(dtype)} in onnxruntime", run)


def _check_entry(shape: list[Any], batch: Tensor, path: Path) -> None:
    fits = len(shape) == 4 and all(
        not isinstance(wanted, int) or wanted == length
        for wanted, length in zip(shape[1:], batch.shape[1:], strict=True)
    )
    if not fits:
        wanted, got = (" x ".join(map(str, axes[1:])) for axes in (shape, batch.shape))
        raise ShapeError(
            f"audit_model: {path} takes {wanted}, got {got}; "
            "border='pad' makes images larger, border='disc' does not"
        )


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")


def audit_model(
    model: Model,
    images: Tensor,
    labels: Tensor | None = None,
    *,
    angles: Iterable[float] = range(0, 360, 15),
    flips: bool = False,
    border: str = "disc",
    batch_size: int = 256,
    precision: torch.dtype | None = None,
) -> Audit:
    """Turn images through the circle and measure what becomes of the logits.

    Turns go about the centre of the grid: multiples of 90° by permuting pixels, what remains by
    bicubic interpolation. The quarter turn of an image that is not square swaps its sides. A module
    is audited in evaluation mode and left in the mode it was in.

    Args:
        model: Takes float images `(b, c, h, w)` to logits `(b, classes)`; or the path of an ONNX
            file that does.
        images: As the model wants them: `(b, c, h, w)`.
        labels: The right classes `(b,)`, for the accuracy.
        angles: In degrees, counter-clockwise.
        flips: Whether to turn the mirror images too; for networks that promise something there.
        border: `disc` masks all images with the inscribed disc; `pad` makes them larger.
        batch_size: Images at a time.
        precision: `torch.float32` or `torch.float64` to compute in that, `torch.bfloat16` or
            `torch.float16` for autocast; by default that of the model.

    Example:
        >>> from invint import create_model
        >>> audit = audit_model(create_model("sfcnn-small"), torch.rand(8, 1, 20, 20))
        >>> assert audit.passes(exact_drift=1e-3)
    """
    circle = _check_angles(angles)
    _check_images(images, labels, border, batch_size)
    upright = images if images.dtype in FULL else images.float()
    subject = _subject(model, upright, precision)

    def logits(angle: float, mirrored: bool) -> Tensor:
        """Return the logits of all images, turned."""
        batches = torch.split(upright, batch_size)
        parts = [subject.run(turned(batch, angle, mirrored, border)) for batch in batches]
        for part, batch in zip(parts, batches, strict=True):
            _check_logits(part, len(batch))
        return torch.cat([part.detach().cpu().double() for part in parts])

    with evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        still = logits(0.0, False)
        _check_reference(still, labels)
        turns = tuple(
            _compare(logits(angle, mirrored), still, labels, angle, mirrored)
            for mirrored in ((False, True) if flips else (False,))
            for angle in circle
        )
    height, width = images.shape[-2:]
    return Audit(subject.name, len(images), (height, width), border, subject.precision, turns)


def _compare(
    logits: Tensor, still: Tensor, labels: Tensor | None, angle: float, mirrored: bool
) -> Turn:
    change, scale = (logits - still).norm(dim=1), still.norm(dim=1)
    drift = torch.where(change == 0, 0.0, change / scale).nan_to_num(nan=math.inf, posinf=math.inf)
    found = torch.where(drift < math.inf, logits.argmax(dim=1), -1)  # no label without logits
    right = None if labels is None else (found == labels.cpu()).double().mean().item()
    confidence = logits.softmax(dim=1).amax(dim=1).nan_to_num(nan=0.0)
    return Turn(
        angle=angle,
        mirrored=mirrored,
        exact=angle % 90 == 0,
        mean_drift=drift.mean().item(),
        max_drift=drift.max().item(),
        changed=(found != still.argmax(dim=1)).double().mean().item(),
        accuracy=right,
        confidence=confidence.mean().item(),
    )


def _check_angles(angles: Iterable[float]) -> list[float]:
    given = [float(angle) for angle in angles]
    if not given or not all(math.isfinite(angle) for angle in given):
        raise ConfigError(f"audit_model: expected finite angles in degrees, got {given}")
    return sorted({round(angle % 360, 9) % 360 for angle in given})


def _check_images(images: Tensor, labels: Tensor | None, border: str, batch_size: int) -> None:
    check_axes(images, "b c h w", "audit_model")
    if images.numel() == 0:
        raise ShapeError(f"audit_model: no images to turn (shape: {tuple(images.shape)})")
    if torch.equal(images, permute_grid(images, 1, False)):
        raise ConfigError(
            "audit_model: the images do not change under a quarter turn and prove nothing; "
            "use real ones or random numbers"
        )
    if border not in BORDERS:
        raise ConfigError(f"audit_model: border must be 'disc' or 'pad', got {border!r}")
    if batch_size < 1:
        raise ConfigError(f"audit_model: batch_size must be at least 1, got {batch_size}")
    if labels is not None and labels.shape != images.shape[:1]:
        raise ShapeError(
            f"audit_model: expected one label for each of {len(images)} images, "
            f"got shape {tuple(labels.shape)}"
        )
    if labels is not None and (labels.is_floating_point() or labels.dtype == torch.bool):
        raise ShapeError(f"audit_model: expected whole numbers as labels, got {labels.dtype}")


def _check_logits(logits: Any, batch: int) -> None:
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else None
    if shape is None or len(shape) != 2 or shape[0] != batch:
        got = type(logits).__name__ if shape is None else f"shape {shape}"
        raise ShapeError(
            f"audit_model: the model must return a tensor of logits (b, classes) with b={batch}, "
            f"got {got}"
        )


def _check_reference(still: Tensor, labels: Tensor | None) -> None:
    broken = int((~still.isfinite().all(dim=1)).sum())
    if broken:
        raise ConfigError(
            f"audit_model: the logits of {broken} of {len(still)} upright images are not finite; "
            "check images and weights"
        )
    if labels is not None and not (0 <= int(labels.min()) <= int(labels.max()) < still.shape[1]):
        raise ConfigError(
            f"audit_model: {still.shape[1]} logits allow labels from 0 to {still.shape[1] - 1}, "
            f"got {int(labels.min())} to {int(labels.max())}"
        )
