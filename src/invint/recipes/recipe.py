"""What a recipe is: every choice of a run, as plain frozen data."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from invint.errors import ConfigError
from invint.recipes.schedule import Schedule

RANGES: dict[str, tuple[float, float]] = {  # beyond these no network is trained, only time lost
    "data.validation": (0, 0.99),
    "data.test_turns": (1, 360),
    "model.n_fc": (1, 1e5),
    "model.dropout": (0, 1),
    "model.attention_heads": (1, 1e4),
    "model.attention_dropout": (0, 1),
    "train.epochs": (1e-6, 1e6),
    "train.scale": (1e-6, 1),
    "train.batch_size": (2, 1e6),
    "train.lr": (0, 1e30),  # as large as one likes, but a number in float32
    "train.lr_decay": (0, 1e3),
    "train.momentum": (0, 1),
    "train.weight_decay": (0, 1e3),
    "train.reg": (0, 1e6),
    "train.elastic": (0, 1e6),
    "train.norm_penalty": (0, 1e6),
    "train.accumulate": (1, 1e6),
    "selection.ridge": (0, 1e9),
}


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Which images, and what is done to them.

    Attributes:
        name: A data set of the registry, or `folder:PATH` or `arrays:PATH`; such a path is made
            absolute, so that it is found from anywhere and one folder is one choice.
        augment: Any of `rotate`, `crop`, `flip`, `cutout`, applied in this order.
        size: Number of training images, drawn with the class ratios of the set; all by default.
        validation: Share of the training images held out to choose by; 0 for none.
        test_turns: Predictions on test images are also averaged over this many rotated copies.
        skip_bad: Leave out pictures of `folder:PATH` that cannot be read.
        side: Even side of the squares its pictures are fitted into; chosen by default.
        test_share: Share of the user's own images held out for testing where they have no test
            split; a fifth by default.
    """

    name: str = "digits"
    augment: tuple[str, ...] = ()
    size: int | None = None
    validation: float = 0.0
    test_turns: int = 1
    skip_bad: bool = False
    side: int | None = None
    test_share: float | None = None

    def __post_init__(self) -> None:
        kind, _, path = self.name.partition(":")
        if path and kind in ("folder", "arrays"):
            object.__setattr__(self, "name", f"{kind}:{_absolute(path)}")

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> "DataChoice":
        """Return the data set alone, from the choices of a run."""
        data = choices["data"]
        names = ("name", "skip_bad", "side", "test_share")
        return cls(**{name: data[name] for name in names if name in data})


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which network; what is None is the network's own default.

    Attributes:
        name: A network of the registry.
        head: Head of a steerable network.
        group: Its symmetries, as `C8`.
        n_fc: Width of its hidden dense layers.
        dropout: Share of activations dropped.
        attention_heads: Heads of self-attention.
        attention_dropout: Share of attention dropped.
        widths: Channels of each layer or stage.
    """

    name: str = "sfcnn-small"
    head: str | None = None
    group: str | None = None
    n_fc: int | None = None
    dropout: float | None = None
    attention_heads: int | None = None
    attention_dropout: float | None = None
    widths: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainChoice:
    """How the weights are found. Epochs are nominal: passes over the *full* training set.

    Attributes:
        epochs: Number of nominal epochs.
        batch_size: Images per step, over all processes.
        optimizer: `adam` or `sgd` (Nesterov momentum).
        lr: Learning rate at the start.
        decay: `exponential` lr·d^(t/T), `step` lr·d^⌊t/T⌋, or `milestones`.
        lr_decay: The factor d.
        lr_decay_epochs: T; or the milestones.
        momentum: Of `sgd`.
        weight_decay: Of `sgd`, on all parameters.
        reg: Constant that multiplies the two penalties below.
        elastic: Factor of Σ(|w| + w²) over steerable weights.
        norm_penalty: Factor of Σγ² + Σβ² over batch-norm coefficients.
        class_weights: Weight classes inversely to how often they occur.
        accumulate: Parts a batch is worked through in, to save memory.
        scale: Share of the iterations to run; everything counted in epochs scales with it.
    """

    epochs: int
    batch_size: int
    optimizer: str = "adam"
    lr: float
    decay: str = "exponential"
    lr_decay: float = 1.0
    lr_decay_epochs: tuple[float, ...] = (1.0,)
    momentum: float = 0.9
    weight_decay: float = 0.0
    reg: float = 0.0
    elastic: float = 1e-7
    norm_penalty: float = 0.0
    class_weights: bool = False
    accumulate: int = 1
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SelectionChoice:
    """How monomials are chosen; only for the head `monomials`.

    Attributes:
        method: `none`, `magnitude`, `connectivity` or `lse`.
        initial: `random`, or `catalog` (every combination of distances).
        start: Number of monomials before selection, M.
        steps: Pairs (nominal epoch, monomials kept from then on); epoch 0 is at initialisation.
        pretrain: Nominal epochs without integration before `lse` selects.
        candidates: Exchanges `lse` tries at most.
        patience: Rejected exchanges in a row after which `lse` stops.
        ridge: Strength of the ridge penalty of `lse`.
    """

    method: str = "none"
    initial: str = "random"
    start: int = 5
    steps: tuple[tuple[float, int], ...] = ()
    pretrain: float = 0.0
    candidates: int = 1000
    patience: int = 100
    ridge: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides the outcome of a run, but its seed.

    Attributes:
        name: `set/variant`.
        about: One line for the list of recipes.
        source: Where each number comes from, by its path (`train.lr`).
    """

    name: str
    about: str = ""
    data: DataChoice = DataChoice()
    model: ModelChoice = ModelChoice()
    train: TrainChoice
    selection: SelectionChoice = SelectionChoice()
    source: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.selection.method != "none" and self.model.head != "monomials":
            raise ConfigError(
                f"{self.name}: selection {self.selection.method!r} needs the head 'monomials', "
                f"got {self.model.head!r}"
            )
        for path, (least, most) in RANGES.items():
            part, _, key = path.partition(".")
            number = getattr(getattr(self, part), key)
            if number is not None and not least <= number <= most:  # NaN must fail
                raise ConfigError(
                    f"{self.name}: {path} must be from {least:,g} to {most:,g}, got {number:g}"
                )
        parts, images = self.train.accumulate, self.train.batch_size
        if parts > 1 and 2 * parts > images:
            raise ConfigError(
                f"{self.name}: train.accumulate must leave two images or more in each part of a "
                f"batch of {images}, got {parts} parts; choose at most {max(1, images // 2)}"
            )

    @property
    def choices(self) -> dict[str, object]:
        """The parts that decide the outcome, as plain data."""
        return {key: asdict(getattr(self, key)) for key in ("data", "model", "train", "selection")}

    @property
    def hash(self) -> str:
        """Twelve characters that differ whenever a choice does."""
        text = json.dumps(_floats(self.choices), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def schedule(self, images: int) -> Schedule:
        """Return the clock of a run, where the full training set has so many images."""
        return Schedule(
            images=images,
            batch_size=self.train.batch_size,
            epochs=self.train.epochs + self.selection.pretrain,
            scale=self.train.scale,
        )


def _absolute(path: str) -> str:
    """Return a path that means the same from anywhere; a link to a file stays, as it has a name."""
    place = Path(os.path.expanduser(path))  # noqa: PTH111 - it leaves alone what it does not know
    folder = Path(os.path.realpath(place))
    return str(folder if folder.is_dir() else Path(os.path.realpath(place.parent), place.name))


def _floats(value: object) -> object:
    """Return whole numbers as floats, so that 20 and 20.0 are one choice."""
    if isinstance(value, dict):
        return {key: _floats(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_floats(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
