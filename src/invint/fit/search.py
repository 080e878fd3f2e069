"""What is done with the time: candidate after candidate, cheapest first, each judged and kept."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from invint.data.dataset import Dataset, Split, subset
from invint.files import write_atomically
from invint.fit.answers import (
    MOVED,
    Answer,
    Linear,
    chosen,
    fill,
    judged_by_holdout,
    read_answer,
    tested_on_held_out,
    write_fitted,
)
from invint.fit.candidates import (
    GRADIENTS,
    GRADIENTS_SIDE,
    MIRRORED,
    ORBIT,
    PASSES,
    PLAIN,
    POSED,
    STEERABLE,
    TUNED,
    UPRIGHT,
    Candidate,
    backbone_sides,
    frozen_recipe,
    gradients_recipe,
    scratch_recipe,
    scratch_sides,
    tuned_recipe,
    whole_steps,
)
from invint.fit.features import MIRRORED as EIGHT
from invint.fit.features import TURNS, FrozenFeatures
from invint.fit.linear import Fold, Judgement, cross_validation, excess, fit_linear, judge
from invint.fit.schedule import Budget, Stage
from invint.models import create_model
from invint.models.gradients import OrientedGradients
from invint.models.orbits import SignedRoot
from invint.recipes import Recipe
from invint.study.records import read_run
from invint.train import Callback, Callbacks, Execution, train_run
from invint.train.evaluate import temperature_of
from invint.train.run import Begin
from invint.train.setup import RunData, load_data
from invint.train.store import RunStore
from invint.train.timing import random_data, seconds_per_step

if TYPE_CHECKING:
    from invint.fit.folder import FitConfig

LOOKED = 500  # pictures that the size is chosen by
JUDGED = 3000  # pictures that a candidate is judged by
HELD_OUT = 0.2  # of the pictures, where networks from scratch are judged
POSES = 10  # times as long as averages, to cross-validate what tells turned copies apart
MEASURED = 0.2  # seconds of steps
FEWEST = 30  # steps of a network from scratch that is all there can be
WORTH = 28  # side of pictures, at least, of networks that a pretrained one is compared with
SETTLED = 8  # passes over the pictures that train a pretrained network well enough
SHARE = 0.8  # of the time left, for training all of a pretrained network, twice
EVALUATION = 40  # steps that take as long as testing a network
ELEMENTS = dict.fromkeys((ORBIT, POSED, GRADIENTS), TURNS) | {UPRIGHT: TURNS[:1], MIRRORED: EIGHT}
BY_POSE = (POSED, GRADIENTS)  # tell turned copies from the upright one


class Watch(Callback):
    """Looks at the time at every step of a training."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def on_step(self, step: int) -> None:  # noqa: ARG002
        """Stop where the promise could not be kept."""
        self.budget.check()


