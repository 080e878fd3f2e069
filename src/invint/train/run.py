"""What can go wrong in a run, in one line each, and how it is stopped in good order."""

import errno
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import save as serialised
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from invint.data.batches import Batches, test_batches
from invint.data.dataset import Split
from invint.errors import Interrupted, RunError
from invint.export import ModelCard, load_network, network_bytes
from invint.files import write_atomically
from invint.models.fold import fold
from invint.models.networks import Network
from invint.nn import MonomialIntegration, Monomials
from invint.recipes.recipe import Recipe
from invint.recipes.schedule import Pace, learning_rate
from invint.train.callbacks import Callback
from invint.train.device import Execution, ProcessGroup, process_group, synchronize
from invint.train.evaluate import Scores, logits_of, scores_of
from invint.train.loop import Batch, Meter, Objective, channels_last, fit, make_optimizer
from invint.train.selector import Selector
from invint.train.setup import Images, make_card, mixed
from invint.train.store import (
    FORMAT_VERSION,
    Checkpoint,
    RunFolder,
    latest_checkpoint,
    load_optimizer,
    optimizer_tensors,
)
from invint.version import __version__


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a full disk, exhausted memory and the like into one line that says what to do."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped at once; the same command goes on from the last checkpoint ({folder})"
        ) from error
    except torch.OutOfMemoryError as error:
        raise _no_memory(folder, "the GPU has") from error
    except MemoryError as error:
        raise _no_memory(folder, "this machine has") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{folder}: the disk is full; the last checkpoint is kept: make room and run the "
                "same command again"
            ) from error
        raise RunError(f"{folder}: {error}; the last checkpoint is kept") from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "allocate memory" in str(error):
            raise _no_memory(folder, "this machine has") from error
        raise


def _no_memory(folder: Path, owner: str) -> RunError:
    return RunError(
        f"{folder}: the step needs more memory than {owner}; the last checkpoint is kept: go on "
        "with --set train.accumulate=2 (or more), which starts a run of its own, or free memory"
    )


