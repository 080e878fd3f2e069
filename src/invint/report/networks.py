"""What a report asks a trained network: filters, monomials, answers to turned images."""

from collections.abc import Callable
from dataclasses import replace

import torch
from einops import rearrange
from torch import Tensor

from invint.audit import audit_model
from invint.data.batches import scaled
from invint.data.dataset import Dataset, Split
from invint.errors import ConfigError
from invint.export import load_model
from invint.groups import Group
from invint.models.networks import Network
from invint.nn import LiftConv2d, MonomialIntegration, Monomials
from invint.recipes.recipe import DataChoice
from invint.study.records import RunRecord, accuracy_by_angle
from invint.train.store import RunStore

Loader = Callable[[DataChoice], Dataset]
IMAGES = 200  # turned through the circle, at most


def store_of(run: RunRecord) -> RunStore:
    """Return the store of a run, unless the run is known from a record only."""
    if run.folder is None:
        raise ConfigError(f"{run.recipe}: read from a record, which holds no network")
    return RunStore(run.folder)


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
    dataset = load(DataChoice.of(run.choices))
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
    store = store_of(run)
    images = load_test_images(run, load)
    chosen = torch.linspace(0, len(images) - 1, min(IMAGES, len(images))).long()
    some = images[chosen]
    audit = audit_model(load_model(store.model), scaled(some.images), some.labels, border="disc")
    store.write_turns(replace(audit, name=run.recipe))
    return accuracy_by_angle(audit)
