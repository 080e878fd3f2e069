"""Networks as ONNX, `torch.export` and safetensors files: written, compared, read."""

import copy
import json
import logging
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from invint.errors import ConfigError, InvintError, ShapeError, check_axes, require_extra
from invint.export.archive import refuse_code
from invint.export.card import KEY, ModelCard, read_card
from invint.export.seal import BLANK, check_seal, sealed
from invint.export.seal import KEY as SEAL
from invint.files import check_writable
from invint.models.fold import fold
from invint.models.networks import Network

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin", ".joblib")


def unreadable(path: Path, kind: str) -> ConfigError:
    """Return the error that says what a file is that was expected to be of a kind."""
    with path.open("rb") as file:
        start = file.read(4)
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return ConfigError(f"it is a pickle, not {kind}; pickles are never read")
    if start == b"PK\x03\x04" and path.suffix != ".pt2":
        return ConfigError(f"it is a zip archive, as torch.save writes pickles, not {kind}")
    return ConfigError(f"it is not {kind}, or only a part of one; export or copy it again")


def exportable(model: nn.Module, card: ModelCard) -> "Normalised":
    """Return the folded network with the normalisation inside, ready to be traced."""
    network = Normalised(fold(model).cpu().float(), card).eval()
    return network.requires_grad_(False)


def example_images(card: ModelCard, count: int) -> Tensor:
    """Return random images as the network takes them, always the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, card.in_channels, *card.image_size, generator=generator)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what the exporters say about themselves, and tracebacks of what is refused."""
    names = "torch.onnx._internal.exporter._registration", "torch.export", "torch._export"
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)  # one names the libraries it could do with
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


class LoadedModel:
    """A network read from a file.

    Args:
        card: What the file says about it.
        run: Takes images to logits.
        file: Name of the file.

    Shape:
        Images `(b, c, h, w)` as float between 0 and 1, of the card's size, to `(b, classes)`.
    """

    def __init__(
        self, card: ModelCard, run: Callable[[Tensor], Tensor], file: str = "network"
    ) -> None:
        self.card, self._run, self.file = card, run, file

    @property
    def name(self) -> str:
        """What people call the network: as its card does, else as its file."""
        return self.card.title or self.file

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
            logits = self._run(images)
        shape, expected = (
            tuple(getattr(logits, "shape", ())),
            (len(images), len(self.card.class_names)),
        )
        if shape != expected:
            raise ConfigError(
                f"{self.file}: expected logits of shape {expected} as its card says, got {shape}; "
                "export the network again"
            )
        return logits


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


