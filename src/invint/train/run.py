"""A run: a recipe with a seed becomes a trained network, and can be killed and resumed anywhere."""

import errno
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint.data.batches import Batches, test_batches
from invint.data.dataset import Split
from invint.errors import Interrupted, RunError
from invint.export import ModelCard, load_network, network_bytes
from invint.models import fold
from invint.nn import MonomialIntegration, Monomials
from invint.recipes.recipe import Recipe
from invint.recipes.schedule import Schedule
from invint.selection import find_monomials, prune, selection_event
from invint.train.averages import WeightAverage, with_statistics
from invint.train.callbacks import Callback
from invint.train.device import (
    Execution,
    ProcessGroup,
    process_group,
    stop_on_signal,
    synchronize,
    try_algorithms,
)
from invint.train.evaluate import logits_of, scores_of
from invint.train.loop import Batch, Meter, Objective, channels_last, fit, make_optimizer, set_modes
from invint.train.selector import Selection, Selector
from invint.train.setup import RunData, derive_seed, make_card
from invint.train.store import (
    BEST,
    FORMAT_VERSION,
    Checkpoint,
    RunStore,
    load_optimizer,
    optimizer_tensors,
)
from invint.version import __version__

EVALUATION_BATCH = 256
SECONDS_BETWEEN_CHECKPOINTS = 10.0
SECONDS_WITHOUT_CHECKPOINT = 60.0  # within a long epoch
Begin = Callable[[nn.Module], None]
REPRODUCIBLE = ("invint", "torch", "machine", "processes")  # another one may move the last bits


def train_run(
    recipe: Recipe,
    *,
    seed: int = 0,
    runs: Path = Path("runs"),
    data_dir: Path | None = None,
    execution: Execution | None = None,
    callback: Callback | None = None,
    data: RunData | None = None,
    begin: Begin | None = None,
) -> RunStore:
    """Train a recipe, or what is left of it, and return the store of the run.

    A complete run is not run again. Killed at any moment and called again, it ends in the same
    weights: batches and random draws are functions of the seed and the step.

    Args:
        recipe: Every choice.
        seed: Of the subset, the weights, the batches and dropout.
        runs: Where the folders of runs are.
        data_dir: Where data sets are; by default `INVINT_DATA` or the user's cache.
        execution: Device, precision, threads.
        callback: Receives progress.
        data: What the recipe learns from, where it is there already; the same each time.
        begin: Gives the network other weights to begin with; the same each time.
    """
    store, callback = RunStore.at(runs, recipe, seed), callback or Callback()
    result = store.result
    if result is not None:
        callback.on_note(f"{store.path} is complete; nothing to do")
        for note in _contradictions(execution or Execution(), store):
            callback.on_note(note)
        callback.on_finish(result)
        return store
    execution = execution or Execution()
    environment = store.environment
    if environment is None:
        execution = execution.decided()
    else:
        execution = execution.as_begun(environment, store.path)
    with ExitStack() as stack:
        stack.callback(callback.on_end)
        stack.enter_context(explained(store.path))
        stack.enter_context(execution.applied())
        processes = stack.enter_context(process_group(execution.torch_device))
        if processes.is_main:
            stack.enter_context(store.locked())
        data = data or RunData.of(recipe, seed, data_dir, progress=callback.on_decode)
        run = Run(recipe, seed, store, data, execution, processes, begin)
        try_algorithms(run.schedule.steps)
        run.complete(callback)
    return store


def _contradictions(execution: Execution, store: RunStore) -> Iterator[str]:
    """Say where a complete run is not what is asked for."""
    environment = store.environment or {}
    for key, wanted in execution.other_than(environment).items():
        yield (
            f"it ran with {key} {environment.get(key)}, not {wanted} as asked for; "
            "choose another --runs folder to run it again"
        )


