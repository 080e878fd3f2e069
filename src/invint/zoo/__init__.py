"""Networks we trained, by name: `sfcnn-small.digits` is an `sfcnn-small` that knows the digits.

What is known of each, its SHA-256 first of all, is in `weights.json` beside; `benchmarks/zoo.py`
makes the files again. Weights are never unpickled, and a file with another hash is refused.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from invint.data.download import Download, File, fetch_files
from invint.data.registry import data_folder
from invint.errors import ConfigError, did_you_mean
from invint.export import ModelCard, from_pretrained
from invint.export.hub import card_of
from invint.models.networks import Network
from invint.models.weights import read_checked

HERE = Path(__file__).parent
VARIABLE = "INVINT_ZOO"  # a folder or an address with files that are not in the package


class Weights(NamedTuple):
    """A file of the zoo.

    Attributes:
        sha256: What it hashes to.
        size: In bytes.
        data: What it was trained on, by its name.
        error: Fraction of test images it gets wrong.
        drift: Largest change of logits under quarter turns, relative, in float64.
    """

    sha256: str
    size: int
    data: str
    error: float
    drift: float


@cache
def zoo() -> dict[str, Weights]:
    """Return what is known of every network of the zoo, by its name."""
    known = json.loads((HERE / "weights.json").read_text())
    return {name: Weights(**values) for name, values in known.items()}


def create_pretrained(
    name: str, source: bool | str | Path, num_classes: int | None = None, **others: Any
) -> Network:
    """Build a network as its file says, for `create_model`.

    Args:
        name: One of `list_models(pretrained=True)`; with a source of your own also the name of the
            network alone.
        source: A folder, a file, or an address with the files of the zoo; `True` for the files in
            this package or, of those that are not, for what `INVINT_ZOO` names; `False` for fresh
            weights.
        num_classes: Where it is another number than the file's, the last layer starts afresh.
        others: Further arguments of `create_model`, which must be what the file says.
    """
    network = from_pretrained(find_weights(name, source))
    kind, spec = name.partition(".")[0], network.spec
    if spec["name"] != kind:
        raise ConfigError(f"{source}: it holds {spec['name']}, not {kind}")
    others = {key: value for key, value in others.items() if value is not None}
    if wrong := [key for key, value in others.items() if not _agrees(spec, key, value)]:
        raise ConfigError(
            f"{name}: it is built as its file says, num_classes alone can differ; leave out "
            f"{', '.join(wrong)}"
        )
    if source is False:
        network = fresh(card_of(network))
    if num_classes not in (None, spec["num_classes"]):
        network.reset_classifier(int(num_classes or 0))
    return network.train()


def _agrees(spec: dict[str, Any], key: str, value: Any) -> bool:
    """Whether an argument is what the file says anyway."""
    known = spec.get(key, spec["options"].get(key))
    if key == "image_size" and isinstance(value, int):
        value = (value, value)
    return bool(value == known or str(value) == known)


def fresh(card: ModelCard) -> Network:
    """Return the network of a card with weights that are drawn."""
    network = card.build()
    network.spec |= {"class_names": card.class_names, "mean": card.mean, "std": card.std}
    return network


def find_weights(name: str, source: bool | str | Path = True) -> Path:
    """Return the file of a network, fetched if it must be; one of the zoo has the right hash."""
    known = zoo().get(name)
    if known is None:
        if "." in name or isinstance(source, bool):
            hint = did_you_mean(name, zoo())
            raise ConfigError(f"no weights {name!r}; {hint}there are {', '.join(zoo())}")
        return Path(source)
    file = f"{name}.safetensors"
    if isinstance(source, bool):
        if (HERE / file).is_file():
            source = HERE
        elif not (source := os.environ.get(VARIABLE, "")):
            raise ConfigError(
                f"{name}: {file} is not in this installation; give its folder or address as "
                f"pretrained=…, or in {VARIABLE}"
            )
    if str(source).startswith(("http://", "https://")):
        path = _fetched(file, f"{str(source).rstrip('/')}/{file}", known)
    else:
        path = Path(source) / file if Path(source).is_dir() else Path(source)
    read_checked(path, known.sha256)
    return path


def _fetched(file: str, url: str, known: Weights) -> Path:
    folder = data_folder() / "zoo"
    download = Download(File(file, known.size, sha256=known.sha256), (url,))
    fetch_files((download,), folder, owner="zoo")
    return folder / file
