"""Networks: the paper's architectures and small ones, by name."""

from invint.models.fold import FoldedConv2d, fold
from invint.models.networks import Network
from invint.models.registry import MODELS, create_model, list_models

__all__ = ["MODELS", "FoldedConv2d", "Network", "create_model", "fold", "list_models"]
