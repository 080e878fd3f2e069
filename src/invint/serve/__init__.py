"""A local web page and a JSON interface to try networks on images as they turn."""

from invint.serve.limits import Limits
from invint.serve.networks import ServedNetwork, open_networks

__all__ = ["Limits", "ServedNetwork", "open_networks"]
