"""Networks as files: ONNX, `torch.export` and safetensors, compared before they are in place."""

import copy
import io
import json
import logging
import re
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from invint.errors import ConfigError, InvintError, ShapeError, check_axes
from invint.extras import needed
from invint.models.folding import fold
from invint.models.network import Network
from invint.models.registry import MODELS, create_model
from invint.nn import Monomials
from invint.ops.steerable import Rings

FORMAT_VERSION = 1
KEY = "invint"  # under which a file carries its card
TOLERANCE = 1e-4  # of the largest logit, or of 1 where logits are smaller
ONNX_LIMIT = 2**31 - 2**24  # bytes one protobuf message can hold, less room for the graph
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


@dataclass(frozen=True)
class ModelCard:
    """What a file says about its network, beside the weights.

    Attributes:
        class_names: Names of the classes, in the order of the logits.
        image_size: Height and width of the images.
        in_channels: Channels of the images.
        group: The symmetries, as `"C8"`; by default those the network has by default.
        mean: Subtracted from images between 0 and 1: one number, or one per channel.
        std: What is left is divided by this: one number, or one per channel.
        name: Name of the network for `create_model`; only safetensors needs it.
        head: Name of its head.
        options: Further arguments of `create_model`.
    """

    class_names: tuple[str, ...]
    image_size: tuple[int, int]
    in_channels: int
    group: str | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    name: str | None = None
    head: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.in_channels):
                raise ConfigError(
                    f"ModelCard: {key} must be one number or one for each of "
                    f"{self.in_channels} channels, got {values}"
                )
        if not self.class_names or min(self.std) <= 0:
            raise ConfigError(
                "ModelCard: there must be a class name, and std must be positive, "
                f"got {self.class_names} and {self.std}"
            )
        if self.group is None and self.name in MODELS:
            object.__setattr__(self, "group", MODELS[self.name].group)
        plain = json.loads(_to_json(self.options), object_hook=_from_plain)
        object.__setattr__(self, "options", plain)  # as it will come out of a file

    @classmethod
    def from_spec(
        cls,
        spec: dict[str, Any],
        *,
        class_names: tuple[str, ...] | None = None,
        mean: tuple[float, ...] = (0.0,),
        std: tuple[float, ...] = (1.0,),
    ) -> "ModelCard":
        """Take over the arguments of `create_model`, further ones under `options`.

        Args:
            spec: Has `name`, `image_size` and `in_channels`; may have `head`, `group`,
                `num_classes` and `options`.
            class_names: Names of the classes; by default their numbers.
            mean: Subtracted from images between 0 and 1.
            std: What is left is divided by this.
        """
        missing = [key for key in ("name", "image_size", "in_channels") if not spec.get(key)]
        if missing:
            raise ConfigError(f"ModelCard.from_spec: the spec lacks {', '.join(missing)}")
        size, group = spec["image_size"], spec.get("group")
        names = class_names or tuple(map(str, range(spec.get("num_classes", 10))))
        return cls(
            class_names=names,
            image_size=(size, size) if isinstance(size, int) else tuple(size),
            in_channels=spec["in_channels"],
            group=None if group is None else str(group),
            mean=mean,
            std=std,
            name=spec["name"],
            head=spec.get("head"),
            options=spec.get("options") or {},
        )

    def build(self) -> Network:
        """Build the network, with fresh weights."""
        if self.name is None:
            raise ConfigError(
                "ModelCard: safetensors holds weights alone and needs the name of the network; "
                "export to onnx or torch, or give name"
            )
        return create_model(
            self.name,
            head=self.head,
            num_classes=len(self.class_names),
            in_channels=self.in_channels,
            image_size=self.image_size,
            group=self.group,
            **self.options,
        )

    def to_json(self) -> str:
        """Return the card as text, with the version of the format."""
        return _to_json({"format_version": FORMAT_VERSION, **vars(self)})

    @classmethod
    def from_json(cls, text: str) -> "ModelCard":
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text, object_hook=_from_plain)
            version = values.pop("format_version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"the metadata is not a card of invint ({error!r})") from error
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"format version {version!r}, but this invint reads version {FORMAT_VERSION}; "
                "export the network again"
            )
        try:
            for key in ("class_names", "image_size", "mean", "std"):
                values[key] = tuple(values[key])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the metadata is not a card of invint ({error!r})") from error