@dataclass
class Search:
    """Everything that is tried on a folder of pictures.

    Args:
        config: Which pictures, how split.
        out: Folder for what is kept.
        native: The longer side that most pictures have.
        channels: Of the pictures.
        budget: The time.
        callback: Receives progress.
        backbone: Name of the pretrained network, if there is one.

    Attributes:
        answers: What came out, cheapest first.
        held: What held-out pictures say of networks that were trained without them.
        looks: What some pictures say of a side.
        datasets: The pictures by side.
        computed: Kinds, sides and turns of which all features are there.
        solving: Seconds that a cross-validation took.
        seconds_to_decode: Of all pictures.
        on_answer: Called when there is another answer.
    """

    config: "FitConfig"
    out: Path
    native: int
    channels: int
    budget: Budget
    callback: Callback
    backbone: str | None
    answers: list[Answer] = field(default_factory=list)
    held: dict[str, Judgement] = field(default_factory=dict)
    looks: dict[int, Judgement] = field(default_factory=dict)
    datasets: dict[int, Dataset] = field(default_factory=dict)
    computed: set[tuple[str, int, int]] = field(default_factory=set)
    solving: float = 0.0
    seconds_to_decode: float = 0.0
    on_answer: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        with suppress(OSError, ValueError, TypeError):  # what is not known is computed again
            self.computed = {
                (kind, side, turn) for kind, side, turn in json.loads(self._note.read_text())
            }

    # The pictures

    def dataset(self, side: int) -> Dataset:
        """Return the pictures at a side; decoded once, mapped from disk."""
        if side not in self.datasets:
            self.datasets[side] = load_data(
                self.config.data(side), None, progress=self.callback.on_decode
            )
        return self.datasets[side]

    @cached_property
    def first_side(self) -> int:
        """The side that the pictures are looked at first."""
        if self.config.side is not None:
            return self.config.side
        return backbone_sides(self.native)[0] if self.backbone else scratch_sides(self.native)[-1]

    @cached_property
    def first(self) -> Dataset:
        """The pictures at the first side: what says which picture is of which class."""
        return self.dataset(self.first_side)

    @cached_property
    def folds(self) -> list[Fold]:
        """How the training part is divided to judge by: by the folder's own validation, if any."""
        train, own = self.first.train, self.first.validation
        if own is not None:
            return [(torch.arange(len(train)), torch.arange(len(own)) + len(train))]
        rows = self.rows(JUDGED)
        return [(rows[kept], rows[held]) for kept, held in self.folds_of(rows)]

    def check_classes(self) -> None:
        """Raise `DataError` if a class is too small to be on both sides of a fold."""
        _ = self.folds

    def folds_of(self, rows: Tensor) -> list[Fold]:
        """Return folds of some training pictures, as places among them."""
        some = self.first.train[rows]
        return cross_validation(
            some.labels, some.groups, self.first.class_names, seed=self.config.seed
        )

    def rows(self, most: int) -> Tensor:
        """Return the indices of so many training pictures at most, with the ratios of all."""
        train = self.first.train
        if len(train) <= most:
            return torch.arange(len(train))
        return subset(
            train.labels, most, self.config.seed, name=self.first.name, groups=train.groups
        )

    @property
    def best(self) -> Answer | None:
        """The answer chosen so far."""
        return chosen(self.answers)

    # What is done

    def stages(self) -> Iterator[Stage]:
        """Yield what may be done, cheapest first; what comes later depends on what came out."""
        if self.backbone:
            yield from self._pretrained()
            yield from self._tuned()
        else:
            yield self._gradients_stage(needed=True)
        yield from self._from_scratch()

    def _pretrained(self) -> Iterator[Stage]:
        sides = [self.config.side] if self.config.side else backbone_sides(self.native)
        yield self._frozen_stage(ORBIT, sides[0], needed=True)
        best = sides[0]
        for side in sides if len(sides) > 1 else ():
            yield Stage(
                f"pictures of {side} x {side} pixels",
                partial(self._seconds_to_look, side),
                partial(self._look, side),
            )
            if side not in self.looks:
                break
            if self.looks[side].loss > self.looks[best].loss:
                break  # larger ones take longer, and have stopped helping
            best = side
        if best != sides[0]:
            yield self._frozen_stage(ORBIT, best)
        best = self.side_of(ORBIT)
        yield self._frozen_stage(UPRIGHT, best)
        yield self._gradients_stage()
        yield self._frozen_stage(POSED, best)
        yield self._frozen_stage(MIRRORED, best)

    def _gradients_stage(self, *, needed: bool = False) -> Stage:
        side = self.config.side or GRADIENTS_SIDE
        return self._frozen_stage(GRADIENTS, side, needed=needed)

    def side_of(self, candidate: Candidate) -> int:
        """Return the side of the latest answer of a candidate."""
        return next(each.side for each in reversed(self.answers) if each.candidate == candidate)

    # Pretrained networks

    @cached_property
    def features(self) -> FrozenFeatures:
        """The pretrained network as it comes, with what it has seen so far."""
        recipe = self._recipe(UPRIGHT, self.first_side)
        network = create_model(
            recipe.model.name,
            group=recipe.model.group,
            in_channels=self.channels,
            image_size=self.first_side,
            depths=recipe.model.depths,
            pretrained=True,
        )
        return self._features_by(network.features.backbone)  # type: ignore[arg-type]

    @cached_property
    def gradients(self) -> FrozenFeatures:
        """Oriented gradients, with what they have seen so far."""
        return self._features_by(OrientedGradients(flat=True))

    def _features_by(self, backbone: nn.Module) -> FrozenFeatures:
        return FrozenFeatures(
            backbone,
            self.out / "features",
            self.first.fingerprint,
            device=Execution().decided().torch_device,
            check=self.budget.check,
            progress=Bar(self.callback, self.out),
        )

    def _by(self, candidate: Candidate) -> FrozenFeatures:
        return self.gradients if candidate is GRADIENTS else self.features

    @property
    def _note(self) -> Path:
        """File that says which features are there, for who goes on."""
        return self.out / "features" / "computed.json"

    def _recipe(self, candidate: Candidate, side: int) -> Recipe:
        if candidate is GRADIENTS:
            return gradients_recipe(self.config.data(side))
        return frozen_recipe(candidate, self.config.data(side), str(self.backbone))

    def _look(self, side: int) -> None:
        """Judge a side by some pictures as they are."""
        rows, train = self.rows(LOOKED), self.dataset(side).train
        self.callback.on_note(f"which size: {len(rows):,} pictures at {side} x {side} pixels")
        features = SignedRoot()(self.features.of("train", train, TURNS[:1], rows))
        labels = train.labels[rows]
        classes = len(self.first.class_names)
        self.looks[side] = judge(features, labels, self.folds_of(rows), classes)

    def _seconds_to_look(self, side: int) -> float:
        return self._seconds(side, len(self.rows(LOOKED)))

    def _seconds(self, side: int, copies: float, candidate: Candidate = ORBIT) -> float:
        each = self._by(candidate).seconds(self.channels, side)
        return each * copies + self._decoding(side)

    def _missing(self, candidate: Candidate, side: int) -> set[tuple[str, int, int]]:
        """Return of which kind, side and turns features are to be computed."""
        kind = "gradients" if candidate is GRADIENTS else "pretrained"
        return {(kind, side, turn) for turn in ELEMENTS[candidate]} - self.computed

    def _decoding(self, side: int) -> float:
        """Return the time to decode all pictures at a side: as long as the first time, or none."""
        return 0.0 if side in self.datasets else self.seconds_to_decode

    def _frozen_stage(self, candidate: Candidate, side: int, *, needed: bool = False) -> Stage:
        images = sum(map(len, self.parts(self.first).values()))

        def seconds() -> float:
            copies = images * len(self._missing(candidate, side))
            solving = self.solving * (POSES if candidate in BY_POSE else 1)
            if not copies:
                return solving
            return solving + self._seconds(side, copies, candidate)

        return Stage(
            f"{candidate.title}, {side} x {side} pixels",
            seconds,
            partial(self._frozen, candidate, side),
            needed=needed,
        )

    def parts(self, dataset: Dataset) -> dict[str, Split]:
        """Return the splits that there are, by name."""
        found = {"train": dataset.train, "test": dataset.test}
        if dataset.validation is not None:
            found["validation"] = dataset.validation
        return found

    def _frozen(self, candidate: Candidate, side: int) -> None:
        """Fit a classifier on frozen features, judge it, and write its run."""
        self.callback.on_note(f"{candidate.title} ({candidate.name}), {side} x {side} pixels")
        dataset = self.dataset(side)
        found = {
            name: self._described(candidate, name, split)
            for name, split in self.parts(dataset).items()
        }
        self.computed |= self._missing(candidate, side)
        write_atomically(self._note, json.dumps(sorted(self.computed)))
        features = torch.cat([found[name] for name in ("train", "validation") if name in found])
        labels, classes = self.labels, len(dataset.class_names)
        began = self.budget.clock()
        judgement = judge(features, labels, self.folds, classes)
        if candidate is ORBIT:
            self.solving = self.budget.clock() - began
        self.budget.check()  # solving takes a while, and hears nothing
        learnt = torch.arange(len(dataset.train))
        weight, bias = fit_linear(
            features[learnt], labels[learnt], strength=judgement.strength or 1.0, classes=classes
        )
        heat = 1.0 if candidate in BY_POSE else temperature_of(judgement.logits, judgement.labels)
        last = Linear(weight / heat, bias / heat)
        recipe, runs = self._recipe(candidate, side), self.out / "runs"
        run = write_fitted(recipe, self.config.seed, runs, dataset, last, last(found["test"]))
        quarters = None
        if candidate is UPRIGHT:
            turned = [self.features.of("test", dataset.test, [turn]) for turn in TURNS]
            quarters = torch.stack([last(SignedRoot()(each)) for each in turned])
        self.add(read_answer(run, judgement, dataset, quarters))

    def _described(self, candidate: Candidate, name: str, split: Split) -> Tensor:
        """Return the features of pictures, or of each of their turned copies."""
        by = self._by(candidate)
        if candidate in BY_POSE:
            copies = [by.of(name, split, [turn]) for turn in TURNS]
            features = torch.stack(copies, dim=1)
        else:
            features = by.of(name, split, ELEMENTS[candidate])
        rooted: Tensor = features if candidate is GRADIENTS else SignedRoot()(features)
        return rooted

    @cached_property
    def labels(self) -> Tensor:
        """The classes of all pictures that may be learnt from or chosen by."""
        own = self.first.validation
        both = [self.first.train, *([] if own is None else [own])]
        return torch.cat([split.labels for split in both])

    def add(self, answer: Answer) -> None:
        """Keep an answer, in the place of one of the same candidate that is worse."""
        same = [each for each in self.answers if each.candidate == answer.candidate]
        old, new = (each.judgement for each in (same[0] if same else answer, answer))
        if same and old is not None and new is not None and new.loss > old.loss:
            return
        self.answers = [each for each in self.answers if each not in same] + [answer]
        self.on_answer()

    # All of the pretrained network

    def _tuned(self) -> Iterator[Stage]:
        """Yield a training to judge by, and that on all pictures unless it is hopeless."""
        side, passes, seconds, asking = self._affordable_tuning()
        trial, run = (self._tuned_store(place, side, passes) for place in ("trials", "runs"))
        yield Stage(
            f"{TUNED.title}, {side} x {side} pixels",
            lambda: 0.0 if trial.is_complete else 2 * (seconds * passes + asking),
            partial(self._judge_tuned, side, passes),
        )
        if TUNED.name in self.held and not self._is_hopeless(self.held[TUNED.name]):
            yield Stage(
                f"{TUNED.title}, all pictures",
                lambda: 0.0 if run.is_complete else read_run(trial.path).seconds + asking,
                partial(self._train_tuned, side, passes),
            )

    def _affordable_tuning(self) -> tuple[int, int, float, float]:
        """Return a side, how often pictures can be seen there, twice, and what `_prices` are.

        It is the side of the frozen network where there is time to see them often enough, otherwise
        a smaller one: what is trained makes more of few pixels than what is not.
        """
        most = self.side_of(ORBIT)
        smaller = [] if self.config.side else reversed(backbone_sides(self.native))
        sides = [most, *(side for side in smaller if side < most)]
        for side, passes in product(sides, PASSES):
            if self._tuned_store("trials", side, passes).path.exists():  # as it was begun
                return side, passes, *self._prices(side)
        for side in sides:
            seconds, asking = self._prices(side)  # once: whatever is chosen by it must fit it too
            affordable = (SHARE * self.budget.left / 2 - asking) / seconds
            passes = next((each for each in PASSES if each <= affordable), PASSES[-1])
            if passes >= SETTLED and passes <= affordable:
                break
        return side, passes, seconds, asking

    def _prices(self, side: int) -> tuple[float, float]:
        """Return the time of training for a pass, and that of asking what came out."""
        images, recipe = len(self.first.train), self._tuned_recipe("runs", side, PASSES[-1])
        steps = recipe.schedule(images).steps / PASSES[-1]
        asked = len(self.first.test) + len(TURNS) * MOVED
        missing = self._missing(ORBIT, side)
        begun = images * len(missing) / 2  # features of the frozen network, for both trainings
        return self._step(recipe, side) * steps, self._seconds(side, len(TURNS) * asked + begun)

    def _tuned_recipe(self, place: str, side: int, passes: int) -> Recipe:
        data = self.config.data(side).replace(validation=HELD_OUT if place == "trials" else 0.0)
        return tuned_recipe(data, str(self.backbone), len(self.first.train), passes)

    def _tuned_store(self, place: str, side: int, passes: int) -> RunStore:
        recipe = self._tuned_recipe(place, side, passes)
        return RunStore.at(self.out / place, recipe, self.config.seed)

    def _judge_tuned(self, side: int, passes: int) -> None:
        """Train without some pictures, from a classifier that never saw them either."""
        self.callback.on_note(f"{TUNED.title} ({TUNED.name}), {side} x {side} pixels")
        self._judge(TUNED, self._tuned_recipe("trials", side, passes), partial(self._begin, side))

    def _train_tuned(self, side: int, passes: int) -> None:
        """Train on all pictures."""
        self.callback.on_note(f"{TUNED.title} ({TUNED.name}), all pictures")
        recipe = self._tuned_recipe("runs", side, passes)
        begin = partial(self._begin, side, torch.arange(len(self.first.train)))
        store = self._trained(recipe, "runs", begin=begin)
        self.add(read_answer(read_run(store.path), self.held[TUNED.name], self.dataset(side)))

    def _begin(self, side: int, rows: Tensor, network: nn.Module) -> None:
        """Let a network begin where the frozen one would end with some of the pictures."""
        train = self.dataset(side).train
        judged = next(each.judgement for each in self.answers if each.candidate == ORBIT)
        weight, bias = fit_linear(
            self._described(ORBIT, "train", train)[rows],
            train.labels[rows],
            strength=(judged and judged.strength) or 1.0,
            classes=len(self.first.class_names),
        )
        fill(network, Linear(weight, bias))

    # Trainings

    def _judge(
        self,
        candidate: Candidate,
        recipe: Recipe,
        begin: Callable[[Tensor, nn.Module], None] | None = None,
    ) -> None:
        """Train without some pictures, and judge by these."""
        data = RunData.of(recipe, self.config.seed, None)
        first = None if begin is None else partial(begin, data.train_indices)
        store = self._trained(recipe, "trials", data=tested_on_held_out(data), begin=first)
        self.held[candidate.name] = judged_by_holdout(store, data)

    def _trained(
        self, recipe: Recipe, place: str, *, data: RunData | None = None, begin: Begin | None = None
    ) -> RunStore:
        watch = Callbacks([self.callback, Watch(self.budget)])
        return train_run(
            recipe,
            seed=self.config.seed,
            runs=self.out / place,
            execution=Execution(compile=False),
            callback=watch,
            data=data,
            begin=begin,
        )

    def _step(self, recipe: Recipe, side: int) -> float:
        """Return the time of a step of a training, by a few on noise."""
        images, classes = recipe.train.batch_size, len(self.first.class_names)
        data = random_data(images, side=side, channels=self.channels, classes=classes)
        return seconds_per_step(recipe, data, Execution(compile=False), enough=MEASURED, warm_up=1)

    # Networks from scratch

    def _from_scratch(self) -> Iterator[Stage]:
        images = len(self.first.train)
        side, steps = self._affordable(images)
        needed = not self.answers
        yield Stage(
            f"{STEERABLE.title}, {side} x {side} pixels",
            lambda: self._training(STEERABLE, side, steps),
            partial(self._judge_scratch, side, steps),
            needed=needed,
        )
        if STEERABLE.name in self.held and not self._is_hopeless(self.held[STEERABLE.name]):
            yield Stage(
                f"{STEERABLE.title}, all pictures",
                lambda: self._training(STEERABLE, side, steps),
                partial(self._train_scratch, STEERABLE, side, steps),
                needed=needed,
            )
        yield Stage(
            f"{PLAIN.title}, {side} x {side} pixels",
            lambda: self._training(PLAIN, side, steps),
            partial(self._train_scratch, PLAIN, side, steps),
        )

    def _is_hopeless(self, judgement: Judgement) -> bool:
        """Whether an answer that is there makes fewer errors, by more than chance."""
        best = self.best
        if best is None or best.judgement is None:
            return False
        more, deviation = excess(judgement, best.judgement)
        return more > deviation

    def _affordable(self, images: int) -> tuple[int, int]:
        """Return the largest side at which half of the time left is enough, and the steps.

        If there is none, the smallest side, and as many steps as there is time for.
        """
        sides = [self.config.side] if self.config.side else scratch_sides(self.native)
        if self.answers:  # worth beating: not with pictures too small to see anything
            sides = [side for side in sides if side >= min(WORTH, sides[0])]
        steps = whole_steps(images)
        share = self.budget.left / (2 if self.answers else 3)
        for side in sides:
            if self._training(STEERABLE, side, steps) <= share:
                return side, steps
        each = self._training(STEERABLE, sides[-1], 1) / (1 + EVALUATION)
        return sides[-1], min(steps, max(FEWEST, int(share / each) - EVALUATION))

    def _training(self, candidate: Candidate, side: int, steps: int) -> float:
        """Return the time of a training, by a few steps of it on noise."""
        images = len(self.first.train)
        recipe = scratch_recipe(candidate, self.config.data(side), images, steps)
        return self._step(recipe, side) * (steps + EVALUATION) + self._decoding(side)

    def _judge_scratch(self, side: int, steps: int) -> None:
        """Train without some pictures, and judge by these."""
        self.callback.on_note(f"{STEERABLE.title} ({STEERABLE.name}), {side} x {side} pixels")
        images = round((1 - HELD_OUT) * len(self.first.train))
        data = self.config.data(side).replace(validation=HELD_OUT)
        self._judge(STEERABLE, scratch_recipe(STEERABLE, data, images, steps))

    def _train_scratch(self, candidate: Candidate, side: int, steps: int) -> None:
        """Train on all pictures."""
        self.callback.on_note(f"{candidate.title} ({candidate.name}), {side} x {side} pixels")
        recipe = scratch_recipe(candidate, self.config.data(side), len(self.first.train), steps)
        run = read_run(self._trained(recipe, "runs").path)
        self.add(read_answer(run, self.held.get(candidate.name), self.dataset(side)))


class Bar:
    """Shows how many pictures are done, as the steps of a run.

    Args:
        callback: Shows it.
        folder: Of what is made.
    """

    def __init__(self, callback: Callback, folder: Path) -> None:
        self.callback, self.folder, self.open = callback, folder, False

    def __call__(self, done: int, total: int) -> None:
        """Move on; the last picture closes the bar."""
        if not self.open and done == total:
            return  # it was there already
        if not self.open:
            self.callback.on_start(self.folder, 0, total)
            self.open = True
        self.callback.on_step(done)
        if done == total:
            self.callback.on_end()
            self.open = False