class Run:
    """The state of a run at a step, and how it moves on.

    Args:
        recipe: Every choice.
        seed: Of everything random.
        store: Where it is kept.
        data: What it learns from.
        execution: Device, precision, threads.
        processes: Those that share the work.
        begin: Gives the network other weights to begin with.
    """

    def __init__(
        self,
        recipe: Recipe,
        seed: int,
        store: RunStore,
        data: RunData,
        execution: Execution,
        processes: ProcessGroup,
        begin: Begin | None = None,
    ) -> None:
        self.recipe, self.seed, self.store, self.data = recipe, seed, store, data
        self.execution, self.processes, self.begin = execution, processes, begin
        self.device = execution.torch_device
        self.step, self.selected = 0, 0
        self.best: dict[str, float] | None = None
        self.meter = Meter(self.device)
        self.began, self.seconds_before = time.monotonic(), 0.0
        self.saved_at = time.monotonic()
        self.callback = Callback()
        self.selector = Selector(recipe, data, self.schedule, seed)
        self.build(self.selector.first_head, self.selector.first_monomials)
        self.batches = Batches(
            data.dataset.train,
            chosen=data.train_indices,
            batch_size=recipe.train.batch_size,
            seed=derive_seed("batches", seed),
            augment=recipe.data.augment,
            mean=data.mean,
            std=data.std,
            device=self.device,
            rank=processes.rank,
            world=processes.size,
        )
        self.rate(0)  # like the others it refuses a wrong choice: before the first file is written

    # Network, optimizer, loss

    @cached_property
    def schedule(self) -> Schedule:
        """Epochs and steps, as long as training on the full set."""
        return self.recipe.schedule(len(self.data.dataset.train))

    def build(self, head: str | None, monomials: Monomials | None) -> None:
        """Make network and optimizer from scratch, with weights drawn from the seed."""
        torch.manual_seed(derive_seed("weights", self.seed))
        self.card = make_card(self.recipe, self.data, monomials=monomials, head=head)
        network = self.card.build(pretrained=self.recipe.model.pretrained)
        train = self.recipe.train
        if self.begin is not None:
            self.begin(network)
        set_modes(network, keep_statistics=train.keep_statistics, one_copy=train.one_copy)
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
            clip_norm=train.clip_norm,
        )
        self.average = WeightAverage(self.network, train.ema) if train.ema else None
        self.objective = self.make_objective()

    def make_objective(self) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss of a batch, compiled where asked; to be made again with the network."""
        train = self.recipe.train
        objective = Objective(
            self.processes.wrap(self.network, self.device),
            reg=train.reg,
            elastic=train.elastic,
            norm_penalty=train.norm_penalty,
            class_weights=self.data.class_weights if train.class_weights else None,
            label_smoothing=train.label_smoothing,
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
            self.data.class_weights.to(self.device) if self.recipe.train.class_weights else None
        )
        return cross_entropy(logits, labels, weight=weight, reduction="none").mean()

    def rate(self, step: int) -> float:
        """Return the learning rate at a step; pre-training has a schedule of its own."""
        train, pretrain = self.recipe.train, self.recipe.selection.pretrain
        again = self.schedule.step_at(pretrain)
        if step < again:
            return train.rate(self.schedule.epoch_at(step), length=pretrain)
        return train.rate(self.schedule.epoch_at(step - again))

    def evaluated(self) -> nn.Module:
        """Return the network as it is evaluated and exported: it may be an average."""
        network = self.network if self.average is None else self.average.network
        count = self.recipe.train.statistics
        if not count:
            return network
        # The batches that would come next: a resumed run finds the same.
        batches = self.batches(range(self.step, self.step + count))
        return with_statistics(network, batches, self.execution.autocast)

    def card_of(self, network: nn.Module) -> ModelCard:
        """Return the card of a network of this run, with the monomials that are left in it."""
        return make_card(
            self.recipe, self.data, monomials=monomials_of(network), head=self.card.head
        )

    # Batches

    def training_images(self) -> Iterator[Batch]:
        """Return the images trained on, once and as they are, no batch with one alone."""
        chosen = self.data.train_indices
        sizes = (size for size in range(EVALUATION_BATCH, 1, -1) if len(chosen) % size != 1)
        size = next(sizes, EVALUATION_BATCH)  # a single image has no variance to be divided by
        return self.in_order(self.data.dataset.train, chosen, batch_size=size)

    def in_order(
        self, images: Split, chosen: Tensor | None = None, *, batch_size: int = EVALUATION_BATCH
    ) -> Iterator[Batch]:
        """Return images and labels from first to last, for evaluation."""
        return test_batches(
            images,
            batch_size=batch_size,
            mean=self.data.mean,
            std=self.data.std,
            device=self.device,
            chosen=chosen,
        )

    # From start to end

    def complete(self, callback: Callback) -> None:
        """Start or resume, train to the end, and write the result."""
        self.callback = callback
        if self.processes.is_main:
            self.describe()
        self.resume()
        self.processes.barrier()
        callback.on_start(self.store.path, self.step, self.schedule.steps)
        with stop_on_signal() as asked:
            for start, stop in self.segments():
                self.train(start, stop, asked)
        if self.processes.is_main:
            callback.on_finish(self.finish())
        self.processes.barrier()

    def describe(self) -> None:
        """Write what the run is; of one that is resumed, check that it is still the same."""
        recipe = self.store.recipe
        if recipe is None:
            self.store.write(
                "recipe.json",
                {
                    "format": FORMAT_VERSION,
                    "name": self.recipe.name,
                    "about": self.recipe.about,
                    "choices": self.recipe.choices,
                    "source": self.recipe.source,
                    "hash": self.recipe.hash,
                    "seed": self.seed,
                },
            )
        elif recipe.get("format") != FORMAT_VERSION:
            raise RunError(
                f"{self.store.path}: format {recipe.get('format')}, this invint reads "
                f"{FORMAT_VERSION}; resume it with the version that wrote it"
            )
        subset = self.data.describe(self.seed)
        if self.store.subset is None:
            self.store.write("subset.json", subset, indent=None)
        elif self.store.subset != subset:
            raise RunError(
                f"{self.store.path}: the data set has changed since the run began; put it back, "
                "or remove the folder to start over"
            )
        begun, now = self.store.environment, self.execution.environment()
        if begun is None:
            self.store.write("environment.json", now)
            return
        for key in REPRODUCIBLE:
            if begun.get(key) != now[key]:
                self.callback.on_note(
                    f"the run began with {key} {begun.get(key)} and is resumed with {now[key]}: "
                    "the last bits may differ"
                )

    def segments(self) -> Iterator[tuple[int, int]]:
        """Yield the steps between epochs and selections that are still to be made."""
        epochs = (float(number) for number in range(1, math.ceil(self.schedule.epochs) + 1))
        marks = {0, self.schedule.steps, *self.selector.marks}
        marks |= {self.schedule.step_at(epoch) for epoch in epochs}
        steps = sorted(mark for mark in marks if mark <= self.schedule.steps)
        for start, stop in pairwise(steps):
            if self.step < stop:
                yield start, stop

    def train(self, start: int, stop: int, asked: Callable[[], bool]) -> None:
        """Make the steps of a segment, then log, select and save."""
        if self.step == start:
            self.select()
            # Dropout is a function of the segment: a resumed run draws what the first one drew.
            torch.manual_seed(derive_seed("segment", self.seed, start, self.processes.rank))
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
        halt = self.processes.any(asked())
        waited = time.monotonic() - self.saved_at
        if halt or waited > SECONDS_BETWEEN_CHECKPOINTS or self.step == self.schedule.steps:
            self.save()
        if halt:
            raise Interrupted(
                f"stopped at step {self.step:,} of {self.schedule.steps:,}; the same command "
                f"resumes it from there ({self.store.path})"
            )

    def after_step(self, asked: Callable[[], bool], stop: int, step: int) -> bool:
        """Save within a long epoch; say whether to stop. Several processes only do so after it."""
        self.step = step
        if self.average is not None:
            self.average.update(self.network, step)
        self.callback.on_step(step)
        if self.processes.size > 1 or step == stop:  # `stop` is saved once it is logged
            return False
        if time.monotonic() - self.saved_at > SECONDS_WITHOUT_CHECKPOINT:
            self.save()
        return asked()

    def select(self) -> None:
        """Select monomials, if this is the step for it."""
        start, method = self.selector.start, self.recipe.selection.method
        if start is not None and self.step == 0 and method == "none":
            self.log({"event": "monomials", "epoch": 0.0, "step": 0, "start": start.to_dict()})
        while self.selector.is_due(self.step, self.selected):
            selection = self.selector.decide(
                self.network, self.training_images(), self.cross_entropy, self.selected
            )
            # Running statistics differ between processes, and so may scores: one decides for all.
            selection = self.processes.from_main(selection)
            self.apply(selection)
            event = selection_event(
                epoch=round(self.schedule.epoch_at(self.step), 6),
                step=self.step,
                method=method,
                scores=selection.scores,
                kept=selection.kept,
                monomials=find_monomials(self.network)[2].monomials,
                start=selection.start,
            )
            self.log(event | selection.facts)
            self.selected += 1

    def apply(self, selection: Selection) -> None:
        """Take monomials out of the network, or put some in the place of pooling."""
        if selection.exchanged is None:
            prune(self.network, self.optimizer, list(selection.kept))
            if self.average is not None:
                prune(self.average.network, None, list(selection.kept))
            self.objective = self.make_objective()
            return
        pretrained = self.network.features.state_dict()
        self.build("monomials", selection.exchanged)
        self.network.features.load_state_dict(pretrained)

    def log(self, entry: dict[str, Any]) -> None:
        """Add a line to the log; of several processes one does."""
        if self.processes.is_main:
            self.store.append(entry)
            self.callback.on_log(entry)

    def record(self) -> None:
        """Log the epoch that is over, and keep the best weights by validation error."""
        self.processes.sum_over_processes(self.meter.sums)
        entry: dict[str, Any] = {"epoch": round(self.schedule.epoch_at(self.step), 6)}
        entry |= {"step": self.step, **self.meter.read(), "lr": self.rate(self.step - 1)}
        check_finite(entry["loss"], entry["epoch"], self.store.path)
        if not self.processes.is_main:
            return
        if self.data.validation is not None:
            entry["validation_error"] = self.validate()
        entry["seconds"] = round(self.seconds, 3)
        self.log(entry)

    @property
    def seconds(self) -> float:
        """Time the run has taken, over all its starts."""
        return self.seconds_before + time.monotonic() - self.began

    def validate(self) -> float:
        """Return the validation error, and keep the weights if it is the lowest so far.

        As long as monomials are still to be selected, the network is not the one asked for.
        """
        if self.data.validation is None:
            raise RunError(f"{self.store.path}: there are no validation images")
        batches, network = self.in_order(*self.data.validation), self.evaluated()
        logits = logits_of(network, batches, autocast=self.execution.autocast)
        error = scores_of(*logits).error
        lowest = self.best is None or error < self.best["validation_error"]
        if lowest and self.selector.is_done(self.selected):
            self.best = {"validation_error": error, "step": self.step}
            self.store.write_best(network_bytes(network, self.card_of(network)))
        return error

    # Checkpoints

    def save(self) -> None:
        """Write a checkpoint; of several processes one does."""
        self.saved_at = time.monotonic()
        if self.processes.is_main:
            self.state_dict().write(self.store.path)

    def state_dict(self) -> Checkpoint:
        """Return everything that the rest of the run depends on.

        Raises:
            RunError: A value in it is NaN or infinite.
        """
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        if self.average is not None:
            averaged = self.average.network.state_dict()
            tensors |= {f"average.{name}": value for name, value in averaged.items()}
        moments = optimizer_tensors(self.network, self.optimizer)
        tensors |= {f"optimizer.{name}": value for name, value in moments.items()}
        tensors |= {"meter": self.meter.sums, "random.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        if self.device.type == "mps":
            tensors["random.mps"] = torch.mps.get_rng_state()
        if not all(tensor.isfinite().all() for tensor in tensors.values()):
            check_finite(float("nan"), self.schedule.epoch_at(self.step), self.store.path)
        monomials = monomials_of(self.network)
        facts = {
            "step": self.step,
            "selected": self.selected,
            "head": self.card.head,
            "monomials": None if monomials is None else asdict(monomials),
            "best": self.best,
            "log_lines": self.store.count_log_lines(),
            "seconds": self.seconds,
        }
        return Checkpoint(tensors, facts)

    def load_state_dict(self, checkpoint: Checkpoint) -> None:
        """Put the run where it was when `state_dict` returned the checkpoint."""
        facts, tensors = checkpoint.facts, checkpoint.tensors
        stored = facts["monomials"]
        self.build(facts["head"], None if stored is None else Monomials.from_dict(stored))
        self.network.load_state_dict(checkpoint.part("network."))
        if self.average is not None:
            self.average.network.load_state_dict(checkpoint.part("average."))
        load_optimizer(self.network, self.optimizer, checkpoint.part("optimizer."))
        self.meter.sums.copy_(tensors["meter"])
        torch.set_rng_state(tensors["random.cpu"])
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        if "random.mps" in tensors and self.device.type == "mps":
            torch.mps.set_rng_state(tensors["random.mps"])
        self.step, self.selected, self.best = facts["step"], facts["selected"], facts["best"]
        self.seconds_before = facts["seconds"]

    def resume(self) -> None:
        """Load the last checkpoint that is whole, if there is one."""
        checkpoint, problems = self.store.latest_checkpoint()
        for path, problem in problems.items():
            self.callback.on_note(f"{problem}; resuming from the checkpoint before it")
            if self.processes.is_main:
                path.replace(path.with_name(f"damaged-{path.name}"))
        if self.processes.is_main:
            self.store.cut_log(0 if checkpoint is None else checkpoint.facts["log_lines"])
        if checkpoint is not None:
            self.load_state_dict(checkpoint)

    # Result

    def finish(self) -> dict[str, Any]:
        """Evaluate the network on the test images and write everything down."""
        network = self.evaluated()
        self.store.write_model(network_bytes(network, self.card_of(network)))
        logits, labels = self.test_logits(network)
        self.store.write_predictions(logits, labels)
        dataset = self.data.dataset
        result: dict[str, Any] = {
            "format": FORMAT_VERSION,
            "invint": __version__,
            "recipe": self.recipe.name,
            "hash": self.recipe.hash,
            "seed": self.seed,
            **scores_of(logits, labels).to_dict(dataset.class_names),
            "parameters": sum(each.numel() for each in network.parameters()),
            "steps": self.schedule.steps,
            "scale": self.recipe.train.scale,
            "train_images": len(self.data.train_indices),
            "test_images": len(labels),
            "data": {
                "name": dataset.name,
                "note": dataset.note,
                "fingerprint": dataset.fingerprint,
                "subset": self.data.describe(self.seed)["hash"],
            },
        }
        turns = self.recipe.data.test_turns
        if turns > 1:
            averaged = self.test_logits(network, turns=turns)
            result |= {"averaged_error": scores_of(*averaged).error, "averaged_over": turns}
        if self.best is not None:
            best, _ = load_network(self.store.path / BEST)
            error = scores_of(*self.test_logits(best.to(self.device))).error
            result["best"] = {**self.best, "error": error}
            result["validation_error"] = self.validate()
        result["seconds"] = round(self.seconds, 3)
        self.store.complete(result)
        return result

    def test_logits(self, network: nn.Module, *, turns: int = 1) -> tuple[Tensor, Tensor]:
        """Return logits and labels of the test images, averaged over rotated copies."""
        black = [-mean / std for mean, std in zip(self.data.mean, self.data.std, strict=True)]
        background = torch.tensor(black, device=self.device)[:, None, None]
        return logits_of(
            fold(network),
            self.in_order(self.data.dataset.test),
            autocast=self.execution.autocast,
            turns=turns,
            background=background,
        )


def monomials_of(network: nn.Module) -> Monomials | None:
    """Return the monomials as they are now, where a network has some."""
    for module in network.modules():
        if isinstance(module, MonomialIntegration):
            return module.monomials
    return None


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full disk, exhausted memory and the like into one line that says what to do."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped at once; the same command resumes from the last checkpoint ({folder})"
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{folder}: the disk is full; the last checkpoint is kept: make room and run the "
                "same command again"
            ) from error
        raise RunError(f"{folder}: {error}; the last checkpoint is kept") from error
    except (MemoryError, RuntimeError) as error:  # torch raises either, also on the CPU
        gpu = isinstance(error, torch.OutOfMemoryError)
        told = any(text in str(error) for text in ("not enough memory", "allocate memory"))
        if not (gpu or told or isinstance(error, MemoryError)):
            raise
        raise RunError(
            f"{folder}: the step needs more memory than {'the GPU' if gpu else 'this machine'} "
            "has; the last checkpoint is kept: use --set train.accumulate=2 (or more), which "
            "starts a run of its own, or free memory"
        ) from error


def check_finite(loss: float, epoch: float, folder: Path) -> None:
    """Raise `RunError` if the loss is NaN or infinite."""
    if not math.isfinite(loss):
        raise RunError(
            f"{folder}: the loss is {loss} in epoch {epoch:.4g}; the last good checkpoint is "
            "kept; try a smaller learning rate, for instance --set train.lr=1e-4"
        )
