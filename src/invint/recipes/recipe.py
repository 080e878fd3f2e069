"""What a recipe is: every choice of a run with its type, range and meaning, as frozen data."""

import hashlib
import json
import os
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from invint.errors import ConfigError, brief, did_you_mean
from invint.recipes.schedule import Decay, Schedule, learning_rate

OWN_CHOICES = (  # fields that say which of the user's own images there are, and how they look
    *("skip_bad", "side", "test_share", "split_seed"),
    *("drop_leaks", "min_per_class", "skip_class"),
)
PRUNING = ("magnitude", "connectivity")  # the methods that drop monomials in steps


@dataclass(frozen=True)
class Since:
    """The first version that has a field.

    A field that 0.1 did not have is left out of a recipe's choices, and with them of its hash, as
    long as it has its default, and a part of nothing else likewise: so a new field leaves the
    folders of all runs where they are.
    """

    version: str


def _listed(value: Any) -> tuple[Any, ...]:
    """Take a JSON list for a tuple, and one value for a list of it."""
    if isinstance(value, list | tuple):
        return tuple(value)
    return () if value == "" else (value,)


def _from_zero(value: Any) -> tuple[Any, ...]:
    """Take one number for all from zero to it."""
    values = _listed(value)
    return (0.0, *values) if len(values) == 1 else values


T = TypeVar("T")
C = TypeVar("C", bound="Choices")
Several = Annotated[tuple[T, ...], BeforeValidator(_listed)]
Reach = Annotated[tuple[float, float], BeforeValidator(_from_zero)]
KeptFrom = Annotated[tuple[float, int], BeforeValidator(_listed)]


