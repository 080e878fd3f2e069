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
NETWORKS = (  # what exports of our networks and heads compute with
    "__and__.Tensor _assert_tensor_metadata.default add.Tensor add_.Tensor amax.default "
    "arange.default argsort.default avg_pool2d.default batch_norm.default cat.default "
    "clamp_.default clamp_min.default contiguous.default conv2d.default detach.default "
    "div.Tensor dropout.default einsum.default exp.default exp_.default expand.default "
    "expm1.default feature_dropout.default flip.default ge.Scalar grid_sampler.default "
    "index.Tensor le.Scalar linear.default log1p.default log_.default lt.Scalar "
    "matmul.default max_pool2d.default mean.dim mul.Tensor neg.default new_empty.default "
    "new_zeros.default numpy_T.default permute.default pow.Tensor_Tensor "
    "reciprocal.default relu.default reshape.default rot90.default scatter_add.default "
    "select.int slice.Tensor softmax.int split.Tensor sqrt.default square.default "
    "stack.default sub.Tensor sum.dim_IntList sym_size.int to.dtype unbind.int "
    "unsqueeze.default"
)
LAYERS = (  # and those of your own, from layers of torch.nn
    "adaptive_avg_pool2d.default elu.default flatten.using_ints gelu.default group_norm.default "
    "hardsigmoid.default hardsigmoid_.default hardswish.default hardswish_.default "
    "hardtanh.default hardtanh_.default layer_norm.default leaky_relu.default mish.default "
    "pad.default prelu.default relu_.default sigmoid.default silu.default silu_.default "
    "softplus.default tanh.default"
)
OPERATIONS = {f"torch.ops.aten.{name}" for name in (*NETWORKS.split(), *LAYERS.split())} | {
    "_operator.mul",  # of sizes
    "torch.ops.higher_order.wrap_with_autocast",
}
SIZE = re.compile(r"(Symbol\('\w+'(, \w+=(True|False))*\)|[A-Z]\w*\(|[-\d, )])*")
ALLOWED: dict[str, Callable[[Any], bool]] = {
    "use_pickle": lambda value: value is False,
    "guards_code": lambda value: value == [],
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
        if key == "target" and child is not None and child not in OPERATIONS:
            raise ConfigError(
                f"{owner} in it has target {child!r}, which is not among the operations that are "
                "read; export to onnx or safetensors"
            )
        if key in ALLOWED and not ALLOWED[key](child):
            raise ConfigError(f"{owner} in it has {key} {child!r}, which could run code")
        if isinstance(child, dict | list):
            _refuse_values(child, owner)
