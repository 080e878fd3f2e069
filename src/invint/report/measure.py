"""What a report measures on test images, and what it reads from trained networks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint.audit import Audit, audit_model, turned
from invint.data.batches import scaled
from invint.data.dataset import Dataset, Split
from invint.errors import ConfigError
from invint.export import load_model, load_network
from invint.export.files import exportable
from invint.figures.sheets import Hard, Missed, Unsure
from invint.groups import Group, parse_group
from invint.models.networks import Network
from invint.nn import LiftConv2d, MonomialIntegration, Monomials
from invint.recipes.recipe import DataChoice
from invint.report.saliency import saliency
from invint.study.records import RunRecord, accuracy_by_angle, read_predictions
from invint.train.evaluate import Bin, calibration_bins, temperature_of
from invint.train.store import RunStore

Loader = Callable[[DataChoice], Dataset]
IMAGES = 200  # turned through the circle, at most
HARDEST = 20  # images shown
CLASSES = 12  # shown with the images most often wrong of each
SHOWN = 5  # images in a row


def store_of(run: RunRecord) -> RunStore:
    """Return the store of a run, unless the run is known from a record only."""
    if run.folder is None:
        raise ConfigError(f"{run.recipe}: read from a record, which holds no network")
    return RunStore(run.folder)


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


def images_to_turn(run: RunRecord, load: Loader, most: int) -> Split:
    """Return the test images that are turned, spread over all of them."""
    images = load_test_images(run, load)
    return images[torch.linspace(0, len(images) - 1, min(most, len(images))).long()]


def measure_turns(run: RunRecord, load: Loader) -> tuple[tuple[float, float], ...]:
    """Return pairs of angle and accuracy on turned test images; kept as `turns.json` in the run.

    Raises:
        InvintError: The network or the images are not there.
    """
    return run.turns or accuracy_by_angle(audit_run(run, load))


def audit_run(run: RunRecord, load: Loader) -> Audit:
    """Return accuracy and confidence by angle; kept as `turns.json` in the run.

    Raises:
        InvintError: The network or the images are not there.
    """
    store = store_of(run)
    kept = store.turns
    if kept is not None and kept.least_sure is not None:
        return kept
    some = images_to_turn(run, load, IMAGES)
    audit = audit_model(load_model(store.model), scaled(some.images), some.labels, border="disc")
    named = replace(audit, name=run.recipe)
    store.write_turns(named)
    return named


def confidence_by_angle(audit: Audit) -> tuple[tuple[float, float], ...]:
    """Return pairs of angle and mean confidence of the rotations, mirrored ones left out."""
    return tuple((turn.angle, turn.confidence or 0.0) for turn in audit.turns if not turn.mirrored)


def least_sure(run: RunRecord, load: Loader) -> Unsure:
    """Return the angle at which a network is least sure, and the images it is least sure of there.

    Raises:
        InvintError: The network or the images are not there.
    """
    audit = audit_run(run, load)
    confidences = dict(confidence_by_angle(audit))
    angle = min(confidences, key=confidences.__getitem__)
    some = images_to_turn(run, load, audit.images)  # the same as in the audit
    there = turned(scaled(some.images), angle, False, "disc")
    sure, found = load_model(store_of(run).model)(there).softmax(dim=1).max(dim=1)
    chosen = sure.argsort(stable=True)[:SHOWN]
    return Unsure(
        angle=angle,
        confidence=confidences[angle],
        images=there[chosen],
        labels=tuple(some.labels[chosen].tolist()),
        found=tuple(found[chosen].tolist()),
        sure=tuple(sure[chosen].tolist()),
    )


class Relevance(NamedTuple):
    """Test images, what their answers rest on, and the answers."""

    images: Tensor
    saliency: Tensor
    labels: tuple[int, ...]
    found: tuple[int, ...]


def relevance_of(run: RunRecord, load: Loader) -> Relevance:
    """Return what answers rest on for one test image of each class, of a few classes.

    Raises:
        InvintError: The network or the images are not there.
    """
    images = load_test_images(run, load)
    places = {int(label): place for place, label in reversed(list(enumerate(images.labels)))}
    some = images[torch.tensor([places[label] for label in sorted(places)[:SHOWN]])]
    pictures = scaled(some.images)
    network, card = load_network(store_of(run).model)
    model = exportable(network, card)
    found = model(pictures).argmax(dim=1).tolist()
    invariant = card.group is not None and parse_group(card.group).n % 4 == 0
    shown = saliency(model, pictures, invariant=invariant)
    return Relevance(pictures, shown, tuple(some.labels.tolist()), tuple(found))


def scaled_calibration(run: RunRecord) -> tuple[float, tuple[Bin, ...]] | None:
    """Return a temperature, and the calibration of answers scaled by it; none without predictions.

    Every second test image has its temperature chosen on the others, and they on it: no image has
    a say in its own. The mean of the two is returned.
    """
    pair = read_predictions(run)
    if pair is None or len(pair[1]) < 2:
        return None
    logits, labels = pair
    temperatures = [temperature_of(logits[k::2], labels[k::2]) for k in (1, 0)]
    divisors = torch.tensor(temperatures, dtype=torch.float64).repeat(-(-len(labels) // 2))
    bins = calibration_bins(logits.double() / divisors[: len(labels), None], labels)
    return exp(fmean(map(log, temperatures))), bins


def hardest_images(runs: Sequence[RunRecord], count: int = HARDEST) -> list[Hard]:
    """Return the test images most runs get wrong, and among those the ones with the largest loss.

    Raises:
        ConfigError: No run has predictions.
    """
    return _ranked(runs)[:count]


def missed_images(runs: Sequence[RunRecord]) -> list[Missed]:
    """Return the classes with the largest errors, and the images of each most often wrong.

    Raises:
        ConfigError: No run has predictions.
    """
    ranked = _ranked(runs)
    classes = []
    for label in sorted({each.label for each in ranked}):
        own = [each for each in ranked if each.label == label]
        error = fmean(each.wrong / each.runs for each in own)
        hard = tuple(each for each in own if each.wrong)[:SHOWN]
        classes += [Missed(label, error, len(own), hard)] if hard else []
    return sorted(classes, key=lambda each: -each.error)[:CLASSES]


def _ranked(runs: Sequence[RunRecord]) -> list[Hard]:
    """Return all test images, the most often wrong first."""
    pairs = [pair for pair in map(read_predictions, runs) if pair is not None]
    if not pairs:
        raise ConfigError("the predictions are not there: records do not hold them")
    labels = pairs[0][1]
    found = torch.stack([logits.argmax(dim=1) for logits, _ in pairs])
    wrong = found != labels
    losses = [cross_entropy(logits, labels, reduction="none") for logits, _ in pairs]
    loss = torch.stack(losses).nan_to_num(posinf=1e3).mean(dim=0).clamp(max=1e3)
    score = wrong.sum(dim=0) + loss / 1e4  # the loss only decides among equals
    order: list[int] = score.argsort(descending=True, stable=True).tolist()
    return [_hard(index, labels, found[:, index]) for index in order]


def _hard(index: int, labels: Tensor, found: Tensor) -> Hard:
    label = int(labels[index])
    others = found[found != label]
    most = int(others.mode().values) if len(others) else None
    return Hard(index, label, most, len(others), len(found))


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