class Choices(BaseModel):
    """A group of choices. Everything that is wrong with them is a `ConfigError` of one line."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
    part: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(self._refusal(error.errors()[0], values)) from None

    def replace(self: C, **changes: Any) -> C:
        """Return a checked copy with other values; a mapping says what differs in a part."""
        values = dict(self)
        for name, value in changes.items():
            old = values.get(name)
            if isinstance(old, Choices) and isinstance(value, Mapping):
                value = old.replace(**value)
            values[name] = value
        return type(self)(**values)

    @classmethod
    def _refusal(cls, problem: ErrorDetails, values: Mapping[str, Any]) -> str:
        """Say in one line what pydantic found: what was expected, and what came."""
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError):  # a check of ours, maybe of a part
            return str(cause)
        first, *deeper = problem["loc"]
        name, kind = str(first), "wrong item" if deeper else problem["type"]
        path = f"{cls.part}.{name}" if cls.part else name
        if kind == "extra_forbidden":
            hint = did_you_mean(name, cls.model_fields)
            names = ", ".join(cls.model_fields)
            return f"no value {path!r}; {hint}{cls.part or 'a recipe'} has {names}"
        field = cls.model_fields[name]
        if kind == "missing":
            return f"{path} is missing; expected {_expected(field.annotation)}"
        value = values[name]
        if deeper and "than" in problem["type"]:
            return f"{path} must each be {_worded(problem['ctx'])}, got {value!r}"
        if kind == "literal_error":
            known = get_args(_given(field.annotation))
            hint = did_you_mean(str(value)[:100], known)
            return f"no {name} {brief(value)}; {hint}there are {_all(known)}"
        outside = kind == "finite_number" or "than" in kind
        wanted = _range(field) if outside else _expected(field.annotation)
        return f"{path} must be {wanted}, got {brief(value)}"


class DataChoice(Choices):
    """Which images, and what is done to them."""

    part = "data"

    name: str = "digits"
    """A data set of the registry, or `folder:PATH` or `arrays:PATH`."""
    augment: Several[str] = ()
    """Any of `rotate`, `crop`, `flip`, `cutout`, applied in this order."""
    size: int | None = Field(default=None, ge=1)
    """Number of training images, with the class ratios of the set; all by default."""
    validation: float = Field(default=0.0, ge=0, le=0.99)
    """Fraction of the training images held out to choose by; 0 for none."""
    test_turns: int = Field(default=1, ge=1, le=360)
    """Predictions on test images are also averaged over this many rotated copies."""
    skip_bad: bool = False
    """Leave out pictures of `folder:PATH` that cannot be read."""
    side: int | None = None
    """Even side of the squares its pictures are fitted into; chosen by default."""
    test_share: float | None = Field(default=None, gt=0, lt=1)
    """Fraction of your own images held out for testing if they have no test split."""
    split_seed: Annotated[int, Since("0.2")] = Field(default=0, ge=0)
    """Seed of that test split."""
    drop_leaks: Annotated[bool, Since("0.2")] = False
    """Leave your own training images out that are in the test split too."""
    min_per_class: Annotated[int, Since("0.2")] = Field(default=0, ge=0)
    """Leave out classes of `folder:PATH` with fewer pictures than this."""
    skip_class: Annotated[Several[str], Since("0.2")] = ()
    """Names of classes of `folder:PATH` that are left out."""

    @field_validator("name")
    @classmethod
    def _absolute(cls, name: str) -> str:
        """Make a path absolute: it is found from anywhere, and one folder is one choice."""
        kind, _, path = name.partition(":")
        return f"{kind}:{_absolute(path)}" if path and kind in ("folder", "arrays") else name

    @classmethod
    def of(cls, choices: Mapping[str, Any]) -> "DataChoice":
        """Return the data set alone, from the choices of a run."""
        data = choices["data"]
        return cls(**{name: data[name] for name in ("name", *OWN_CHOICES) if name in data})


class ModelChoice(Choices):
    """Which network; what is None is the network's own default."""

    part = "model"

    name: str = "sfcnn-small"
    """A network of the registry."""
    head: str | None = None
    """Head of a steerable network."""
    group: str | None = None
    """Its symmetries, as `C8`."""
    n_fc: int | None = Field(default=None, ge=1, le=100_000)
    """Width of its hidden dense layers."""
    dropout: float | None = Field(default=None, ge=0, le=1)
    """Fraction of activations dropped."""
    attention_heads: int | None = Field(default=None, ge=1, le=10_000)
    """Heads of self-attention."""
    attention_dropout: float | None = Field(default=None, ge=0, le=1)
    """Fraction of attention weights dropped."""
    widths: Several[Annotated[int, Field(ge=1, le=100_000)]] | None = None
    """Channels of each layer or stage."""
    norm_features: Annotated[bool, Since("0.2")] = False
    """Batch normalisation between the head and the first dense layer."""
    depths: Annotated[int, Since("0.2")] = Field(default=1, ge=1, le=100)
    """Maps with a head each: the last one, and those before the last halvings."""
    group_pool: Annotated[str | None, Since("0.2")] = None
    """What is done along the group before a head that takes plain maps, as `bispectrum`."""
    kernel_size: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=1000)
    """Side of the filters of a wide residual network; odd."""
    kernel_sizes: Annotated[Several[int] | None, Since("0.2")] = None
    """Side of the filters of each layer of an `sfcnn`; odd."""
    pool_after: Annotated[Several[int] | None, Since("0.2")] = None
    """Layers of an `sfcnn`, counted from 1, after which maps are halved."""
    pretrained: Annotated[bool, Since("0.2")] = False
    """Begin with the weights that an extra brings for the network, such as `efficientnet-lite0`."""


