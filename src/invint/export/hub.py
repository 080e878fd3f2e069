"""Networks as folders that can be shared: weights, card, and a page that says what they are.

The layout is that of the Hugging Face Hub: `model.safetensors`, `config.json` and `README.md`. A
folder needs nothing installed; repositories need the extra `hub`.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from invint.errors import ConfigError, InvintError, require_extra
from invint.export.card import ModelCard
from invint.export.files import export_model, load_network
from invint.files import write_atomically
from invint.models.networks import Network
from invint.version import __version__

WEIGHTS, CONFIG, PAGE = "model.safetensors", "config.json", "README.md"
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
BESIDE = ("class_names", "mean", "std")  # what a card says that `create_model` does not take


@runtime_checkable
class Tabled(Protocol):
    """An audit, as far as a page shows it."""

    def table(self, *, markdown: bool = False) -> str:
        """Return the table."""


def save_pretrained(
    network: Network,
    folder: str | Path,
    card: ModelCard | None = None,
    *,
    data: str = "",
    error: float | None = None,
    audit: Tabled | None = None,
) -> Path:
    """Write a folder that `from_pretrained` reads, and return it; what is written is read back.

    Args:
        network: The network.
        folder: Where to; made if it is not there.
        card: What is known of the network; by default what `create_model` was asked for.
        data: What it was trained on.
        error: Fraction of test images it gets wrong.
        audit: How its answers change as images turn.
    """
    folder, card = Path(folder), card or card_of(network)
    export_model(network, folder / WEIGHTS, card)
    write_atomically(folder / CONFIG, json.dumps(json.loads(card.to_json()), indent=1) + "\n")
    size = sum(each.numel() for each in network.parameters())
    write_atomically(folder / PAGE, page_of(card, size, data=data, error=error, audit=audit))
    return folder


def from_pretrained(
    source: str | Path, *, revision: str | None = None, token: str | None = None
) -> Network:
    """Read a network from a folder, a safetensors file or a repository, in evaluation mode.

    The images it takes are normalised already, by `spec["mean"]` and `spec["std"]`.

    Args:
        source: The folder or file; or a repository on the Hub, as `owner/name`, which needs the
            extra `hub`.
        revision: Branch, tag or commit of the repository.
        token: To read private repositories.
    """
    path = Path(source)
    if path.is_dir():
        path = path / WEIGHTS
    elif not path.is_file():
        path = _downloaded(str(source), revision, token)
    if not path.is_file():
        raise ConfigError(f"{source}: there is no {WEIGHTS} in it; write it with save_pretrained")
    try:
        network, card = load_network(path)
    except InvintError as error:
        raise ConfigError(f"{path}: {error}") from error
    network.spec |= {key: getattr(card, key) for key in BESIDE}
    return network.eval()


def push_to_hub(
    network: Network,
    repo_id: str,
    card: ModelCard | None = None,
    *,
    private: bool = False,
    token: str | None = None,
    **facts: Any,
) -> str:
    """Write what `save_pretrained` writes into a repository on the Hub; return the address.

    Args:
        network: The network.
        repo_id: The repository, as `owner/name`; made if it is not there.
        card: As for `save_pretrained`.
        private: Whether a new repository can be seen by nobody else.
        token: To write there; by default that of `hf auth login`.
        facts: `data`, `error` and `audit`, as for `save_pretrained`.
    """
    hub = require_extra("huggingface_hub", "push_to_hub", "hub")
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(network, folder, card, **facts)
        api = hub.HfApi(token=token)
        try:
            api.create_repo(repo_id=repo_id, private=private, exist_ok=True)
            made = api.upload_folder(repo_id=repo_id, folder_path=folder)
        except Exception as error:  # of the library, of its checks, of the network
            raise ConfigError(f"push_to_hub: {repo_id}: {_first_line(error)}") from error
    return str(made.commit_url)


def card_of(network: Network) -> ModelCard:
    """Return the card of a network that `create_model` or `from_pretrained` made."""
    if not network.spec:
        raise ConfigError(
            "save_pretrained: the network was put together by hand, and nothing says how; "
            "build it with create_model, or give a card"
        )
    given = {key: network.spec[key] for key in BESIDE if key in network.spec}
    return ModelCard.from_spec(network.spec, **given)


def page_of(
    card: ModelCard,
    parameters: int,
    *,
    data: str = "",
    error: float | None = None,
    audit: Tabled | None = None,
) -> str:
    """Return the page of a network: what it is, what it learnt from, how it does."""
    height, width = card.image_size
    facts = {
        "network": card.name,
        "head": card.head,
        "group": card.group,
        "parameters": f"{parameters:,}",
        "images": f"{card.in_channels} x {height} x {width}, between 0 and 1",
        "normalised by": f"mean {_numbers(card.mean)}, deviation {_numbers(card.std)}",
        "classes": f"{len(card.class_names)}: {', '.join(card.class_names)}",
        "trained on": data,
        "test error": "" if error is None else f"{100 * error:.2f} %",
    }
    rows = [f"| {name} | {_escaped(value)} |" for name, value in facts.items() if value]
    turned = "Not measured." if audit is None else audit.table(markdown=True)
    return PAGE_TEXT.format(
        title=card.title or "network", facts="\n".join(rows), audit=turned, version=__version__
    )


PAGE_TEXT = """---
library_name: invint
pipeline_tag: image-classification
tags: [image-classification, rotation-invariance, equivariance, pytorch]
---

# {title}

| what | |
| --- | --- |
{facts}

## As images turn

{audit}

## Use

```python
from invint.models import Network

network = Network.from_pretrained("FOLDER OR OWNER/NAME")
```

`invint predict FOLDER/model.safetensors PICTURES` needs no Python. Written by invint {version}.
"""


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _escaped(value: object) -> str:
    """Return text that stays in its cell."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _downloaded(source: str, revision: str | None, token: str | None) -> Path:
    if REPOSITORY.fullmatch(source) is None:
        raise ConfigError(f"{source}: there is no such folder or file, and no such repository name")
    hub = require_extra(
        "huggingface_hub", f"from_pretrained: {source} is no folder here, and", "hub"
    )
    try:
        return Path(hub.hf_hub_download(source, WEIGHTS, revision=revision, token=token))
    except Exception as error:  # of the library, of its checks, of the network
        raise ConfigError(f"from_pretrained: {source}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
