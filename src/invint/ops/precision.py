"""Under which precision a tensor is computed with."""

from torch import Tensor


def autocast_device(x: Tensor) -> str:
    """Return the kind of device whose autocast setting holds for a tensor.

    Tensors without data (`meta`) have none of their own and take the CPU's, so that shapes and
    operations can be counted without computing.
    """
    return "cpu" if x.is_meta else x.device.type
