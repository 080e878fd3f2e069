"""timm where torchvision is not installed: names it imports, and nothing behind them."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest


class Named(type):
    """A class whose attributes are their own names, as those of an enumeration."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Nothing(ModuleType):
    """A module that has every name; each is a class that nothing is an instance of."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = Named(name, (), {})
        setattr(self, name, found)
        return found


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `torchvision` and everything in it."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Nothing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__version__"] = "0.0"


def import_timm() -> Any:
    """Import timm, with a torchvision that does nothing where there is none; skip without timm."""
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    if "torchvision" not in sys.modules and importlib.util.find_spec("torchvision") is None:
        sys.meta_path.append(Finder())
    return importlib.import_module("timm")
