"""A candidate's answer: a network in the folder of a run, and what is known of how good it is."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from invint.audit import audit_model
from invint.data.batches import scaled
from invint.data.dataset import Dataset, Split
from invint.errors import RunError
from invint.export import load_model
from invint.files import write_atomically
from invint.fit.candidates import Candidate, candidate_of
from invint.fit.linear import Judgement, excess
from invint.models.orbits import pose_logits
from invint.recipes import Recipe
from invint.study.records import RunRecord, read_run
from invint.train import Execution
from invint.train.device import ProcessGroup
from invint.train.evaluate import logits_of
from invint.train.run import Run
from invint.train.setup import RunData
from invint.train.store import RunStore

QUARTERS = "quarters.safetensors"  # beside the files of a run: logits of test images turned
CHECKED, TOLERANCE = 4, 1e-3  # images that a saved network must answer as the features said
MOVED = 12  # test images moved by quarter turns, to see that no answer changes
TURNED_MOST, TURNED_LEAST = 200, 6  # test images turned through the circle
CIRCLE, QUARTER_TURNS = range(0, 360, 15), range(0, 360, 90)


@dataclass(frozen=True)
class Turned:
    """What quarter turns do to the answers about test images.

    Attributes:
        images: How many were turned.
        error: Fraction of wrong answers, over the three turns.
        changed: Fraction of images whose answer differs at one of them.
    """

    images: int
    error: float
    changed: float


@dataclass(frozen=True, eq=False)
class Answer:
    """What came out of a candidate.

    Attributes:
        candidate: Which one.
        run: Its run, with its errors on test images.
        judgement: What the training part says of it; `None` of one that is never chosen.
        turned: What quarter turns do to it.
    """

    candidate: Candidate
    run: RunRecord
    judgement: Judgement | None
    turned: Turned

    @property
    def store(self) -> RunStore:
        """The folder of its run."""
        if self.run.folder is None:
            raise RunError(f"{self.run.recipe}: there is no folder of the run")
        return RunStore(self.run.folder)

    @property
    def side(self) -> int:
        """Of its pictures."""
        return int(self.run.choices["data"]["side"])


def chosen(answers: Sequence[Answer]) -> Answer | None:
    """Choose among the invariant answers by the training part alone.

    The cheapest whose errors are within one standard error of the fewest: what the data cannot tell
    apart is not worth its price. Answers come cheapest first, those of one group ask for as many
    copies of an image: of these it is the best. Two are compared on the images that both were
    judged by, since those held out from a long training may be harder than others.
    """
    known = [
        (each, each.judgement)
        for each in answers
        if each.judgement is not None and each.candidate.group is not None
    ]
    if not known:
        return None
    _, best = _best(known)
    gaps = [(pair, excess(pair[1], best)) for pair in known]
    near = [pair for pair, (more, deviation) in gaps if more <= deviation]
    cheapest = near[0][0].candidate.group
    return _best([pair for pair in near if pair[0].candidate.group == cheapest])[0]


def _best(known: Sequence[tuple[Answer, Judgement]]) -> tuple[Answer, Judgement]:
    """Return the answer with the fewest errors, or with less loss of as many."""
    best = known[0]
    for pair in known[1:]:
        one, other = pair[1].of(best[1].images), best[1].of(pair[1].images)
        if (one.error, one.loss) < (other.error, other.loss):
            best = pair
    return best


class FittedRun(Run):
    """A run whose last layer was fitted on features of a frozen network: it makes no step."""

    known: tuple[Tensor, Tensor]

    def test_logits(self, network: nn.Module, *, turns: int = 1) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return logits and labels of the test images, as the features gave them."""
        return self.known


