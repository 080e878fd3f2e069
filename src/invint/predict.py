"""What is done with a trained network, of a run or in a file: evaluate it, predict with it."""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from invint.audit import Audit, audit_model
from invint.data.batches import scaled, test_batches
from invint.data.dataset import Dataset, Split
from invint.data.pictures import SUFFIXES, read_picture
from invint.errors import ConfigError, DataError, InvintError
from invint.export import LoadedModel, export_model, load_model, load_network
from invint.export.int8 import describe, quantize_onnx, spread
from invint.files import check_writable
from invint.train.evaluate import Scores, scores_of
from invint.train.store import RunStore

BATCH = 256
AUDITED = 200  # test images that are turned, through the full circle
EVERY = 15.0  # degrees


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
        if path not in problems:
            by_name = dict(zip(card.class_names, next(rows), strict=True))
            if math.isfinite(sum(by_name.values())):
                yield Prediction(str(path), max(by_name, key=by_name.__getitem__), by_name)
                continue
            problems[path] = f"{path}: the answer is no number: the network's file is damaged"
            if not skip_bad:
                raise DataError(problems[path])
        yield Prediction(str(path), problem=problems[path])


def _picture_files(pictures: Sequence[Path]) -> Iterator[Path]:
    for path in pictures:
        if path.is_dir():
            files = (each for each in path.rglob("*") if each.suffix.lower() in SUFFIXES)
            yield from sorted(each for each in files if each.is_file())
        else:
            yield path


@dataclass(frozen=True)
class Measured:
    """What a file of a network does on the test images.

    Attributes:
        bytes: Size of the file.
        error: Fraction of wrong answers.
        audit: What turns do to it.
    """

    bytes: int
    error: float
    audit: Audit

    @classmethod
    def of(cls, path: Path, test: Split) -> "Measured":
        """Measure a file."""
        model, images = load_model(path), scaled(test.images[:AUDITED])
        angles = [EVERY * index for index in range(round(360 / EVERY))]
        audit = audit_model(model, images, test.labels[:AUDITED], angles=angles)
        return cls(path.stat().st_size, evaluate_model(model, test).error, audit)

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers."""
        return {
            "bytes": self.bytes,
            "error": self.error,
            "worst_accuracy": self.audit.worst_accuracy,
            "worst_exact_drift": self.audit.worst_exact_drift,
            "worst_drift": self.audit.worst_drift,
        }


def export_int8(run: str | Path, path: str | Path, dataset: Dataset) -> tuple[Measured, Measured]:
    """Write the network of a run as ONNX with int8 convolutions, and measure it before and after.

    The steps of the rounding are found on training images of the run; errors and audit are of the
    test images. The file says what was measured.

    Args:
        run: Folder of a complete run.
        path: Where the file goes; it ends in `.onnx`.
        dataset: The data set of the run.
    """
    store, path = RunStore(Path(run)), check_writable(Path(path))
    subset = store.subset
    if path.suffix != ".onnx" or subset is None:
        raise ConfigError(
            f"export_int8: expected the folder of a run and a file ending in .onnx, got {run} and "
            f"{path}"
        )
    network, card = load_network(store.model)
    calibration = scaled(dataset.train.images[spread(torch.tensor(subset["indices"]))])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        plain, draft = Path(folder) / "plain.onnx", Path(folder) / path.name
        export_model(network, plain, card)
        quantize_onnx(plain, draft, calibration)
        before, after = (Measured.of(each, dataset.test) for each in (plain, draft))
        describe(draft, {"float32": before.to_dict(), "int8": after.to_dict()})
        draft.replace(path)
    return before, after
