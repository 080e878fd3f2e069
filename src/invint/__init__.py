"""Invariant integration for image classification: exact rotation invariance on plain tensors."""

from invint.errors import ConfigError, InvintError, ShapeError
from invint.groups import Cyclic, Dihedral, Group, parse_group
from invint.models import create_model, list_models

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "Cyclic",
    "Dihedral",
    "Group",
    "InvintError",
    "ShapeError",
    "create_model",
    "list_models",
    "parse_group",
]
