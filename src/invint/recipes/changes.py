"""Change single choices of a recipe: `train.lr=3e-4`."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from invint.errors import ConfigError
from invint.recipes.recipe import Recipe

PARTS = ("data", "model", "train", "selection")


class Change(NamedTuple):
    """A choice to be made anew, in the words of `owner`: an option, or a line of a file."""

    part: str
    key: str
    value: Any
    owner: str


def changed(recipe: Recipe, assignments: list[str]) -> Recipe:
    """Return a recipe with some choices made anew.

    Args:
        recipe: The recipe to start from; it is left alone.
        assignments: Like `train.lr=3e-4`, `data.augment=[]` or `model.group=D4`.
    """
    return _changed(recipe, map(_assignment, assignments))


def with_choices(recipe: Recipe, parts: Mapping[str, Any], owner: str) -> Recipe:
    """Return a recipe with the choices of nested tables, as a file has them."""
    changes = []
    for part, values in parts.items():
        if not isinstance(values, Mapping):
            raise ConfigError(f"{owner}: expected a table {part!r} of choices, got {values!r}")
        for key, value in values.items():
            changes.append(Change(part, key, value, f"{owner}: {part}.{key} = {value!r}"))
    return _changed(recipe, changes)


def _assignment(text: str) -> Change:
    path, equals, value = text.partition("=")
    part, _, key = path.partition(".")
    if not equals:
        raise ConfigError(f"--set {text}: expected PART.NAME=VALUE, as in train.lr=3e-4")
    return Change(part, key, _Text(value), f"--set {text}")


def _changed(recipe: Recipe, changes: Iterable[Change]) -> Recipe:
    """Make all changes at once, since some make sense only together."""
    fitted: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for part, key, value, owner in changes:
        if part not in PARTS:
            raise ConfigError(f"{owner}: no part {part!r}; there are {', '.join(PARTS)}")
        hints = get_type_hints(type(getattr(recipe, part)))
        if key not in hints:
            raise ConfigError(f"{owner}: no value '{part}.{key}'; {part} has {list(hints)}")
        kind = _plain(hints[key])
        read = _parsed(value) if isinstance(value, _Text) and hints[key] is not str else value
        read = str(value) if kind is str and read is not None else read  # "3" is text here
        try:
            fitted[part][key] = _fitted(read, hints[key])
        except _MisfitError as error:
            raise ConfigError(
                f"{owner}: {part}.{key} must be {_named(kind)}, got {read!r}"
            ) from error
    paths = {f"{part}.{key}" for part, values in fitted.items() for key in values}
    source = {path: why for path, why in recipe.source.items() if path not in paths}
    parts: dict[str, Any] = {
        part: dataclasses.replace(getattr(recipe, part), **values)
        for part, values in fitted.items()
    }
    return dataclasses.replace(recipe, **parts, source=source)


class _Text(str):
    """A value as it was typed: what it means depends on what is wanted."""

    __slots__ = ()


class _MisfitError(Exception):
    """A value is not what its annotation wants."""


def _parsed(text: str) -> Any:
    """Read a value as JSON, or as plain text; `none` is nothing, `a,b` a list."""
    if text.lower() in ("none", "null"):
        return None
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except ValueError:
        return [_parsed(each) for each in text.split(",")] if "," in text else text


def _plain(kind: Any) -> Any:
    """Return what an annotation wants where it wants something."""
    if get_origin(kind) in (types.UnionType, typing.Union):
        return next(each for each in get_args(kind) if each is not type(None))
    return kind


def _fitted(value: Any, kind: Any) -> Any:
    """Return the value as its annotation wants it."""
    if isinstance(value, _Text):
        value = str(value)
    if kind is not _plain(kind):
        return None if value is None else _fitted(value, _plain(kind))
    if get_origin(kind) is tuple:
        items = value if isinstance(value, list | tuple) else [value] if value != "" else []
        inner = get_args(kind)
        kinds = inner[:1] * len(items) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(items):
            return tuple(_fitted(item, each) for item, each in zip(items, kinds, strict=True))
    elif type(value) is kind:
        return value
    elif kind in (float, str) and type(value) in (int, float):
        return kind(value)
    raise _MisfitError


def _named(kind: Any) -> str:
    """Say in words what a value must be, with an example where it is a list."""
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        example = [_example(each) for each in inner if each is not Ellipsis]
        return f"a list like {json.dumps(example)}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names[kind]


def _example(kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return [_example(each) for each in get_args(kind)]
    return {int: 5, float: 10, str: "rotate"}[kind]
