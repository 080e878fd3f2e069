"""Constant tensors computed once per process, and the device that autocast is asked about."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import ParamSpec, TypeVar, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")
T = TypeVar("T")


def on_cpu(function: Callable[P, T]) -> Callable[P, T]:
    """Compute real numbers on the CPU, whoever asks: on another device, or only tracing."""

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> T:
        with _disable_current_modes(), torch.inference_mode(False), torch.device("cpu"):
            return function(*args, **kwargs)

    return computed


def constant(function: Callable[P, T]) -> Callable[P, T]:
    """Compute `on_cpu` and remember, for a pure function of hashable arguments."""
    return cast("Callable[P, T]", lru_cache(maxsize=64)(on_cpu(function)))


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
