"""Invariant integration for image classification: exact rotation invariance on plain tensors."""

from importlib import import_module
from typing import Any

from invint.errors import ConfigError, InvintError, ShapeError
from invint.groups import Cyclic, Dihedral, Group, parse_group
from invint.models import create_model, list_models

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "Cyclic",
    "Dihedral",
    "Group",
    "InvariantClassifier",
    "InvintError",
    "ShapeError",
    "create_model",
    "list_models",
    "parse_group",
]


def __getattr__(name: str) -> Any:
    """Import the scikit-learn classifier when it is asked for; it is slow to import."""
    if name == "InvariantClassifier":
        return import_module("invint.estimator").InvariantClassifier
    raise AttributeError(f"module 'invint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
