"""The card of a network: what a file says about it, beside the weights."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from invint.errors import ConfigError
from invint.models.networks import Network
from invint.models.registry import MODELS, create_model
from invint.nn import Monomials
from invint.ops.steerable import Rings

FORMAT_VERSION = 1
KEY = "invint"  # under which a file carries its card


@dataclass(frozen=True)
class ModelCard:
    """What a file says about its network, beside the weights.

    Attributes:
        class_names: Names of the classes, in the order of the logits.
        image_size: Height and width of the images.
        in_channels: Channels of the images.
        group: The symmetries, as `"C8"`; by default those the network has by default.
        mean: Subtracted from images between 0 and 1: one number, or one per channel.
        std: What is left is divided by this: one number, or one per channel.
        name: Name of the network for `create_model`; only safetensors needs it.
        head: Name of its head.
        options: Further arguments of `create_model`.
    """

    class_names: tuple[str, ...]
    image_size: tuple[int, int]
    in_channels: int
    group: str | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    name: str | None = None
    head: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.in_channels):
                raise ConfigError(
                    f"ModelCard: {key} must be one number or one for each of "
                    f"{self.in_channels} channels, got {values}"
                )
        if not self.class_names or min(self.std) <= 0:
            raise ConfigError(
                "ModelCard: there must be a class name, and std must be positive, "
                f"got {self.class_names} and {self.std}"
            )
        if self.group is None and self.name in MODELS:
            object.__setattr__(self, "group", MODELS[self.name].group)
        plain = json.loads(_to_json(self.options), object_hook=_from_plain)
        object.__setattr__(self, "options", plain)  # as it will come out of a file

    @classmethod
    def from_spec(
        cls,
        spec: dict[str, Any],
        *,
        class_names: tuple[str, ...] | None = None,
        mean: tuple[float, ...] = (0.0,),
        std: tuple[float, ...] = (1.0,),
    ) -> "ModelCard":
        """Take over the arguments of `create_model`, further ones under `options`.

        Args:
            spec: Has `name`, `image_size` and `in_channels`; may have `head`, `group`,
                `num_classes` and `options`.
            class_names: Names of the classes; by default their numbers.
            mean: Subtracted from images between 0 and 1.
            std: What is left is divided by this.
        """
        missing = [key for key in ("name", "image_size", "in_channels") if not spec.get(key)]
        if missing:
            raise ConfigError(f"ModelCard.from_spec: the spec lacks {', '.join(missing)}")
        size, group = spec["image_size"], spec.get("group")
        names = class_names or tuple(map(str, range(spec.get("num_classes", 10))))
        return cls(
            class_names=names,
            image_size=(size, size) if isinstance(size, int) else tuple(size),
            in_channels=spec["in_channels"],
            group=None if group is None else str(group),
            mean=mean,
            std=std,
            name=spec["name"],
            head=spec.get("head"),
            options=spec.get("options") or {},
        )

    @property
    def title(self) -> str:
        """The network and its head, as people call them; empty if the card names none."""
        return ", ".join(each for each in (self.name, self.head) if each)

    def build(self, *, pretrained: bool = False) -> Network:
        """Build the network, with fresh weights or with those its backbone learnt before."""
        if self.name is None:
            raise ConfigError(
                "ModelCard: safetensors holds weights alone and needs the name of the network; "
                "export to onnx or torch, or give name"
            )
        return create_model(
            self.name,
            head=self.head,
            num_classes=len(self.class_names),
            in_channels=self.in_channels,
            image_size=self.image_size,
            group=self.group,
            pretrained=pretrained,
            **self.options,
        )

    def to_json(self) -> str:
        """Return the card as text, with the version of the format."""
        return _to_json({"format_version": FORMAT_VERSION, **vars(self)})

    @classmethod
    def from_json(cls, text: str) -> "ModelCard":
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text, object_hook=_from_plain)
            version = values.pop("format_version")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ConfigError(f"the metadata is not a card of invint ({error!r})") from error
        if version != FORMAT_VERSION:
            raise ConfigError(
                f"format version {version!r}, but this invint reads version {FORMAT_VERSION}; "
                "export the network again"
            )
        try:
            for key in ("class_names", "image_size", "mean", "std"):
                values[key] = tuple(values[key])
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"the metadata is not a card of invint ({error!r})") from error


def read_card(text: str | None) -> ModelCard:
    """Read the card of a file from what it carries under `KEY`, if it does."""
    if text is None:
        raise ConfigError("it carries no metadata of invint; write files with export_model")
    return ModelCard.from_json(text)


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, default=_to_plain)
    except TypeError as error:
        raise ConfigError(f"ModelCard: options must be plain data ({error})") from error


def _to_plain(value: Any) -> dict[str, Any]:
    if isinstance(value, Monomials | Rings):
        return {type(value).__name__: asdict(value)}
    raise TypeError(f"{type(value).__name__} is not")


def _from_plain(values: dict[str, Any]) -> Any:
    if values.keys() == {"Monomials"}:
        return Monomials.from_dict(values["Monomials"])
    if values.keys() == {"Rings"}:
        return Rings(**{name: tuple(each) for name, each in values["Rings"].items()})
    return values
