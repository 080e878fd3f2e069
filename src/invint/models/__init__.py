"""Networks: the paper's architectures and small ones, by name."""

from invint.models.network import Network
from invint.models.registry import MODELS, create_model, list_models

__all__ = ["MODELS", "Network", "create_model", "list_models"]