def write_weights(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the weights as they are."""
    path.write_bytes(network_bytes(model, card))


def network_bytes(model: nn.Module, card: ModelCard) -> bytes:
    """Return the content of a safetensors file: the weights, and the card in its header."""
    state = {
        name: each.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, each in model.state_dict().items()
    }
    return sealed(_ordered(save(state, metadata={KEY: card.to_json(), SEAL: BLANK})))


def _ordered(content: bytes) -> bytes:
    """Sort the metadata of a safetensors file, or equal networks make different bytes."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return len(text).to_bytes(8, "little") + text + content[start:]


def load_network(path: str | Path) -> tuple[Network, ModelCard]:
    """Read a network from a safetensors file, ready to be trained, folded or changed.

    The images it takes are normalised already, by the mean and deviation on the card.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise unreadable(Path(path), "a safetensors file") from error
    check_seal(Path(path).read_bytes())
    card = read_card(metadata.get(KEY))
    floats = [each.dtype for each in state.values() if each.is_floating_point()]
    stored = floats[0] if floats else torch.float32
    try:
        with torch.random.fork_rng(devices=[]):  # weights are drawn and thrown away
            with torch.device("meta"):  # a card must not take more memory than its weights do
                card.build().load_state_dict(state, assign=True)
            network = card.build().to(stored)  # rounds the basis of filters as well
        network.load_state_dict(state)
    except InvintError:
        raise
    except Exception as error:  # whatever building raises when a card asks for nonsense
        problem = " ".join(str(error).split())
        raise ConfigError(f"the weights are not those of its card: {problem[:300]}") from error
    return network, card


def read_weights(path: Path) -> LoadedModel:
    """Read a network that normalises its images itself; half precision runs in float32."""
    network, card = load_network(path)
    dtype = torch.promote_types(next(network.parameters()).dtype, torch.float32)
    run = Normalised(network, card).to(dtype).eval().requires_grad_(False)
    return LoadedModel(card, lambda images: run(images.to("cpu", dtype)), path.name)


ONNX_LIMIT = 2**31 - 2**24  # bytes one protobuf message can hold, less room for the graph


def write_onnx(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the folded network with the normalisation inside, for batches of any size."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require_extra(module, "export_model", "onnx")
    network = exportable(model, card)
    size = sum(each.nbytes for each in (*network.parameters(), *network.buffers()))
    if size > ONNX_LIMIT:
        raise ConfigError(
            f"export_model: {size / 2**30:.1f} GiB of weights do not fit one ONNX file, which "
            "holds 2; export to torch"
        )
    with quiet():
        program = torch.onnx.export(
            network,
            (example_images(card, 2),),
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
        program.model.metadata_props.update({KEY: card.to_json(), SEAL: BLANK})
        program.save(path, external_data=False)
    path.write_bytes(sealed(path.read_bytes()))


def read_onnx(path: Path) -> LoadedModel:
    """Read a network that computes in onnxruntime."""
    runtime = require_extra("onnxruntime", "export_model", "onnx")
    try:
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
    except Exception as error:  # onnxruntime has no common class of errors
        raise unreadable(path, "an ONNX file") from error
    check_seal(path.read_bytes())
    card = read_card(metadata.get(KEY))

    def run(images: Tensor) -> Tensor:
        array = images.detach().cpu().float().contiguous().numpy()
        return torch.from_numpy(session.run(["logits"], {"images": array})[0])

    return LoadedModel(card, _explained(run, path), path.name)


def write_program(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the folded network with the normalisation inside, for batches of any size."""
    shapes = ({0: torch.export.Dim("batch")},)
    with quiet():
        program = torch.export.export(
            exportable(model, card), (example_images(card, 2),), dynamic_shapes=shapes
        )
        for module in program.graph_module.modules():
            for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
                node.meta.pop("stack_trace", None)  # it holds the paths of this machine
        torch.export.save(program, path, extra_files={f"{KEY}.json": card.to_json()})


def read_program(path: Path) -> LoadedModel:
    """Read a network, if nothing in its file could do more than compute with tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ConfigError("it is compressed, as torch.export files never are")
            entries = [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise unreadable(path, "a torch.export file") from error
    files = dict(entries)
    if len(files) < len(entries):
        raise ConfigError("it has two entries of one name, so that one could hide the other")
    refuse_code(files)
    content = files.get(f"extra/{KEY}.json")
    card = read_card(None if content is None else content.decode("utf-8", "replace"))
    try:
        with quiet():
            program = torch.export.load(path).module()
    except Exception as error:  # torch has no common class of errors
        raise unreadable(path, "a torch.export file") from error
    run = _explained(lambda images: program(images.cpu().float()), path)
    return LoadedModel(card, run, path.name)


def _explained(run: Callable[[Tensor], Tensor], path: Path) -> Callable[[Tensor], Tensor]:
    """Make one line of what an operation in a file fails with."""

    def explained(images: Tensor) -> Tensor:
        try:
            return run(images)
        except Exception as error:  # neither torch nor onnxruntime has a common class of errors
            first = str(error).strip().partition("\n")[0][:200] or type(error).__name__
            raise ConfigError(
                f"{path}: an operation in it fails ({first}); export the network again"
            ) from error

    return explained


TOLERANCE = 1e-4  # of the largest logit, or of 1 where logits are smaller
FORMATS = {"onnx": ".onnx", "torch": ".pt2", "safetensors": ".safetensors"}
WRITERS: dict[str, Callable[[nn.Module, ModelCard, Path], None]] = {
    ".onnx": write_onnx,
    ".pt2": write_program,
    ".safetensors": write_weights,
}
READERS: dict[str, Callable[[Path], LoadedModel]] = {
    ".onnx": read_onnx,
    ".pt2": read_program,
    ".safetensors": read_weights,
}


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
    path = check_writable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
            draft = Path(folder) / path.name
            WRITERS[suffix](model, card, draft)
            difference = _difference(READERS[suffix](draft), model, card)
            draft.replace(path)
    except OSError as error:  # a full disk is that of the file, not of its draft
        raise OSError(error.errno, error.strerror, str(path)) from error
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
        raise ConfigError(f"{path}: expected a file ending in {', '.join(READERS)}")
    try:
        return READERS[path.suffix](path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error


def _suffix_of(path: Path, format: str | None) -> str:
    if format is not None and format not in FORMATS:
        raise ConfigError(f"export_model: no format {format!r}; there are {', '.join(FORMATS)}")
    suffix = path.suffix if format is None else FORMATS[format]
    if suffix not in WRITERS or path.suffix != suffix:
        expected = ", ".join(WRITERS) if format is None else suffix
        raise ConfigError(f"export_model: expected a file ending in {expected}, got {path}")
    return suffix


def _difference(loaded: LoadedModel, model: nn.Module, card: ModelCard) -> float:
    """Return the largest difference of logits, or raise `ConfigError` if it is too large."""
    images = example_images(card, 3)
    images[-1] = images[-1, 0, 0, 0]  # of one colour: where quotients are of zeros
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
