"""Backbones of others: from timm, with weights of torchvision's kind, and ONNX files."""

import hashlib
import importlib
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from invint.errors import ConfigError, ShapeError, require_extra
from invint.models.efficientnet import Colours, PixelInput
from invint.models.registry import MODELS, create_model, takes_pixels
from invint.models.weights import load_state, read_checked, read_state
from invint.nn import OrbitFeatures

TIMM = "timm:"


class OnnxBackbone(nn.Module):
    """A network in an ONNX file, as a frozen module: it computes in onnxruntime, in float32.

    No gradient passes it. It is for `Orbit(…, frozen=True)` and for features that are computed
    once, and refuses to run in training mode.

    Args:
        path: The file; it has one input, images, and is read whole.
        output: Name of the output that is taken; the first by default.
        sha256: What the file must hash to.

    Shape:
        `(b, c, h, w)` to the map `(b, k, h', w')` or the features `(b, k)` of the file.
    """

    def __init__(
        self, path: str | Path, *, output: str | None = None, sha256: str | None = None
    ) -> None:
        super().__init__()
        self.file, self.content = Path(path).name, read_checked(Path(path), sha256)
        self.sha256 = hashlib.sha256(self.content).hexdigest()
        self._session = self._started()
        names = [each.name for each in self._session.get_outputs()]
        self.output = names[0] if output is None else output
        if self.output not in names:
            raise ConfigError(
                f"{path}: it has no output {output!r}; it has {', '.join(map(repr, names))}"
            )
        self.eval()

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k ..."]:
        """Compute."""
        if self.training or (images.requires_grad and torch.is_grad_enabled()):
            raise ConfigError(
                f"OnnxBackbone: {self.file} is frozen, no gradient passes it; use "
                "Orbit(…, frozen=True), or a torch module to fine-tune"
            )
        if torch.compiler.is_compiling():
            raise ConfigError(f"OnnxBackbone: {self.file} cannot be compiled or exported again")
        (given,) = self._session.get_inputs()
        size = given.shape[0] if isinstance(given.shape[0], int) else len(images)
        if len(images) % size:
            raise ShapeError(
                f"OnnxBackbone: {self.file} takes {size} images at a time, got {len(images)}"
            )
        parts = [self._run(part, given.name) for part in torch.split(images, size)]
        return torch.cat(parts).to(images)

    def extra_repr(self) -> str:
        """Describe the layer as a printed model shows it."""
        return f"{self.file}, output={self.output}, sha256={self.sha256}"

    def _run(self, images: Tensor, name: str) -> Tensor:
        array = images.detach().cpu().float().contiguous().numpy()
        return torch.from_numpy(self._session.run([self.output], {name: array})[0])

    def _started(self) -> Any:
        runtime = require_extra("onnxruntime", "OnnxBackbone", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            return runtime.InferenceSession(
                self.content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has no common class of errors
            raise ConfigError(f"{self.file}: it is not an ONNX file, or a damaged one") from error

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._session = self._started()  # sessions can be neither copied nor pickled


def load_backbone(
    source: str | Path | nn.Module,
    weights: str | Path | None = None,
    *,
    sha256: str | None = None,
    mean: Colours | None = None,
    std: Colours | None = None,
) -> nn.Module:
    """Return a pretrained network that takes images in [0, 1], for `Orbit` and `orbit_features`.

    Nothing is downloaded and nothing unpickled: weights come from a file of `torch.save`, read
    with `weights_only=True`, or from safetensors.

    Args:
        source: A name of ours, as `efficientnet-lite0`; `timm:` and a name of timm, cut after its
            last map; an ONNX file; or any module, as torchvision's.
        weights: File with the weights; only for ours there is a default, the extra `pretrained`.
        sha256: What the file must hash to.
        mean: Of each colour, subtracted first; by default what timm says, and otherwise nothing.
        std: Of each colour; what is left is divided by it.

    Example:
        >>> import tempfile
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
        >>> file = Path(tempfile.mkdtemp()) / "weights.pth"
        >>> torch.save(network.state_dict(), file)
        >>> backbone = load_backbone(network, file, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    """
    network: Any
    if isinstance(source, nn.Module):
        network = _with_weights(source, type(source).__name__, weights, sha256)
    elif Path(source).suffix == ".onnx":
        network = OnnxBackbone(source, sha256=sha256)
    elif str(source).startswith(TIMM):
        network = _with_weights(_of_timm(str(source)), str(source), weights, sha256)
        mean, std = mean or network.pretrained_cfg["mean"], std or network.pretrained_cfg["std"]
        network.reset_classifier(0, "")
    else:
        network = _ours(str(source), weights, sha256)
    if mean is not None or std is not None:
        network = nn.Sequential(PixelInput(mean or (0.0,) * 3, std or (1.0,) * 3), network)
    backbone: nn.Module = network
    return backbone


def _ours(name: str, weights: str | Path | None, sha256: str | None) -> nn.Module:
    if not takes_pixels(name):
        known = ", ".join(each for each in MODELS if takes_pixels(each))
        raise ConfigError(
            f"load_backbone: expected {known}, 'timm:NAME', an .onnx file or a module, got {name!r}"
        )
    features = create_model(name, pretrained=weights is None).features
    network = features.backbone if isinstance(features, OrbitFeatures) else features
    return network if weights is None else _with_weights(network, name, weights, sha256)


def _of_timm(source: str) -> Any:
    try:
        timm = importlib.import_module("timm")
    except ImportError as error:
        raise ConfigError(f"load_backbone: {source!r} needs timm; pip install timm") from error
    return timm.create_model(source.removeprefix(TIMM), pretrained=False)


def _with_weights(network: Any, name: str, weights: str | Path | None, sha256: str | None) -> Any:
    if weights is None:
        raise ConfigError(
            f"load_backbone: {name} needs weights, a local file; nothing is downloaded"
        )
    load_state(network, read_state(Path(weights), sha256), str(weights))
    return network
