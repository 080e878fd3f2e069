"""Networks as safetensors files: weights alone, and the card to build the network from."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from invint.errors import ConfigError, InvintError
from invint.export.card import KEY, ModelCard, read_card
from invint.export.refusal import unreadable
from invint.export.running import LoadedModel, Normalised
from invint.models.network import Network


def write_weights(model: nn.Module, card: ModelCard, path: Path) -> None:
    """Write the weights as they are."""
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
        raise unreadable(Path(path), "a safetensors file") from error
    card = read_card(metadata.get(KEY))
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


def read_weights(path: Path) -> LoadedModel:
    """Read a network that normalises its images itself; half precision runs in float32."""
    network, card = load_network(path)
    dtype = torch.promote_types(next(network.parameters()).dtype, torch.float32)
    run = Normalised(network, card).to(dtype).eval().requires_grad_(False)
    return LoadedModel(card, lambda images: run(images.to("cpu", dtype)), path.name)