def check_finite(loss: float, epoch: float, folder: Path) -> None:
    """Raise `RunError` if the loss is no number any more."""
    if loss != loss or loss in (float("inf"), float("-inf")):
        raise RunError(
            f"{folder}: the loss is {loss} in epoch {epoch:.4g}; the last good checkpoint is "
            "kept; try a smaller learning rate, for instance --set train.lr=1e-4"
        )


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM ask for a stop; the same one again stops at once."""
    asked, seen = threading.Event(), set[int]()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if number in seen:  # torchrun sends a SIGTERM of its own after a Ctrl-C
            raise KeyboardInterrupt
        seen.add(number)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe_recipe(folder: RunFolder, recipe: Recipe, seed: int) -> None:
    """Write the recipe of a run, unless an earlier start did."""
    written = folder.read("recipe.json")
    if written is None:
        about = {"format": FORMAT_VERSION, "name": recipe.name, "about": recipe.about}
        about |= {"choices": recipe.choices, "source": recipe.source}
        folder.write("recipe.json", about | {"hash": recipe.hash, "seed": seed})
    elif written.get("format") != FORMAT_VERSION:
        raise RunError(
            f"{folder.path}: format {written.get('format')}, this invint reads "
            f"{FORMAT_VERSION}; go on with the version that wrote it"
        )


def describe_images(folder: RunFolder, images: Images, seed: int) -> None:
    """Write which images are trained on, or refuse others than those of an earlier start."""
    chosen, before = images.describe(seed), folder.read("subset.json")
    if before is None:
        folder.write("subset.json", chosen, indent=None)
    elif before != chosen:
        raise RunError(
            f"{folder.path}: the data set has changed since the run began; put it back, "
            "or remove the folder to begin anew"
        )


def describe_environment(folder: RunFolder, execution: Execution, callback: Callback) -> None:
    """Write with what a run begins, or say what has changed since it did."""
    begun, now = folder.read("environment.json"), execution.environment()
    if begun is None:
        folder.write("environment.json", now)
        return
    for key in ("invint", "torch", "machine", "processes"):
        if begun.get(key) != now[key]:
            callback.on_note(
                f"the run began with {key} {begun.get(key)} and goes on with {now[key]}: "
                "the last bits may differ"
            )


def save(run: "Run") -> None:
    """Write a checkpoint of a run, unless its numbers are none any more."""
    tensors = {f"network.{k}": v for k, v in run.network.state_dict().items()}
    moments = optimizer_tensors(run.network, run.optimizer)
    tensors |= {f"optimizer.{name}": value for name, value in moments.items()}
    tensors |= {"meter": run.meter.sums, "random.cpu": torch.get_rng_state()}
    if run.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(run.device)
    if not all(each.isfinite().all() for each in tensors.values()):
        check_finite(float("nan"), run.pace.epoch_at(run.step), run.folder.path)
    monomials = run.monomials
    facts = {
        "step": run.step,
        "selected": run.selected,
        "head": run.card.head,
        "monomials": None if monomials is None else asdict(monomials),
        "best": run.best,
        "log_lines": len(run.folder.log_lines()),
        "seconds": run.seconds,
    }
    Checkpoint(tensors, facts).write(run.folder.path)


def restore(run: "Run") -> None:
    """Take a run back to its last checkpoint that is whole, or to the start."""
    checkpoint, problems = latest_checkpoint(run.folder.path)
    for path, problem in problems.items():
        run.callback.on_note(f"{problem}; going on from what was saved before it")
        if run.processes.is_main:
            path.replace(path.with_name(f"damaged-{path.name}"))
    if run.processes.is_main:
        run.folder.cut_log(0 if checkpoint is None else checkpoint.facts["log_lines"])
    if checkpoint is None:
        return
    facts = checkpoint.facts
    stored = facts["monomials"]
    run.build(facts["head"], None if stored is None else Monomials.from_dict(stored))
    run.network.load_state_dict(checkpoint.part("network."))
    load_optimizer(run.network, run.optimizer, checkpoint.part("optimizer."))
    run.meter.sums.copy_(checkpoint.tensors["meter"])
    torch.set_rng_state(checkpoint.tensors["random.cpu"])
    if "random.cuda" in checkpoint.tensors and run.device.type == "cuda":
        torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], run.device)
    run.step, run.selected, run.best = facts["step"], facts["selected"], facts["best"]
    run.seconds_before = facts["seconds"]


def finish(run: "Run") -> dict[str, Any]:
    """Evaluate the last weights on the test images and write everything down."""
    path = run.folder.path
    write_atomically(path / "model.safetensors", network_bytes(run.network, run.current_card))
    logits, labels = test_logits(run, run.network, turns=1)
    write_atomically(
        path / "predictions.safetensors", serialised({"logits": logits, "labels": labels})
    )
    dataset, scores = run.images.dataset, scores_of(logits, labels)
    result: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "invint": __version__,
        "recipe": run.recipe.name,
        "hash": run.recipe.hash,
        "seed": run.seed,
        **describe(scores, dataset.class_names),
        "parameters": sum(each.numel() for each in run.network.parameters()),
        "steps": run.pace.steps,
        "scale": run.recipe.train.scale,
        "train_images": len(run.images.chosen),
        "test_images": len(labels),
        "data": {
            "name": dataset.name,
            "note": dataset.note,
            "fingerprint": dataset.fingerprint,
            "subset": run.images.describe(run.seed)["hash"],
        },
    }
    turns = run.recipe.data.test_turns
    if turns > 1:
        result["averaged_error"] = scores_of(*test_logits(run, run.network, turns=turns)).error
        result["averaged_over"] = turns
    if run.best is not None:
        result["best"] = {**run.best, "error": best_error(run)}
        result["validation_error"] = run.validate()
    result["seconds"] = round(run.seconds, 3)
    for name in ("previous.safetensors", "next.safetensors"):
        (path / name).unlink(missing_ok=True)
    run.folder.write("result.json", result)
    return result


def describe(scores: Scores, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return scores as plain data; a class without images has no error."""
    rows = zip(class_names, scores.images, scores.per_class, strict=True)
    return {
        "error": scores.error,
        "cross_entropy": scores.cross_entropy,
        "per_class": [
            {"name": name, "images": images, "error": error if images else None}
            for name, images, error in rows
        ],
    }


def test_logits(run: "Run", network: nn.Module, *, turns: int) -> tuple[Tensor, Tensor]:
    """Return logits and labels of the test images."""
    black = [-mean / std for mean, std in zip(run.images.mean, run.images.std, strict=True)]
    background = torch.tensor(black, device=run.device)[:, None, None]
    return logits_of(
        fold(network),
        run.in_order(run.images.dataset.test),
        autocast=run.execution.autocast,
        turns=turns,
        background=background,
    )


