"""Libraries that are imported only where they are used."""

import importlib
from typing import Any

from invint.errors import ConfigError


def needed(module: str, owner: str, extra: str) -> Any:
    """Import a module, or raise `ConfigError` naming the extra that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise ConfigError(f"{owner}: needs {library}; pip install 'invint[{extra}]'") from error