@dataclass(frozen=True, eq=False)
class Linear:
    """The last layer of a network: what multiplies features, and what is added."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        """Return logits, for storing."""
        logits = features.double() @ self.weight.T + self.bias
        return (logits if logits.ndim == 2 else pose_logits(logits)).float()


def write_fitted(
    recipe: Recipe, seed: int, runs: Path, dataset: Dataset, last: Linear, logits: Tensor
) -> RunRecord:
    """Write the run of a pretrained network with a fitted last layer.

    Args:
        recipe: Says which network.
        seed: Of the run.
        runs: Where the folders of runs are.
        dataset: The pictures, at the side of the recipe.
        last: The layer.
        logits: What the network says of the test images, from its features.
    """
    store = RunStore.at(runs, recipe, seed)
    if store.result is None:
        channels, everything = dataset.image_shape[0], torch.arange(len(dataset.train))
        normal = (0.0,) * channels, (1.0,) * channels
        data = RunData(dataset, everything, torch.arange(0), None, *normal)
        execution = Execution(compile=False).decided()
        with store.locked(), execution.applied():
            run = FittedRun(recipe, seed, store, data, execution, ProcessGroup())
            fill(run.network, last)
            run.known = logits, dataset.test.labels
            _check(run.network, dataset.test, logits)
            run.describe()
            run.finish()
    return read_run(store.path)


def fill(network: nn.Module, last: Linear) -> None:
    """Put weight and bias into the last layer of a network."""
    *_, layer = (each for each in network.modules() if isinstance(each, nn.Linear))
    layer.load_state_dict({"weight": last.weight, "bias": last.bias})


def _check(network: nn.Module, test: Split, logits: Tensor) -> None:
    """Raise `RunError` unless a network says what its features said, on a few images."""
    images = test[torch.arange(min(len(test), CHECKED))]
    found = logits_of(network, [(scaled(images.images).to(_device(network)), images.labels)])[0]
    off = (found - logits[: len(found)]).abs().max().item()
    if not off <= TOLERANCE * max(1.0, logits.abs().max().item()):  # NaN must fail
        raise RunError(f"the network is off its features by {off:.2g}; remove the folder --out")


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def tested_on_held_out(data: RunData) -> RunData:
    """Return the same with the held-out images in the place of the test images.

    A run on these looks at them once, when it is over, and at no test image.
    """
    split, held = _held_out(data)
    return replace(data, dataset=replace(data.dataset, test=split[held]), validation=None)


def judged_by_holdout(store: RunStore, data: RunData) -> Judgement:
    """Return what held-out images say of a network that was trained without them.

    Args:
        store: A run on these images, as `tested_on_held_out` returns them.
        data: The images as they were before.
    """
    found = store.predictions
    if found is None:
        raise RunError(f"{store.path}: predictions.safetensors is gone; remove the folder")
    logits, labels = found
    _, held = _held_out(data)
    own = data.dataset.validation is not None
    return Judgement(held + (len(data.dataset.train) if own else 0), logits.double(), labels)


def _held_out(data: RunData) -> tuple[Split, Tensor]:
    if data.validation is None:
        raise RunError(f"{data.dataset.name}: no image was held out")
    return data.validation


def read_answer(
    run: RunRecord, judgement: Judgement | None, dataset: Dataset, quarters: Tensor | None = None
) -> Answer:
    """Put together an answer; what quarter turns do to it is measured once and kept.

    Args:
        run: Its run.
        judgement: What the training part says.
        dataset: The pictures at its side.
        quarters: `(g, n, k)`, logits of the test images under quarter turns, where they are known.
    """
    if run.folder is None:
        raise RunError(f"{run.recipe}: there is no folder of the run")
    path = run.folder / QUARTERS
    if quarters is not None or not path.exists():
        found = _turned_logits(run.folder, dataset.test) if quarters is None else quarters
        write_atomically(path, save({"logits": found.contiguous()}))
    answers = load_file(path)["logits"].argmax(dim=2)
    labels = dataset.test.labels[spread_over(len(dataset.test), answers.shape[1])]
    return Answer(
        candidate_of(run.recipe),
        run,
        judgement,
        Turned(
            images=answers.shape[1],
            # Of the images turned alone it would differ from that of all by chance.
            error=min(max(run.error + _gap(answers, labels), 0.0), 1.0),
            changed=(answers[1:] != answers[0]).any(dim=0).double().mean().item(),
        ),
    )


def _gap(answers: Tensor, labels: Tensor) -> float:
    """Return how many more answers are wrong of images turned than of the same as they are."""
    wrong = (answers != labels).double()
    return (wrong[1:].mean() - wrong[0].mean()).item()


def _turned_logits(folder: Path, test: Split) -> Tensor:
    network = load_model(RunStore(folder).model)
    images = scaled(test.images[spread_over(len(test), MOVED)])
    return torch.stack([network(torch.rot90(images, turn, (2, 3))) for turn in range(4)])


def spread_over(images: int, most: int) -> Tensor:
    """Return so many indices at most, evenly over all images."""
    return torch.linspace(0, images - 1, min(most, images)).long()


def measure_circle(answer: Answer, test: Split, *, seconds: float) -> None:
    """Turn test images through the circle for the report, as many as the time allows."""
    store = answer.store
    if store.turns is not None:
        return
    network = load_model(store.model)
    few = scaled(test.images[: TURNED_LEAST // 3])
    began = time.perf_counter()
    network(few)
    each = (time.perf_counter() - began) / len(few)
    whole = each * TURNED_LEAST * len(CIRCLE) <= seconds
    angles = CIRCLE if whole else QUARTER_TURNS
    count = max(TURNED_LEAST, min(TURNED_MOST, int(seconds / (each * len(angles)))))
    some = test[spread_over(len(test), count)]
    audit = audit_model(network, scaled(some.images), some.labels, angles=angles, batch_size=16)
    store.write_turns(audit)
