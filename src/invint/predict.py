"""What is done with a trained network, of a run or in a file: evaluate it, predict with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from invint.data.batches import scaled, test_batches
from invint.data.dataset import Dataset, Split
from invint.data.pictures import SUFFIXES, read_picture
from invint.errors import ConfigError, InvintError
from invint.export import LoadedModel, load_model
from invint.train.evaluate import Scores, scores_of
from invint.train.store import RunStore

BATCH = 256


def model_file(source: str | Path) -> Path:
    """Return the file of a network: of a run the last weights, otherwise the file itself."""
    path = Path(source)
    return RunStore(path).model if path.is_dir() else path


def evaluate_model(model: LoadedModel, split: Split) -> Scores:
    """Return the scores of a network on images as they are stored."""
    channels = split.images.shape[1]
    zeros, ones = (0.0,) * channels, (1.0,) * channels  # the model normalises by itself
    batches = test_batches(split, batch_size=BATCH, mean=zeros, std=ones)
    found = [(model(images), labels) for images, labels in batches]
    logits, labels = (torch.cat(each) for each in zip(*found, strict=True))
    return scores_of(logits, labels)


def check_fit(model: LoadedModel, dataset: Dataset, owner: str) -> None:
    """Raise `ConfigError` unless the network was made for such images and classes."""
    card = model.card
    expected = (card.in_channels, *card.image_size, len(card.class_names))
    found = (*dataset.image_shape, len(dataset.class_names))
    if expected != found:
        raise ConfigError(
            f"{owner}: made for channels, height, width and classes {expected}, but "
            f"{dataset.name} has {found}"
        )


@dataclass(frozen=True)
class Prediction:
    """The answer of a network for one picture.

    Attributes:
        path: The picture.
        label: Name of the most probable class; empty if the picture could not be read.
        probabilities: Probability of each class by name; `None` if it could not be read.
        problem: Why it could not be read; empty if it could.
    """

    path: str
    label: str = ""
    probabilities: dict[str, float] | None = None
    problem: str = ""


def predict(
    source: str | Path,
    pictures: Sequence[Path],
    *,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Prediction]:
    """Yield a prediction for each picture, in order; folders are searched recursively.

    Args:
        source: Folder of a run, or file of a network.
        pictures: Files and folders.
        skip_bad: Yield the problem of a picture that cannot be read instead of raising it.
        progress: Called after each batch with the number of pictures done and of all.
    """
    model = load_model(model_file(source))
    height, width = model.card.image_size
    if height != width:
        raise ConfigError(
            f"{source}: pictures are made square, but the network takes {height} x {width}"
        )
    paths = list(_picture_files(pictures))
    if not paths:
        raise ConfigError(f"no pictures among {', '.join(map(str, pictures)) or 'nothing'}")
    for start in range(0, len(paths), BATCH):
        batch = paths[start : start + BATCH]
        yield from _predict_batch(model, batch, skip_bad)
        if progress is not None:
            progress(start + len(batch), len(paths))


def _predict_batch(model: LoadedModel, paths: list[Path], skip_bad: bool) -> Iterator[Prediction]:
    card = model.card
    images: list[Tensor] = []
    problems: dict[Path, str] = {}
    for path in paths:
        try:
            picture = read_picture(path, side=card.image_size[0], channels=card.in_channels)
            images.append(scaled(picture))
        except InvintError as error:
            if not skip_bad:
                raise
            problems[path] = str(error)
    rows = iter(model(torch.stack(images)).softmax(dim=1).tolist() if images else [])
    for path in paths:
        if path in problems:
            yield Prediction(str(path), problem=problems[path])
        else:
            by_name = dict(zip(card.class_names, next(rows), strict=True))
            yield Prediction(str(path), max(by_name, key=by_name.__getitem__), by_name)


def _picture_files(pictures: Sequence[Path]) -> Iterator[Path]:
    for path in pictures:
        if path.is_dir():
            files = (each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
            yield from sorted(each for each in files if each.is_file())
        else:
            yield path