def best_error(run: "Run") -> float:
    """Return the test error of the weights that validation liked best."""
    network, _ = load_network(run.folder.path / "best.safetensors")
    return scores_of(*test_logits(run, network.to(run.device), turns=1)).error


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
        processes: ProcessGroup,
    ) -> None:
        self.recipe, self.seed, self.folder, self.images = recipe, seed, folder, images
        self.execution, self.processes = execution, processes
        self.device = execution.torch_device
        self.step, self.selected = 0, 0
        self.best: dict[str, float] | None = None
        self.meter = Meter(self.device)
        self.began, self.seconds_before = time.monotonic(), 0.0
        self.saved_at = time.monotonic()
        self.callback = Callback()
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
            self.processes.wrap(self.network, self.device),
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

    def complete(self, callback: Callback) -> None:
        """Begin or go on, train to the end, and write the result."""
        self.callback = callback
        if self.processes.is_main:
            describe_recipe(self.folder, self.recipe, self.seed)
            describe_images(self.folder, self.images, self.seed)
            describe_environment(self.folder, self.execution, callback)
        restore(self)
        self.processes.barrier()
        callback.on_start(self.folder.path, self.step, self.pace.steps)
        with stop_on_signal() as asked:
            for start, stop in self.segments():
                self.train(start, stop, asked)
        if self.processes.is_main:
            callback.on_finish(finish(self))
        self.processes.barrier()

    def save(self) -> None:
        """Write a checkpoint; of several processes one does."""
        self.saved_at = time.monotonic()
        if self.processes.is_main:
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
        halt = self.processes.any(asked())
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
        self.callback.on_step(step)
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
            if self.processes.is_main:
                self.folder.log(entry)
                self.callback.on_log(entry)

    def training_images(self) -> Iterator[Batch]:
        """Return the images trained on, once and as they are, no batch with one alone."""
        chosen = self.images.chosen
        sizes = (size for size in range(EVALUATION_BATCH, 1, -1) if len(chosen) % size != 1)
        size = next(sizes, EVALUATION_BATCH)  # a single image has no variance to be divided by
        return self.in_order(self.images.dataset.train, chosen, batch_size=size)

    def record(self) -> None:
        """Log the epoch that is over, and keep the weights if validation likes them best."""
        self.processes.sum_over_processes(self.meter.sums)
        entry: dict[str, Any] = {"epoch": round(self.pace.epoch_at(self.step), 6)}
        entry |= {"step": self.step, **self.meter.read(), "lr": self.rate(self.step - 1)}
        check_finite(entry["loss"], entry["epoch"], self.folder.path)
        if not self.processes.is_main:
            return
        if self.images.validation is not None:
            entry["validation_error"] = self.validate()
        entry["seconds"] = round(self.seconds, 3)
        self.folder.log(entry)
        self.callback.on_log(entry)

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
            write_atomically(best, network_bytes(self.network, self.current_card))
        return error

    def in_order(
        self, part: Split, chosen: Tensor | None = None, *, batch_size: int = EVALUATION_BATCH
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


def train_run(
    recipe: Recipe,
    *,
    seed: int = 0,
    runs: Path = Path("runs"),
    data_dir: Path | None = None,
    execution: Execution | None = None,
    callback: Callback | None = None,
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
        callback: Receives progress.
    """
    folder, callback = RunFolder.of(runs, recipe, seed), callback or Callback()
    result = folder.result
    if result is not None:
        callback.on_note(f"{folder.path} is complete; nothing to do")
        callback.on_finish(result)
        return folder.path
    execution = execution or Execution()
    begun = folder.read("environment.json")
    execution = execution.as_begun(begun, folder.path) if begun else execution.decided()
    with ExitStack() as stack:
        stack.callback(callback.on_end)
        stack.enter_context(explained(folder.path))
        stack.enter_context(execution.applied())
        processes = stack.enter_context(process_group(execution.torch_device))
        if processes.is_main:
            stack.enter_context(folder.locked())
        images = Images.of(recipe, seed, data_dir, progress=callback.on_decode)
        run = Run(recipe, seed, folder, images, execution, processes)
        run.complete(callback)
    return folder.path