class LoadedModel:
    """A network read from a file.

    Args:
        card: What the file says about it.
        run: Takes images to logits.

    Shape:
        Images `(b, c, h, w)` as float between 0 and 1, of the card's size, to `(b, classes)`.
    """

    def __init__(self, card: ModelCard, run: Callable[[Tensor], Tensor]) -> None:
        self.card, self._run = card, run

    def __call__(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Return logits."""
        if not images.is_floating_point():
            raise ShapeError(
                f"LoadedModel: expected float images between 0 and 1, got {images.dtype}; "
                "divide by 255"
            )
        height, width = self.card.image_size
        sizes = {"c": self.card.in_channels, "h": height, "w": width}
        check_axes(images, "b c h w", "LoadedModel", **sizes)
        with torch.no_grad():
            return self._run(images)


class Normalised(nn.Module):
    """A network behind the normalisation of its images.

    Args:
        network: Takes normalised images to logits.
        card: Says mean and standard deviation.
    """

    image_mean: Tensor
    image_std: Tensor

    def __init__(self, network: nn.Module, card: ModelCard) -> None:
        super().__init__()
        self.network = network
        # not "mean": onnxscript 0.7 takes a buffer for the result of an operation of that name
        self.register_buffer("image_mean", torch.tensor(card.mean).view(-1, 1, 1))
        self.register_buffer("image_std", torch.tensor(card.std).view(-1, 1, 1))

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b classes"]:
        """Normalise images between 0 and 1, and return logits."""
        logits: Tensor = self.network((images - self.image_mean) / self.image_std)
        return logits


def export_model(
    model: nn.Module, path: str | Path, card: ModelCard, *, format: str | None = None
) -> float:
    """Write a network to a file that carries its card, and return how far the file is off.

    ONNX and `torch.export` files hold the folded network with the normalisation inside and run
    without invint; safetensors holds weights, from which `load_model` rebuilds the network. The
    file is written under another name, read back, run on images and compared with the network, and
    takes its place only if the largest difference is within 1e-4 of the largest logit (or of 1).

    Args:
        model: The network, on any device and in any mode; it is left alone.
        path: Where the file goes; its suffix is that of the format.
        card: What the file is to say.
        format: `onnx`, `torch` or `safetensors`; by default what the suffix says.

    Example:
        >>> from invint import create_model
        >>> card = ModelCard(("cat", "dog"), (20, 20), 1, name="cnn-small")
        >>> model = create_model("cnn-small", num_classes=2, in_channels=1)
        >>> difference = export_model(model, "pets.safetensors", card)
    """
    path = Path(path)
    suffix = _suffix_of(path, format)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        draft = Path(folder) / path.name
        WRITERS[suffix](model, card, draft)
        difference = _difference(READERS[suffix](draft), model, card)
        draft.replace(path)
    return difference


def load_model(path: str | Path) -> LoadedModel:
    """Read a network from an ONNX, `torch.export` or safetensors file.

    Pickles are refused, whatever their name: reading one runs the code inside.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    if path.suffix in PICKLES:
        raise ConfigError(
            f"{path}: a pickle can run any code when it is read, so none is; "
            "export the network with export_model"
        )
    if path.suffix not in READERS:
        raise ConfigError(f"{path}: expected a file ending in {_listed(READERS)}")
    try:
        return READERS[path.suffix](path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error


def _suffix_of(path: Path, format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise ConfigError(f"export_model: no format {format!r}; there are {_listed(FORMATS)}")
    suffix = path.suffix if format is None else FORMATS[format]
    if suffix not in WRITERS or path.suffix != suffix:
        expected = _listed(WRITERS) if format is None else suffix
        raise ConfigError(f"export_model: expected a file ending in {expected}, got {path}")
    return suffix


def _difference(loaded: LoadedModel, model: nn.Module, card: ModelCard) -> float:
    """Return the largest difference of logits, or raise `ConfigError` if it is too large."""
    images = _images(card, 3)
    reference = Normalised(copy.deepcopy(model).cpu().float().eval(), card)
    with torch.no_grad():
        expected = reference(images)
    if expected.shape != (3, len(card.class_names)):
        raise ConfigError(
            f"export_model: expected a logit for each of {len(card.class_names)} class names, "
            f"got logits of shape {tuple(expected.shape)} for 3 images"
        )
    actual = torch.cat([loaded(images[:1]), loaded(images[1:])])  # batches of two sizes
    difference: float = (actual - expected).abs().max().item()
    allowed = TOLERANCE * max(1.0, expected.abs().max().item())
    if not difference <= allowed:  # NaN must fail
        raise ConfigError(
            f"export_model: the exported logits are off by {difference:.2g}, more than "
            f"{allowed:.2g}; nothing was written"
        )
    return difference


def _images(card: ModelCard, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, card.in_channels, *card.image_size, generator=generator)


def _exportable(model: nn.Module, card: ModelCard) -> Normalised:
    network = Normalised(fold(model).cpu().float(), card).eval()
    return network.requires_grad_(False)


def _write_onnx(model: nn.Module, card: ModelCard, path: Path) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        needed(module, "export_model", "onnx")
    network = _exportable(model, card)
    size = sum(each.nbytes for each in (*network.parameters(), *network.buffers()))
    if size > ONNX_LIMIT:
        raise ConfigError(
            f"export_model: {size / 2**30:.1f} GiB of weights do not fit one ONNX file, which "
            "holds 2; export to torch"
        )
    with _quiet():
        program = torch.onnx.export(
            network,
            (_images(card, 2),),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        if program is None:
            raise ConfigError("export_model: torch.onnx.export returned nothing")
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # stack traces, with the paths of this machine
        program.model.metadata_props[KEY] = card.to_json()
        program.save(path, external_data=False)


def _read_onnx(path: Path) -> LoadedModel:
    runtime = needed("onnxruntime", "export_model", "onnx")
    try:
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class of errors
        raise _unreadable(path, "an ONNX file") from error
    card = _card(session.get_modelmeta().custom_metadata_map.get(KEY))

    def run(images: Tensor) -> Tensor:
        array = images.detach().cpu().float().contiguous().numpy()
        return torch.from_numpy(session.run(["logits"], {"images": array})[0])

    return LoadedModel(card, run)


def _write_torch(model: nn.Module, card: ModelCard, path: Path) -> None:
    shapes = ({0: torch.export.Dim("batch")},)
    with _quiet():
        program = torch.export.export(
            _exportable(model, card), (_images(card, 2),), dynamic_shapes=shapes
        )
        torch.export.save(program, path, extra_files={f"{KEY}.json": card.to_json()})


def _read_torch(path: Path) -> LoadedModel:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise _unreadable(path, "a torch.export file") from error
    files = dict(entries)
    if len(files) < len(entries):
        raise ConfigError("it has two entries of one name, so that one could hide the other")
    _refuse_code(files)
    content = files.get(f"extra/{KEY}.json")
    card = _card(None if content is None else content.decode())
    try:
        with _quiet():
            program = torch.export.load(path).module()
    except Exception as error:  # torch has no common class of errors
        raise _unreadable(path, "a torch.export file") from error
    return LoadedModel(card, lambda images: program(images.cpu().float()))


def _write_safetensors(model: nn.Module, card: ModelCard, path: Path) -> None:
    path.write_bytes(network_bytes(model, card))


def network_bytes(model: nn.Module, card: ModelCard) -> bytes:
    """Return the content of a safetensors file: the weights, and the card in its header."""
    state = {
        name: each.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, each in model.state_dict().items()
    }
    return save(state, metadata={KEY: card.to_json()})


def load_network(path: str | Path) -> tuple[Network, ModelCard]:
    """Read a network from a safetensors file, ready to be trained, folded or changed.

    The images it takes are normalised already, by the mean and deviation on the card.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _unreadable(Path(path), "a safetensors file") from error
    card = _card(metadata.get(KEY))
    floats = [each.dtype for each in state.values() if each.is_floating_point()]
    stored = floats[0] if floats else torch.float32
    try:
        with torch.random.fork_rng(devices=[]):  # weights are drawn and thrown away
            network = card.build().to(stored)  # rounds the basis of filters as well
        network.load_state_dict(state)
    except InvintError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"the weights are not those of its card: {problem[:300]}") from error
    return network, card


def _read_safetensors(path: Path) -> LoadedModel:
    network, card = load_network(path)
    dtype = torch.promote_types(next(network.parameters()).dtype, torch.float32)
    run = Normalised(network, card).to(dtype).eval().requires_grad_(False)
    return LoadedModel(card, lambda images: run(images.to("cpu", dtype)))


FORMATS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
WRITERS: dict[str, Callable[[nn.Module, ModelCard, Path], None]] = {
    ".onnx": _write_onnx,
    ".pt2": _write_torch,
    ".safetensors": _write_safetensors,
}
READERS: dict[str, Callable[[Path], LoadedModel]] = {
    ".onnx": _read_onnx,
    ".pt2": _read_torch,
    ".safetensors": _read_safetensors,
}

# What a torch.export archive may hold. `torch.export.load` would unpickle objects, evaluate sizes
# and guards as Python and call whatever function of torch a node names: all of that is refused.
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


def _refuse_code(files: dict[str, bytes]) -> None:
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


def _card(text: str | None) -> ModelCard:
    if text is None:
        raise ConfigError("it carries no metadata of invint; write files with export_model")
    return ModelCard.from_json(text)


def _unreadable(path: Path, kind: str) -> ConfigError:
    with path.open("rb") as file:
        start = file.read(4)
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return ConfigError(f"it is a pickle, not {kind}; pickles are never read")
    if start == b"PK\x03\x04" and path.suffix != ".pt2":
        return ConfigError(f"it is a zip archive, as torch.save writes pickles, not {kind}")
    return ConfigError(f"it is not {kind}, or only a part of one; export or copy it again")


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the exporters say about themselves."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it names the libraries it could do with
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, default=_to_plain)
    except TypeError as error:
        raise ConfigError(f"ModelCard: options must be plain data ({error})") from error


def _to_plain(value: Any) -> dict[str, Any]:
    if isinstance(value, Monomials | Rings):
        return {type(value).__name__: asdict(value)}
    raise TypeError(f"{type(value).__name__} is not")


def _from_plain(values: dict[str, Any]) -> Any:
    if values.keys() == {"Monomials"}:
        return Monomials.from_dict(values["Monomials"])
    if values.keys() == {"Rings"}:
        return Rings(**{name: tuple(each) for name, each in values["Rings"].items()})
    return values


def _listed(names: dict[str, Any]) -> str:
    return ", ".join(names)
