"""Invariant integration for image classification: exact rotation invariance on plain tensors."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from invint.errors import ConfigError, InvintError, ShapeError
from invint.version import __version__ as __version__

if TYPE_CHECKING:
    from invint.estimator import InvariantClassifier
    from invint.groups import Cyclic, Dihedral, Group, parse_group
    from invint.models import create_model, list_models

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
HOMES = {
    "Cyclic": "invint.groups",
    "Dihedral": "invint.groups",
    "Group": "invint.groups",
    "InvariantClassifier": "invint.estimator",
    "create_model": "invint.models",
    "list_models": "invint.models",
    "parse_group": "invint.groups",
}
PACKAGES = ("groups", "models", "nn", "ops")


def __getattr__(name: str) -> Any:
    """Import what needs torch or scikit-learn when it is asked for: both are slow to import."""
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    if name in PACKAGES:
        return import_module(f"invint.{name}")
    raise AttributeError(f"module 'invint' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
