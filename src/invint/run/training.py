"""The state of a run, and how it moves on: segment by segment, from epoch to epoch."""

import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint.data.batches import Batches, test_batches
from invint.data.dataset import Part
from invint.errors import Interrupted, RunError
from invint.export import ModelCard, network_bytes
from invint.files import write_whole
from invint.models.network import Network
from invint.nn import MonomialIntegration, Monomials
from invint.recipes.recipe import Recipe
from invint.run.beginning import describe, describe_environment, describe_images
from invint.run.building import Images, make_card, mixed
from invint.run.execution import Execution
from invint.run.faults import check_finite, stop_on_signal
from invint.run.finishing import finish
from invint.run.folder import RunFolder
from invint.run.processes import Team, synchronize
from invint.run.saving import restore, save
from invint.run.selecting import Selector
from invint.run.watch import Watch
from invint.train.evaluate import logits_of, scores_of
from invint.train.loop import Batch, Meter, channels_last, fit, make_optimizer
from invint.train.objective import Objective
from invint.train.pace import Pace, learning_rate

EVALUATION_BATCH = 256
SECONDS_BETWEEN_CHECKPOINTS = 10.0
SECONDS_WITHOUT_CHECKPOINT = 60.0  # within a long epoch


class Run:
    """The state of a run at a step, and how it moves on.

    Args:
        recipe: Every choice.
        seed: Of everything random.
        folder: Where it is recorded.
        images: What it learns from.
        execution: Device, precision, threads.
        processes: With whom it shares the work.
    """

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        folder: RunFolder,
        images: Images,
        execution: Execution,
        processes: Team,
    ) -> None:
        self.recipe, self.seed, self.folder, self.images = recipe, seed, folder, images
        self.execution, self.processes = execution, processes
        self.device = execution.torch_device
        self.step, self.selected = 0, 0
        self.best: dict[str, float] | None = None
        self.meter = Meter(self.device)
        self.began, self.seconds_before = time.monotonic(), 0.0
        self.saved_at = time.monotonic()
        self.watch = Watch()
        self.selector = Selector(recipe, images, seed)
        self.selector.check(self.pace)
        self.build(self.selector.first_head, self.selector.first_monomials())
        self.batches = self.make_batches()
        self.rate(0)  # like the others it refuses a wrong choice: before the first file is written

    @cached_property
    def pace(self) -> Pace:
        """The clock: as long as training on the full set."""
        return self.recipe.pace(len(self.images.dataset.train))

    def build(self, head: str | None, monomials: Monomials | None) -> None:
        """Make network and optimizer anew, with weights drawn from the seed."""
        torch.manual_seed(mixed("weights", self.seed))
        self.card = make_card(self.recipe, self.images, monomials=monomials, head=head)
        self.adopt(self.card.build())

    def adopt(self, network: Network) -> None:
        """Train this network from now on."""
        train = self.recipe.train
        if self.execution.synchronized:
            synchronize(network)
        self.network = network.to(self.device)
        if self.device.type == "cuda":
            channels_last(self.network)
        self.optimizer = make_optimizer(
            self.network,
            train.optimizer,
            lr=train.lr,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
        )
        self.rebuilt()

    def rebuilt(self) -> None:
        """Forget what was compiled for the network as it was."""
        self.__dict__.pop("objective", None)

    @cached_property
    def objective(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of a batch, compiled where asked."""
        train = self.recipe.train
        objective = Objective(
            self.processes.shared(self.network, self.device),
            reg=train.reg,
            elastic=train.elastic,
            norm_penalty=train.norm_penalty,
            class_weights=self.images.class_weights if train.class_weights else None,
        ).to(self.device)
        if self.execution.compile and self.processes.size == 1:
            objective.compile_features(graphs=self.device.type == "cuda" and train.accumulate == 1)

        def terms(images: Tensor, labels: Tensor) -> Tensor:
            if images.is_cuda:
                images = images.contiguous(memory_format=torch.channels_last)
            with self.execution.autocast():
                out: Tensor = objective(images, labels)
            return out

        return terms

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over a batch, with class weights where the recipe asks for them."""
        weight = (
            self.images.class_weights.to(self.device) if self.recipe.train.class_weights else None
        )
        return cross_entropy(logits, labels, weight=weight, reduction="none").mean()

    def complete(self, watch: Watch) -> None:
        """Begin or go on, train to the end, and write the result."""
        self.watch = watch
        if self.processes.leads:
            describe(self.folder, self.recipe, self.seed)
            describe_images(self.folder, self.images, self.seed)
            describe_environment(self.folder, self.execution, watch)
        restore(self)
        self.processes.wait()
        watch.started(self.folder.path, self.step, self.pace.steps)
        with stop_on_signal() as asked:
            for start, stop in self.segments():
                self.train(start, stop, asked)
        if self.processes.leads:
            watch.finished(finish(self))
        self.processes.wait()

    def save(self) -> None:
        """Write a checkpoint; of several processes one does."""
        self.saved_at = time.monotonic()
        if self.processes.leads:
            save(self)

    def segments(self) -> Iterator[tuple[int, int]]:
        """Yield the steps between epochs and selections that are still to be made."""
        epochs = (float(number) for number in range(1, math.ceil(self.pace.epochs) + 1))
        marks = {0, self.pace.steps, *self.selector.marks(self.pace)}
        marks |= {self.pace.step_at(epoch) for epoch in epochs}
        steps = sorted(mark for mark in marks if mark <= self.pace.steps)
        for start, stop in pairwise(steps):
            if self.step < stop:
                yield start, stop

    def train(self, start: int, stop: int, asked: Callable[[], bool]) -> None:
        """Make the steps of a segment, then log, choose and save."""
        if self.step == start:
            self.select()
            torch.manual_seed(mixed("segment", self.seed, start, self.processes.rank))
        self.step = fit(
            self.objective,
            self.optimizer,
            self.batches,
            steps=range(self.step, stop),
            rate=self.rate,
            meter=self.meter,
            accumulate=self.recipe.train.accumulate,
            after_step=partial(self.after_step, asked, stop),
        )
        if self.step == stop:
            self.record()
        halt = self.processes.agree(asked())
        waited = time.monotonic() - self.saved_at
        if halt or waited > SECONDS_BETWEEN_CHECKPOINTS or self.step == self.pace.steps:
            self.save()
        if halt:
            raise Interrupted(
                f"stopped at step {self.step:,} of {self.pace.steps:,}; the same command goes on "
                f"from there ({self.folder.path})"
            )

    def after_step(self, asked: Callable[[], bool], stop: int, step: int) -> bool:
        """Save within a long epoch; say whether to stop. Several processes only do so after it."""
        self.step = step
        self.watch.stepped(step)
        if self.processes.size > 1 or step == stop:  # `stop` is saved once it is logged
            return False
        if time.monotonic() - self.saved_at > SECONDS_WITHOUT_CHECKPOINT:
            self.save()
        return asked()

    def make_batches(self) -> Batches:
        """Return the batches of given steps."""
        return Batches(
            self.images.dataset.train,
            chosen=self.images.chosen,
            batch_size=self.recipe.train.batch_size,
            seed=mixed("batches", self.seed),
            augment=self.recipe.data.augment,
            mean=self.images.mean,
            std=self.images.std,
            device=self.device,
            rank=self.processes.rank,
            world=self.processes.size,
        )

    def rate(self, step: int) -> float:
        """Return the learning rate at a step; pre-training has a schedule of its own."""
        train, again = self.recipe.train, self.pace.step_at(self.recipe.selection.pretrain)
        return learning_rate(
            self.pace.epoch_at(step - again if step >= again else step),
            lr=train.lr,
            decay=train.decay,
            factor=train.lr_decay,
            epochs=train.lr_decay_epochs,
        )

    def select(self) -> None:
        """Choose monomials, if this is the step for it."""
        for entry in self.selector.begin(self) + self.selector.select(self):
            if self.processes.leads:
                self.folder.log(entry)
                self.watch.logged(entry)

    def training_images(self) -> Iterator[Batch]:
        """Return the images trained on, once and as they are, no batch with one alone."""
        chosen = self.images.chosen
        sizes = (size for size in range(EVALUATION_BATCH, 1, -1) if len(chosen) % size != 1)
        size = next(sizes, EVALUATION_BATCH)  # a single image has no variance to be divided by
        return self.in_order(self.images.dataset.train, chosen, batch_size=size)

    def record(self) -> None:
        """Log the epoch that is over, and keep the weights if validation likes them best."""
        self.processes.add_up(self.meter.sums)
        entry: dict[str, Any] = {"epoch": round(self.pace.epoch_at(self.step), 6)}
        entry |= {"step": self.step, **self.meter.read(), "lr": self.rate(self.step - 1)}
        check_finite(entry["loss"], entry["epoch"], self.folder.path)
        if not self.processes.leads:
            return
        if self.images.validation is not None:
            entry["validation_error"] = self.validate()
        entry["seconds"] = round(self.seconds, 3)
        self.folder.log(entry)
        self.watch.logged(entry)

    @property
    def seconds(self) -> float:
        """Time the run has taken, over all its starts."""
        return self.seconds_before + time.monotonic() - self.began

    def validate(self) -> float:
        """Return the validation error, and keep the weights if it is the lowest so far.

        As long as monomials are still to be chosen, the network is not the one asked for.
        """
        if self.images.validation is None:
            raise RunError(f"{self.folder.path}: there are no validation images")
        batches = self.in_order(*self.images.validation)
        logits = logits_of(self.network, batches, autocast=self.execution.autocast)
        error = scores_of(*logits).error
        lowest = self.best is None or error < self.best["validation_error"]
        if lowest and self.selector.done(self):
            self.best = {"validation_error": error, "step": self.step}
            best = self.folder.path / "best.safetensors"
            write_whole(best, network_bytes(self.network, self.current_card))
        return error

    def in_order(
        self, part: Part, chosen: Tensor | None = None, *, batch_size: int = EVALUATION_BATCH
    ) -> Iterator[Batch]:
        """Return images and labels from first to last, for evaluation."""
        return test_batches(
            part,
            batch_size=batch_size,
            mean=self.images.mean,
            std=self.images.std,
            device=self.device,
            chosen=chosen,
        )

    @property
    def monomials(self) -> Monomials | None:
        """The monomials as they are now, where the network has some."""
        for module in self.network.modules():
            if isinstance(module, MonomialIntegration):
                return module.monomials
        return None

    @property
    def current_card(self) -> ModelCard:
        """The card of the network as it is now, with the monomials that are left."""
        head = self.card.head
        return make_card(self.recipe, self.images, monomials=self.monomials, head=head)
