"""Turn images through the circle and compare what a model answers."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from invint.audit.record import Audit
from invint.audit.subject import FULL, Model, evaluating, make_subject
from invint.audit.turn import Turn
from invint.audit.turning import BORDERS, turned
from invint.axes import check_axes
from invint.errors import ConfigError, ShapeError
from invint.ops.rotation import permute_grid


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
    subject = make_subject(model, upright, precision)

    def logits(angle: float, mirrored: bool) -> Tensor:
        """Return the logits of all images, turned."""
        batches = torch.split(upright, batch_size)
        parts = [subject.run(turned(batch, angle, mirrored, border)) for batch in batches]
        for part, batch in zip(parts, batches, strict=True):
            _check_logits(part, len(batch))
        return torch.cat([part.detach().cpu().double() for part in parts])

    with evaluating(model):
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
    return Turn(
        angle=angle,
        mirrored=mirrored,
        exact=angle % 90 == 0,
        mean_drift=drift.mean().item(),
        max_drift=drift.max().item(),
        changed=(found != still.argmax(dim=1)).double().mean().item(),
        accuracy=right,
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
    if not isinstance(logits, Tensor):
        kind = type(logits).__name__
        raise ShapeError(f"audit_model: the model must return a tensor of logits, got {kind}")
    if logits.ndim != 2 or len(logits) != batch:
        raise ShapeError(
            f"audit_model: the model must return logits (b, classes) with b={batch}, "
            f"got shape {tuple(logits.shape)}"
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
