"""A run from its start, or from where it was left, to its result."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
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
from invint.run.building import Images, make_card, mixed
from invint.run.execution import Execution
from invint.run.faults import check_finite, explained, stop_on_signal
from invint.run.finishing import finish
from invint.run.folder import FORMAT_VERSION, RunFolder
from invint.run.processes import Team, synchronize, team
from invint.run.selecting import Selector
from invint.run.watch import Watch
from invint.train.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    load_optimizer,
    optimizer_tensors,
)
from invint.train.evaluate import logits_of, scores_of
from invint.train.loop import Batch, Meter, channels_last, fit, make_optimizer
from invint.train.objective import Objective
from invint.train.pace import Pace, learning_rate

EVALUATION_BATCH = 256
SECONDS_BETWEEN_CHECKPOINTS = 10.0
SECONDS_WITHOUT_CHECKPOINT = 60.0  # within a long epoch


def train_run(
    recipe: Recipe,
    *,
    seed: int = 0,
    runs: Path = Path("runs"),
    data_dir: Path | None = None,
    execution: Execution | None = None,
    watch: Watch | None = None,
) -> Path:
    """Carry out a run, or what is left of it, and return its folder.

    A finished run is not run again. Killed at any moment and called again, it ends in the same
    weights: batches and random numbers are functions of the seed and the step.

    Args:
        recipe: Every choice.
        seed: Of the subset, the weights, the batches and dropout.
        runs: Where the folders of runs are.
        data_dir: Where data sets are; by default `INVINT_DATA` or the user's cache.
        execution: Device, precision, threads.
        watch: Hears of the progress.
    """
    folder, watch = RunFolder.of(runs, recipe, seed), watch or Watch()
    result = folder.result
    if result is not None:
        watch.noted(f"{folder.path} is complete; nothing to do")
        watch.finished(result)
        return folder.path
    execution = execution or Execution()
    begun = folder.read("environment.json")
    execution = execution.as_begun(begun, folder.path) if begun else execution.decided()
    with ExitStack() as stack:
        stack.callback(watch.ended)
        stack.enter_context(explained(folder.path))
        stack.enter_context(execution.applied())
        processes = stack.enter_context(team(execution.torch_device))
        if processes.leads:
            stack.enter_context(folder.locked())
        images = Images.of(recipe, seed, data_dir, progress=watch.decoded)
        run = Run(recipe, seed, folder, images, execution, processes)
        run.complete(watch)
    return folder.path


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
            class_weights=self.class_weights if train.class_weights else None,
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

    @property
    def class_weights(self) -> Tensor:
        """The weight of each class among the images trained on."""
        return class_weights(self.images.labels, len(self.images.dataset.class_names))

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean over a batch, with class weights where the recipe asks for them."""
        weight = self.class_weights.to(self.device) if self.recipe.train.class_weights else None
        return cross_entropy(logits, labels, weight=weight, reduction="none").mean()

    def complete(self, watch: Watch) -> None:
        """Begin or go on, train to the end, and write the result."""
        self.watch = watch
        if self.processes.leads:
            self.describe()
        self.restore()
        self.processes.wait()
        watch.started(self.folder.path, self.step, self.pace.steps)
        with stop_on_signal() as asked:
            for start, stop in self.segments():
                self.train(start, stop, asked)
        if self.processes.leads:
            watch.finished(finish(self))
        self.processes.wait()

    def describe(self) -> None:
        """Write what the run is, unless an earlier start did."""
        recipe = self.recipe
        about = {"format": FORMAT_VERSION, "name": recipe.name, "about": recipe.about}
        about |= {"choices": recipe.choices, "source": recipe.source}
        written = self.folder.read("recipe.json")
        if written is None:
            self.folder.write("recipe.json", about | {"hash": recipe.hash, "seed": self.seed})
        elif written.get("format") != FORMAT_VERSION:
            raise RunError(
                f"{self.folder.path}: format {written.get('format')}, this invint reads "
                f"{FORMAT_VERSION}; go on with the version that wrote it"
            )
        chosen, before = self.images.describe(self.seed), self.folder.read("subset.json")
        if before is None:
            self.folder.write("subset.json", chosen, indent=None)
        elif before != chosen:
            raise RunError(
                f"{self.folder.path}: the data set has changed since the run began; put it back, "
                "or remove the folder to begin anew"
            )
        self.describe_environment()

    def describe_environment(self) -> None:
        """Write with what the run begins, or say what has changed since it did."""
        begun, now = self.folder.read("environment.json"), self.execution.environment()
        if begun is None:
            self.folder.write("environment.json", now)
            return
        for key in ("invint", "torch", "machine", "processes"):
            if begun.get(key) != now[key]:
                self.watch.noted(
                    f"the run began with {key} {begun.get(key)} and goes on with {now[key]}: "
                    "the last bits may differ"
                )

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

    def save(self) -> None:
        """Write a checkpoint, unless its numbers are none any more."""
        self.saved_at = time.monotonic()
        if not self.processes.leads:
            return
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        moments = optimizer_tensors(self.network, self.optimizer)
        tensors |= {f"optimizer.{name}": value for name, value in moments.items()}
        tensors |= {"meter": self.meter.sums, "random.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        if not all(each.isfinite().all() for each in tensors.values()):
            check_finite(float("nan"), self.pace.epoch_at(self.step), self.folder.path)
        monomials = self.monomials
        facts = {
            "step": self.step,
            "selected": self.selected,
            "head": self.card.head,
            "monomials": None if monomials is None else asdict(monomials),
            "best": self.best,
            "log_lines": len(self.folder.log_lines()),
            "seconds": self.seconds,
        }
        Checkpoint(tensors, facts).write(self.folder.path)

    def restore(self) -> None:
        """Go back to the last checkpoint that is whole, or to the start."""
        checkpoint, problems = latest_checkpoint(self.folder.path)
        for path, problem in problems.items():
            self.watch.noted(f"{problem}; going on from what was saved before it")
            if self.processes.leads:
                path.replace(path.with_name(f"damaged-{path.name}"))
        if self.processes.leads:
            self.folder.cut_log(0 if checkpoint is None else checkpoint.facts["log_lines"])
        if checkpoint is None:
            return
        facts = checkpoint.facts
        stored = facts["monomials"]
        self.build(facts["head"], None if stored is None else Monomials.from_dict(stored))
        self.network.load_state_dict(checkpoint.part("network."))
        load_optimizer(self.network, self.optimizer, checkpoint.part("optimizer."))
        self.meter.sums.copy_(checkpoint.tensors["meter"])
        torch.set_rng_state(checkpoint.tensors["random.cpu"])
        if "random.cuda" in checkpoint.tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], self.device)
        self.step, self.selected, self.best = facts["step"], facts["selected"], facts["best"]
        self.seconds_before = facts["seconds"]


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return weights inversely proportional to how often each class occurs, 1 on average."""
    counts = torch.bincount(labels, minlength=classes).clamp_min(1)
    return len(labels) / (classes * counts.float())
