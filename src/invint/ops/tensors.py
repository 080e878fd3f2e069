"""Constant tensors computed once per process, and the device that autocast is asked about."""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")
T = TypeVar("T")
SMALL = 2**19  # bytes of a result that is remembered
KEPT = 64  # results of each function


def on_cpu(function: Callable[P, T]) -> Callable[P, T]:
    """Compute real numbers on the CPU, whoever asks: on another device, or only tracing."""

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> T:
        with _disable_current_modes(), torch.inference_mode(False), torch.device("cpu"):
            return function(*args, **kwargs)

    return computed


def constant(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Compute `on_cpu` and remember small results, for a pure function of hashable arguments.

    Large ones, such as a grid for each element of a group, belong to the layers that hold copies of
    them and are freed with these: they would fill memory long after.
    """
    compute = on_cpu(function)
    kept: dict[Hashable, Tensor] = {}

    @wraps(function)
    def remembered(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        key = (args, tuple(sorted(kwargs.items())))
        found = kept.get(key)
        if found is not None:
            return found
        result = compute(*args, **kwargs)
        if result.nbytes <= SMALL:
            kept[key] = result
            for oldest in list(kept)[:-KEPT]:
                kept.pop(oldest, None)  # another thread may have been quicker
        return result

    return remembered


def own_copy(tensor: Tensor) -> Tensor:
    """Copy a constant to the default device; floats to the default precision."""
    dtype = torch.get_default_dtype() if tensor.is_floating_point() else tensor.dtype
    return tensor.to(torch.get_default_device(), dtype, copy=True)


def autocast_device(x: Tensor) -> str:
    """Return the kind of device whose autocast setting holds for a tensor.

    Tensors without data (`meta`) have none of their own and take the CPU's, so that shapes and
    operations can be counted without computing.
    """
    return "cpu" if x.is_meta else x.device.type
