"""Trained networks from runs and files, and what is done with them: evaluate, predict."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from invint.data.batches import scaled, test_batches
from invint.data.dataset import Dataset, Progress, Split
from invint.errors import ConfigError, InvintError
from invint.export import LoadedModel, load_model
from invint.train.evaluate import Scores, scores_of
from invint.train.store import RunStore

BATCH = 256


def model_file(source: str | Path) -> Path:
    """Return the file of a network: of a run, its last weights; otherwise the file itself."""
    path = Path(source)
    return RunStore(path).model if path.is_dir() else path


def evaluate_model(model: LoadedModel, part: Split) -> Scores:
    """Count the wrong answers of a network on images as they are stored."""
    channels = part.images.shape[1]
    zeros, ones = (0.0,) * channels, (1.0,) * channels  # the model normalises
    batches = test_batches(part, batch_size=BATCH, mean=zeros, std=ones)
    found = [(model(images), labels) for images, labels in batches]
    logits, labels = (torch.cat(each) for each in zip(*found, strict=True))
    return scores_of(logits, labels)


def check_fit(model: LoadedModel, dataset: Dataset, owner: str) -> None:
    """Raise `ConfigError` unless the network was made for such images and classes."""
    card = model.card
    channels, height, width = dataset.image_shape
    made = (card.in_channels, *card.image_size, len(card.class_names))
    found = (channels, height, width, len(dataset.class_names))
    if made != found:
        raise ConfigError(
            f"{owner}: made for channels, height, width and classes {made}, but "
            f"{dataset.name} has {found}"
        )


@dataclass(frozen=True)
class Prediction:
    """What a network says of one picture.

    Attributes:
        path: The picture.
        label: Name of the most likely class.
        probabilities: Of each class, by name.
        problem: Why there is none of these, if the picture cannot be read.
    """

    path: str
    label: str = ""
    probabilities: dict[str, float] | None = None
    problem: str = ""


def predict(
    source: str | Path,
    pictures: list[Path],
    *,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Iterator[Prediction]:
    """Yield a prediction for each picture; folders are searched through.

    Args:
        source: A run or a file of a network.
        pictures: Files and folders.
        skip_bad: Yield the problem of a picture that cannot be read, instead of raising it.
        progress: Called with the number of pictures looked at and that of all.
    """
    model = load_model(model_file(source))
    paths = list(_found(pictures))
    if not paths:
        raise ConfigError(f"no pictures among {', '.join(map(str, pictures)) or 'nothing'}")
    for start in range(0, len(paths), BATCH):
        some = paths[start : start + BATCH]
        yield from _predicted(model, some, skip_bad)
        if progress is not None:
            progress(start + len(some), len(paths))


def _predicted(model: LoadedModel, paths: list[Path], skip_bad: bool) -> Iterator[Prediction]:
    card, read = model.card, {}
    problems: dict[Path, str] = {}
    for path in paths:
        try:
            read[path] = _read(path, card.image_size, card.in_channels)
        except InvintError as error:
            if not skip_bad:
                raise
            problems[path] = str(error)
    probabilities = model(torch.stack([*read.values()])).softmax(dim=1) if read else torch.empty(0)
    answers = dict(zip(read, probabilities, strict=True))
    for path in paths:
        if path in problems:
            yield Prediction(str(path), problem=problems[path])
        else:
            row = dict(zip(card.class_names, answers[path].tolist(), strict=True))
            yield Prediction(str(path), max(row, key=lambda name: row[name]), row)


def _read(path: Path, size: tuple[int, int], channels: int) -> Tensor:
    from invint.data.pictures import read_picture

    if size[0] != size[1]:
        raise ConfigError(f"{path}: pictures are made square, but the network wants {size}")
    return scaled(read_picture(path, side=size[0], channels=channels))


def _found(pictures: list[Path]) -> Iterator[Path]:
    from invint.data.pictures import SUFFIXES

    for path in pictures:
        if path.is_dir():
            found = (each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
            yield from sorted(each for each in found if each.is_file())
        else:
            yield path
