"""Our networks among those of timm: `import invint.timm`, then `timm.create_model("invint_sfcnn")`.

Names are those of `list_models()` after `invint_`, with underscores; weights of the zoo are tags,
as in `invint_sfcnn_small.digits`. What is built is a `Network`, or its maps with `features_only`.
"""

import importlib
from collections.abc import Callable
from typing import Any

from torch import nn

from invint.errors import ConfigError
from invint.export import from_pretrained
from invint.models.registry import MODELS, create_model
from invint.zoo import find_weights, zoo

PREFIX = "invint_"
OURS = {"in_chans": "in_channels", "img_size": "image_size", "drop_rate": "dropout"}
__all__: list[str] = []  # timm adds what is registered
default_cfgs: dict[str, Any] = {}  # timm looks for what is known of weights here


def name_in_timm(name: str) -> str:
    """Return what timm calls a network or one of the zoo."""
    network, dot, tag = name.partition(".")
    return PREFIX + network.replace("-", "_") + dot + tag


def register() -> list[str]:
    """Register every network with timm, once; return the names it has there."""
    try:
        models = importlib.import_module("timm.models")
    except ImportError as error:
        raise ConfigError("invint.timm: needs timm; pip install timm") from error
    if not __all__:
        known = {name_in_timm(name): weights_in_timm(name) for name in zoo()}
        default_cfgs.update(models.generate_default_cfgs(known))
        for name in MODELS:
            models.register_model(entry_of(name))
    return list(__all__)


def weights_in_timm(name: str) -> dict[str, Any]:
    """Return what timm keeps of weights."""
    file = find_weights(name)
    return {**from_pretrained(file).pretrained_cfg, "file": str(file)}


def entry_of(name: str) -> Callable[..., nn.Module]:
    """Return the function that timm builds a network with."""

    def build(
        pretrained: bool = False,
        *,
        pretrained_cfg: Any = None,
        features_only: bool = False,
        out_indices: tuple[int, ...] | None = None,
        **options: Any,
    ) -> nn.Module:
        for ignored in ("pretrained_cfg_overlay", "cache_dir"):
            options.pop(ignored, None)
        arguments = {OURS.get(key, key): value for key, value in options.items()}
        called = tagged(name, pretrained_cfg) if pretrained else name
        network = create_model(called, pretrained=pretrained, **arguments)
        return network.features_only(out_indices) if features_only else network

    build.__name__ = build.__qualname__ = name_in_timm(name)
    return build


def tagged(name: str, cfg: Any) -> str:
    """Return the name with the tag timm was asked for, or with the first one there is."""
    tag = cfg if isinstance(cfg, str) else getattr(cfg, "tag", None)
    if tag:
        return f"{name}.{tag}"
    return next((each for each in zoo() if each.partition(".")[0] == name), name)


register()
