"""What a `torch.export` archive may hold.

`torch.export.load` would unpickle objects, evaluate sizes and guards as Python and call whatever
function of torch a node names: all of that is refused.
"""

import io
import json
import re
from collections.abc import Callable
from typing import Any

import torch

from invint.errors import ConfigError, InvintError

ENTRY = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|extra/\w+\.json|models/model\.json"
    r"|data/sample_inputs/model\.pt"
    r"|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)"
)
TARGET = re.compile(
    r"torch\.ops\.aten\.(?!from_file)\w+\.\w+|torch\.ops\.higher_order\.wrap_with_\w+|torch\.sym_\w+"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pow|getitem|eq|ne|ge|gt|le|lt|and_)"
)
SIZE = re.compile(r"(Symbol\('\w+'(, \w+=(True|False))*\)|[A-Z]\w*\(|[-\d, )])*")
ALLOWED: dict[str, Callable[[Any], bool]] = {
    "use_pickle": lambda value: value is False,
    "guards_code": lambda value: value == [],
    "target": lambda value: value is None or TARGET.fullmatch(str(value)) is not None,
    "expr_str": lambda value: SIZE.fullmatch(str(value)) is not None,
}


def refuse_code(files: dict[str, bytes]) -> None:
    """Raise `ConfigError` if anything in an archive could do more than compute with tensors."""
    for name, content in files.items():
        if ENTRY.fullmatch(name) is None:
            raise ConfigError(f"{name!r} has no place in a torch.export file, and may hold code")
        try:
            if name.endswith(".json") and not name.startswith("extra/"):
                _refuse_values(json.loads(content), name)
            if name.endswith(".pt") and content:
                torch.load(io.BytesIO(content), weights_only=True)
        except InvintError:
            raise
        except Exception as error:  # whatever reading raises
            raise ConfigError(f"{name} in it is damaged, or more than tensors") from error


def _refuse_values(value: Any, owner: str) -> None:
    for key, child in value.items() if isinstance(value, dict) else enumerate(value):
        if key in ALLOWED and not ALLOWED[key](child):
            raise ConfigError(f"{owner} in it has {key} {child!r}, which could run code")
        if isinstance(child, dict | list):
            _refuse_values(child, owner)
