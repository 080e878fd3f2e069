"""Entry points of torch.hub: `torch.hub.load("owner/invint", "sfcnn_small", pretrained=True)`.

Names are those of `list_models()` with underscores. From a checkout: `torch.hub.load(".", …,
source="local")`.
"""

import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "src"))  # of a checkout that is not installed

from invint.models import MODELS, create_model
from invint.zoo import zoo

dependencies = ["torch", "einops", "filelock", "jaxtyping", "numpy", "PIL", "safetensors"]

for _name in [*MODELS, *zoo()]:
    globals()[_name.replace("-", "_").replace(".", "_")] = partial(create_model, _name)
