"""What a report asks a trained network: filters, monomials, answers to turned images."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from einops import rearrange
from torch import Tensor

from invint import export
from invint.audit import Audit, audit_model
from invint.data.batches import scaled
from invint.data.dataset import Dataset, Split
from invint.errors import ConfigError
from invint.groups import Group
from invint.models.networks import Network
from invint.nn import LiftConv2d, MonomialIntegration, Monomials
from invint.recipes.recipe import DataChoice
from invint.study.records import RunRecord
from invint.train.setup import chosen_data

Loader = Callable[[DataChoice], Dataset]
IMAGES = 200  # turned through the circle, at most
WEIGHTS = "model.safetensors"
TURNS = "turns.json"


def load_network(run: RunRecord) -> Network:
    """Return the trained network of a run.

    Raises:
        ConfigError: Its file is gone or damaged.
    """
    path = weights_of(run)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    try:
        return export.load_network(path)[0]
    except ConfigError as error:
        raise ConfigError(f"{path}: damaged, or not the network of a run ({error})") from error


def weights_of(run: RunRecord) -> Path:
    """Return where the trained network of a run is, unless the run is known from a record only."""
    if run.folder is None:
        raise ConfigError(f"{run.recipe}: read from a record, which holds no network")
    return run.folder / WEIGHTS


def turning_filter(network: Network) -> tuple[Group, Tensor] | None:
    """Return the strongest filter of the first steerable layer, `(g, k, k)`; none if there is none.

    Colours are averaged.
    """
    layer = next((each for each in network.modules() if isinstance(each, LiftConv2d)), None)
    if layer is None:
        return None
    filters = rearrange(
        layer.filters().detach(), "(o g) c y x -> o g c y x", g=layer.group.order
    ).mean(dim=2)
    strongest = filters.square().sum(dim=(1, 2, 3)).argmax()
    return layer.group, filters[strongest]


def learned_monomials(network: Network) -> Monomials | None:
    """Return the monomials with their learned exponents; none if the head has none."""
    heads = (each for each in network.modules() if isinstance(each, MonomialIntegration))
    head = next(heads, None)
    return None if head is None else head.monomials


def load_test_images(run: RunRecord, load: Loader) -> Split:
    """Return the test images of a run, made sure to be the ones it was tested on.

    Raises:
        InvintError: They are not there, or others.
    """
    dataset = load(chosen_data(run.choices))
    if dataset.fingerprint != run.fingerprint:
        raise ConfigError(
            f"the data set {run.data!r} is not the one of the runs (fingerprint "
            f"{dataset.fingerprint}, expected {run.fingerprint})"
        )
    return dataset.test


def measure_turns(run: RunRecord, load: Loader) -> tuple[tuple[float, float], ...]:
    """Return pairs of angle and accuracy on turned test images; kept as `turns.json` in the run.

    Raises:
        InvintError: The network or the images are not there.
    """
    if run.turns:
        return run.turns
    if run.folder is None:
        raise ConfigError(f"{run.recipe}: read from a record, in which no angles were measured")
    images = load_test_images(run, load)
    chosen = torch.linspace(0, len(images) - 1, min(IMAGES, len(images))).long()
    part = images[chosen]
    audit = audit_model(
        export.load_model(run.folder / WEIGHTS), scaled(part.images), part.labels, border="disc"
    )
    _keep(replace(audit, name=run.recipe), run.folder / TURNS)
    return tuple((turn.angle, turn.accuracy or 0.0) for turn in audit.turns)


def _keep(audit: Audit, path: Path) -> None:
    try:
        audit.save(path)
    except OSError:
        return  # a folder one may only read: measured again next time
