"""The model under audit, ready to run: a function, a module or an ONNX file."""

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from invint.errors import ConfigError, ShapeError
from invint.extras import needed

Model = Callable[[Tensor], Tensor] | str | os.PathLike[str]
FULL, HALF = (torch.float32, torch.float64), (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Subject:
    """A model ready to run: it moves and converts its batch itself."""

    name: str
    precision: str
    run: Callable[[Tensor], Any]


def make_subject(model: Model, images: Tensor, precision: torch.dtype | None) -> Subject:
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

    in_words = f"{_name(precision)} autocast" if half else _name(dtype)
    return Subject(_title(model), in_words, run)


def _onnx_subject(path: Path, precision: torch.dtype | None) -> Subject:
    if not path.is_file():
        raise ConfigError(f"audit_model: there is no file {str(path)!r}")
    runtime = needed("onnxruntime", f"audit_model: {path.name}", "onnx")
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

    return Subject(path.name, f"{_name(dtype)} in onnxruntime", run)


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Put a module in evaluation mode, and afterwards each of its parts in the mode it was in."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [module.training for module in modules]
    try:
        for module in modules:
            module.training = False
        yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode


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


def _title(model: Callable[[Tensor], Tensor]) -> str:
    """Return the name a model gives itself, else that of its function or class."""
    name = getattr(model, "name", None)
    return name if isinstance(name, str) else getattr(model, "__name__", type(model).__name__)


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
