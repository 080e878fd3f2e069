"""The answers of a finished run to its test images, and what they sum up to."""

from pathlib import Path

import torch
from torch import Tensor

from invint.errors import RunError
from invint.study.record import Bin, RunRecord

BINS = 15  # of confidence, for the calibration


def read_predictions(run: RunRecord) -> tuple[Tensor, Tensor] | None:
    """Return logits `(n, classes)` and labels of the test images, if they are still there."""
    return None if run.folder is None else predictions_at(run.folder / "predictions.safetensors")


def predictions_at(path: Path) -> tuple[Tensor, Tensor] | None:
    """Read a file of logits and labels; none where there is no file."""
    if not path.is_file():
        return None
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
        logits, labels = tensors["logits"].float(), tensors["labels"].long()
    except (SafetensorError, KeyError, OSError) as error:
        raise RunError(f"{path}: damaged ({error})") from error
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        shapes = tuple(logits.shape), tuple(labels.shape)
        raise RunError(f"{path}: expected logits (n, classes) and n labels, got {shapes}")
    return logits, labels


def confusion_matrix(logits: Tensor, labels: Tensor) -> tuple[tuple[int, ...], ...]:
    """Count test images: one row for each true class, one column for each label given."""
    classes = logits.shape[1]
    cells = torch.bincount(labels * classes + logits.argmax(dim=1), minlength=classes**2)
    counts: list[int] = cells.tolist()
    return tuple(tuple(counts[start : start + classes]) for start in range(0, classes**2, classes))


def calibration_bins(logits: Tensor, labels: Tensor, *, bins: int = BINS) -> tuple[Bin, ...]:
    """Sort test images by confidence, the probability of the label given, into equal intervals."""
    confidence, found = logits.double().softmax(dim=1).max(dim=1)
    confidence = confidence.nan_to_num(nan=0.0)  # of a network that has diverged
    right = (found == labels).double()
    place = (confidence * bins).long().clamp(max=bins - 1)
    counts = torch.bincount(place, minlength=bins)
    sums = (torch.bincount(place, weights, minlength=bins) for weights in (confidence, right))
    means = [(total / counts.clamp(min=1)).tolist() for total in sums]
    return tuple(Bin(*values) for values in zip(counts.tolist(), *means, strict=True))