class HeadChoice(Choices):
    """The options of the head; each is of those heads that have it, None is their default."""

    part = "head"

    factors: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=100)
    """Factors of each monomial."""
    max_distance: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=10_000)
    """Largest distance of a factor in pixels; below the shorter side of the map."""
    own_angles: Annotated[bool | None, Since("0.2")] = None
    """Give each factor of a monomial its own direction, not one ray to all."""
    places: Annotated[int | None, Since("0.2")] = Field(default=None, ge=0, le=10_000)
    """Places that the factors of joint monomials are drawn from."""
    seed: Annotated[int | None, Since("0.2")] = Field(default=None, ge=0)
    """Seed of these places."""
    exponents: Annotated[Reach | None, Since("0.2")] = None
    """Lowest and highest exponent of a monomial at the start; one number for the highest."""
    floor: Annotated[float | None, Since("0.2")] = Field(default=None, gt=0, le=1e6)
    """Added to each value of a monomial before its logarithm."""
    scale_free: Annotated[bool | None, Since("0.2")] = None
    """Take the values of a monomial relative to the scale of their channel."""
    across: Annotated[bool | None, Since("0.2")] = None
    """Take products of joint monomials across channels, by a learned mixing of them."""
    kernel_size: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=1000)
    """Side of the neighbourhoods or filters of the head in pixels; odd."""
    layers: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=100)
    """Linear layers of a perceptron."""
    head_channels: Annotated[int | None, Since("0.2")] = Field(default=None, ge=1, le=100_000)
    """Channels of each head of self-attention."""
    scaled: Annotated[bool | None, Since("0.2")] = None
    """Divide the scores of self-attention by the root of the channels."""
    power: Annotated[float | None, Since("0.2")] = Field(default=None, gt=1, le=1e4)
    """Power p of a power mean at the start."""
    sharpness: Annotated[float | None, Since("0.2")] = Field(default=None, gt=0, le=1e4)
    """Sharpness β of a mean of exponentials at the start."""

    @model_validator(mode="after")
    def _check_exponents(self) -> "HeadChoice":
        if self.exponents is not None and not 0 <= self.exponents[0] <= self.exponents[1]:
            raise ConfigError(
                "head.exponents must be a range of numbers that are not negative, as in [0, 2], "
                f"got {list(self.exponents)}"
            )
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The options that are not left to the head."""
        return {name: value for name, value in self if value is not None}

    def check_head(self, name: str | None) -> None:
        """Raise `ConfigError` unless a head has all options that are given; none is the maximum."""
        if self.given:
            from invint.nn.heads import check_options  # recipes are listed without torch

            check_options(name or "max", self.given)


class TrainChoice(Choices):
    """How the weights are found. Epochs are nominal: passes over the *full* training set."""

    part = "train"

    epochs: int = Field(ge=1, le=1_000_000)
    """Number of nominal epochs."""
    batch_size: int = Field(ge=2, le=1_000_000)
    """Images per step, over all processes."""
    optimizer: Literal["adam", "sgd", "adamw"] = "adam"
    """`sgd` has Nesterov momentum, `adamw` decoupled weight decay."""
    lr: float = Field(ge=0, le=1e30)  # as large as one likes, but a number in float32
    """Learning rate at the start."""
    decay: Decay = "exponential"
    """`exponential` lr·d^(t/T), `step` lr·d^⌊t/T⌋, `milestones`; `cosine`, `linear` to zero."""
    lr_decay: float = Field(default=1.0, ge=0, le=1000)
    """The factor d of the decay."""
    lr_decay_epochs: Several[float] = (1.0,)
    """The epochs T of the decay; or its milestones."""
    warmup: Annotated[float, Since("0.2")] = Field(default=0.0, ge=0, le=1_000_000)
    """Nominal epochs in which the learning rate rises from zero."""
    momentum: float = Field(default=0.9, ge=0, le=1)
    """Momentum of `sgd`."""
    weight_decay: float = Field(default=0.0, ge=0, le=1000)
    """Weight decay of `sgd` and `adamw`, on all parameters."""
    reg: float = Field(default=0.0, ge=0, le=1e6)
    """Constant that multiplies the next two penalties."""
    elastic: float = Field(default=1e-7, ge=0, le=1e6)
    """Factor of Σ(|w| + w²) over steerable weights."""
    norm_penalty: float = Field(default=0.0, ge=0, le=1e6)
    """Factor of Σγ² + Σβ² over batch-norm coefficients."""
    class_weights: bool = False
    """Weight classes inversely to how often they occur."""
    label_smoothing: Annotated[float, Since("0.2")] = Field(default=0.0, ge=0, lt=1)
    """Fraction of each label that is spread over all classes."""
    clip_norm: Annotated[float, Since("0.2")] = Field(default=0.0, ge=0, le=1e30)
    """Norm that gradients are scaled down to where they are longer; 0 for any length."""
    ema: Annotated[float, Since("0.2")] = Field(default=0.0, ge=0, lt=1)
    """Share of the old in the average of weights that is evaluated, step by step; 0 for none."""
    statistics: Annotated[int, Since("0.2")] = Field(default=0, ge=0, le=1_000_000)
    """Batches that batch-norm statistics are found from anew for evaluation; 0 for running ones."""
    keep_statistics: Annotated[bool, Since("0.2")] = False
    """Normalise by the batch-norm statistics that the network begins with, in training too."""
    one_copy: Annotated[bool, Since("0.2")] = False
    """Show an orbit network one random copy of each image in training, not all of them."""
    accumulate: int = Field(default=1, ge=1, le=1_000_000)
    """Number of parts a batch is worked through in, to save memory."""
    scale: float = Field(default=1.0, ge=1e-6, le=1)
    """Fraction of the steps to run; what is counted in epochs scales with it."""

    @model_validator(mode="after")
    def _check_parts_of_a_batch(self) -> "TrainChoice":
        # Batch normalisation has no variance of a single image.
        if self.accumulate > 1 and 2 * self.accumulate > self.batch_size:
            raise ConfigError(
                "train.accumulate must leave two images or more in each part of a batch of "
                f"{self.batch_size}, got {self.accumulate} parts; choose at most "
                f"{max(1, self.batch_size // 2)}"
            )
        return self

    @model_validator(mode="after")
    def _check_decay(self) -> "TrainChoice":
        self.rate(0.0)  # refuses epochs that decay nothing
        if self.warmup >= self.epochs:
            raise ConfigError(
                f"train.warmup must be shorter than the run of {self.epochs:g} epochs, "
                f"got {self.warmup:g}"
            )
        return self

    @model_validator(mode="after")
    def _check_average(self) -> "TrainChoice":
        # Running statistics are those of the last weights, not of their average.
        if self.ema and not self.statistics:
            raise ConfigError(
                "train.ema evaluates weights that no batch was normalised with; set "
                "train.statistics to the batches to find their statistics from, such as 100"
            )
        return self

    def rate(self, epoch: float, *, length: float | None = None) -> float:
        """Return the learning rate after a number of epochs, of a run of `train.epochs` or more."""
        return learning_rate(
            epoch,
            lr=self.lr,
            decay=self.decay,
            factor=self.lr_decay,
            epochs=self.lr_decay_epochs,
            length=self.epochs if length is None else length,
            warmup=self.warmup,
        )


class SelectionChoice(Choices):
    """How monomials are chosen; only for the head `monomials`."""

    part = "selection"

    method: Literal["none", "magnitude", "connectivity", "lse"] = "none"
    """How monomials are scored; `lse` exchanges them instead."""
    initial: Literal["random", "catalog"] = "random"
    """`catalog` has every combination of distances."""
    start: int = Field(default=5, ge=1, le=100_000)
    """Number of monomials before selection, M."""
    steps: Several[KeptFrom] = ()
    """Pairs (nominal epoch, monomials kept from then on); 0 is at initialisation."""
    pretrain: float = Field(default=0.0, ge=0)
    """Nominal epochs without integration before `lse` selects."""
    candidates: int = Field(default=1000, ge=1)
    """Exchanges `lse` tries at most."""
    patience: int = Field(default=100, ge=1)
    """Rejected exchanges in a row after which `lse` stops."""
    ridge: float = Field(default=1.0, gt=0, le=1e9)
    """Strength of the ridge penalty of `lse`."""
    signed: Annotated[bool, Since("0.2")] = False
    """Keep the sign of the derivatives that are the scores of `connectivity`."""
    statistics: Annotated[Literal["running", "batch"] | None, Since("0.2")] = None
    """Batch-norm statistics of `connectivity`; by default `batch` until there are running ones."""

    @model_validator(mode="after")
    def _check_method(self) -> "SelectionChoice":
        if self.steps and self.method not in PRUNING:
            raise ConfigError(
                f"selection {self.method!r} keeps the {self.start} monomials it starts with; "
                f"leave steps out, got {self.steps}"
            )
        if self.pretrain and self.method != "lse":
            raise ConfigError(
                f"selection {self.method!r} needs no pre-training; leave pretrain out, "
                f"got {self.pretrain}"
            )
        if (self.signed or self.statistics) and self.method != "connectivity":
            raise ConfigError(
                f"selection {self.method!r} differentiates no loss; leave signed and statistics "
                "out, or choose the method connectivity"
            )
        return self

    @model_validator(mode="after")
    def _check_descent(self) -> "SelectionChoice":
        if not self.steps:
            return self
        times, counts = zip(*self.steps, strict=True)
        if counts[-1] < 1:
            raise ConfigError(f"selection: at least 1 monomial must be kept, got {counts[-1]}")
        if counts[-1] >= self.start:
            raise ConfigError(
                f"selection: {counts[-1]} monomials cannot be chosen out of {self.start}; "
                "start with more"
            )
        path = (self.start, *counts)
        if list(path) != sorted(set(path), reverse=True):
            shown = " → ".join(map(str, path))
            raise ConfigError(
                f"selection: the number of monomials must fall at each step, got {shown}"
            )
        if list(times) != sorted(set(times)):
            shown = ", ".join(f"{epoch:g}" for epoch in times)
            raise ConfigError(
                f"selection: steps must follow each other in time, got epochs {shown}"
            )
        return self

    def check_run(self, model: ModelChoice, epochs: float) -> None:
        """Raise `ConfigError` unless this suits the network and the length of a run."""
        if self.method == "none":
            return
        if model.head != "monomials":
            raise ConfigError(
                f"selection {self.method!r} needs the head 'monomials', got {model.head!r}"
            )
        if model.depths > 1:
            raise ConfigError(
                f"selection {self.method!r} needs all monomials on one map, got model.depths="
                f"{model.depths}; set it to 1, or selection.method=none"
            )
        if self.method in PRUNING and not self.steps:
            raise ConfigError("selection: there is no step; give one such as (10, 5)")
        for epoch, _ in self.steps:
            if not 0 <= epoch < epochs:
                raise ConfigError(
                    f"selection: a step at epoch {epoch:g} does not fit a run of {epochs:g} "
                    f"epochs; use 0 to less than {epochs:g}"
                )


class Recipe(Choices):
    """Everything that decides the outcome of a run, but its seed."""

    name: str
    """`set/variant`."""
    about: str = ""
    """One line for the list of recipes."""
    data: DataChoice = DataChoice()
    model: ModelChoice = ModelChoice()
    head: HeadChoice = HeadChoice()
    train: TrainChoice
    selection: SelectionChoice = SelectionChoice()
    source: dict[str, str] = Field(default_factory=dict)
    """Where each number comes from, by its path (`train.lr`)."""

    @model_validator(mode="after")
    def _check_parts_together(self) -> "Recipe":
        self.selection.check_run(self.model, self.train.epochs)
        self.head.check_head(self.model.head)
        if self.train.one_copy and (
            not self.model.name.startswith("orbit-") or self.model.group_pool == "pose"
        ):
            raise ConfigError(
                "train.one_copy needs a network over turned copies, such as "
                "orbit-efficientnet-lite0, and a group_pool other than 'pose', which compares them"
            )
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        # Where a number comes from does not make it another number.
        return tuple(value for name, value in self if name != "source")

    @property
    def choices(self) -> dict[str, dict[str, object]]:
        """The parts that decide the outcome, as plain data; see `Since` for what is left out."""
        parts = {
            part: {
                name: value
                for name, value in getattr(self, part)
                if not (
                    _since(kind.model_fields[name]) and value == kind.model_fields[name].default
                )
            }
            for part, kind in PARTS.items()
        }
        return {part: values for part, values in parts.items() if values}

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


PARTS: dict[str, type[Choices]] = {
    kind.part: kind for kind in (DataChoice, ModelChoice, HeadChoice, TrainChoice, SelectionChoice)
}


class RecipeField(NamedTuple):
    """A choice that every recipe has.

    Attributes:
        path: `train.lr`.
        kind: What it is, in words.
        range: Which values are allowed, in words; empty where any are.
        low: The lowest value, or what it must be above.
        high: The highest value, or what it must be below.
        default: The value if a recipe says nothing; `None` also where it has to say something.
        about: What it is for.
        since: The first version that has it, after 0.1.
    """

    path: str
    kind: str
    range: str
    low: float | None
    high: float | None
    default: Any
    about: str
    since: str | None

    def of(self, recipe: Recipe) -> Any:
        """Return the value in a recipe."""
        part, _, name = self.path.partition(".")
        return getattr(getattr(recipe, part), name)


def recipe_fields() -> list[RecipeField]:
    """Return every choice of a recipe, in order, with its type, range and meaning."""
    found = []
    for part, kind in PARTS.items():
        for name, field in kind.model_fields.items():
            limits = _limits(field)
            found.append(
                RecipeField(
                    path=f"{part}.{name}",
                    kind=_expected(field.annotation),
                    range=_range(field),
                    low=limits.get("ge", limits.get("gt")),
                    high=limits.get("le", limits.get("lt")),
                    default=None if field.is_required() else field.default,
                    about=field.description or "",
                    since=_since(field),
                )
            )
    return found


def changed(recipe: Recipe, assignments: Iterable[str]) -> Recipe:
    """Return a recipe with some choices replaced, all at once.

    Args:
        recipe: The recipe to start from; it is left alone.
        assignments: Like `train.lr=3e-4`, `data.augment=[]` or `model.group=D4`.
    """
    parts: dict[str, dict[str, Any]] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        part, _, name = path.partition(".")
        if not equals:
            raise ConfigError(f"--set {text}: expected PART.NAME=VALUE, as in train.lr=3e-4")
        if part not in PARTS:
            raise ConfigError(f"--set {text}: no part {part!r}; there are {_all(PARTS)}")
        field = PARTS[part].model_fields.get(name)
        parts.setdefault(part, {})[name] = _read(value, field.annotation if field else None)
    return with_choices(recipe, parts)


def with_choices(recipe: Recipe, parts: Mapping[str, Any], owner: str | None = None) -> Recipe:
    """Return a recipe with other choices, which then come from where the others do no more.

    Args:
        recipe: The recipe to start from; it is left alone.
        parts: For `data`, `model`, `head`, `train`, `selection`, what differs.
        owner: The file or option that asks for it, to be named in errors.
    """
    prefix = f"{owner}: " if owner else ""
    for part, values in parts.items():
        if part not in PARTS:
            raise ConfigError(f"{prefix}no part {part!r}; there are {_all(PARTS)}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{prefix}expected a table {part!r} of choices, got {values!r}")
    new = {f"{part}.{name}" for part, values in parts.items() for name in values}
    source = {path: why for path, why in recipe.source.items() if path not in new}
    try:
        return recipe.replace(**parts, source=source)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from None


def _read(text: str, annotation: Any) -> Any:
    """Read a value as it was typed: text where text is wanted, else as JSON; `none` is nothing."""
    wanted = _given(annotation)
    if wanted is str or get_origin(wanted) is Literal:
        return None if wanted is not annotation and _is_nothing(text) else text
    return _parsed(text)


def _parsed(text: str) -> Any:
    if _is_nothing(text):
        return None
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return [_parsed(each) for each in text.split(",")] if "," in text else text


def _is_nothing(text: str) -> bool:
    return text.lower() in ("none", "null")


def _given(annotation: Any) -> Any:
    """Return the type of a value that is not None, without what is annotated about it."""
    if get_origin(annotation) is Annotated:
        return _given(get_args(annotation)[0])
    if get_origin(annotation) in (types.UnionType, Union):
        return _given(next(each for each in get_args(annotation) if each is not types.NoneType))
    return annotation


def _expected(annotation: Any) -> str:
    """Say in words what a value must be, with an example where it is a list."""
    kind = _given(annotation)
    if get_origin(kind) is tuple:
        return f"a list like {json.dumps(_example(kind))}"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, f"a {kind.__name__}")


def _example(annotation: Any) -> Any:
    kind = _given(annotation)
    if get_origin(kind) is tuple:
        return [_example(each) for each in get_args(kind) if each is not Ellipsis]
    return {int: 5, float: 10, str: "rotate"}[kind]


def _limits(field: FieldInfo) -> dict[str, float]:
    names = ("ge", "gt", "le", "lt")
    return {name: getattr(m, name) for m in field.metadata for name in names if hasattr(m, name)}


def _range(field: FieldInfo) -> str:
    """Say in words which values are allowed; empty if any are."""
    limits = _limits(field)
    if limits.keys() == {"ge", "le"}:
        return f"from {limits['ge']:,g} to {limits['le']:,g}"
    return _worded(limits)


def _worded(limits: Mapping[str, float]) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(f"{words[name]} {limit:,g}" for name, limit in limits.items())


def _since(field: FieldInfo) -> str | None:
    return next((each.version for each in field.metadata if isinstance(each, Since)), None)


def _all(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}"


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
