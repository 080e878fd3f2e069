"""Compare `invint fit` with what people do instead, from a few labelled pictures of a class.

Every method learns from the same upright pictures and answers the same 500 others: as they are,
turned by random multiples of 90°, turned by any angle, and in all four quarter turns, to count the
pictures whose answer changes. Two take the minutes given, the others what they need. Sets are
those of `invint data`, and the solar cells of the package `elpv-dataset` (Deitsch et al. 2019), of
which those count as defective that experts called so with a probability above one half.

What is in the record is not measured again. Besides the extra `pretrained` it needs scikit-image,
and for `--sets elpv` elpv-dataset.

usage: python benchmarks/folders.py [--sets NAME …] [--per-class N …] [--methods NAME …]
    [--seeds N] [--minutes M] [--record NAME]
"""

import argparse
import csv
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange, reduce
from numpy.typing import NDArray
from PIL import Image
from record import (
    markdown_table,
    recorded,
    recording_parser,
    show_table,
    this_command,
    write_record,
)
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor
from torch.nn.functional import interpolate

from invint import Cyclic, InvariantClassifier, create_model
from invint.data.registry import load_dataset
from invint.train.features import orbit_features

TESTED = 500  # pictures
KEPT_BACK = 0.1  # of its pictures, by `invint fit`, to measure what it says of itself
MOST = 100  # labelled pictures of a class; from fewer one learns from the first of them
SMALL = 32  # side of pictures for the plain network
HOG_SIDE = 64
LBP_SIDE = 128  # at most
PRETRAINED_SIDE = 160  # of the pictures that the pretrained network sees
RADII = (1, 2, 3)  # of local binary patterns, in pixels
KERNEL = {"svc__C": [1, 10, 100], "svc__gamma": ["scale", "auto"]}
RIDGE = {"logisticregression__C": [1e-3, 1e-2, 1e-1, 1]}
TRIAL = 20  # steps that say how long a step of the plain network takes

Pictures = NDArray[np.uint8]  # n h w c
Labels = NDArray[np.int64]
Predict = Callable[[Pictures], Labels]
Features = Callable[[Pictures], NDArray[np.float64]]


@dataclass(frozen=True)
class Task:
    """What a method learns from.

    Attributes:
        pictures: Upright ones.
        labels: Of each.
        seed: Of whatever is random.
        minutes: For methods that take as long as they are given.
        place: A folder to write to.
    """

    pictures: Pictures
    labels: Labels
    seed: int
    minutes: float
    place: Path


# The pictures


def solar_cells() -> tuple[Pictures, Labels]:
    """Return pictures of solar cells, and whether experts called them defective."""
    from elpv_dataset.utils import load_dataset as load_cells

    pictures, probabilities, _ = load_cells()
    return pictures[..., None], (probabilities > 0.5).astype(np.int64)


@cache
def everything(name: str) -> tuple[Pictures, Labels]:
    """Return the pictures that a set has to learn from, and those to test on, as one."""
    if name == "elpv":
        return solar_cells()
    data = load_dataset(name)
    images = torch.cat([data.train.images[:20_000], data.test.images])
    labels = torch.cat([data.train.labels[:20_000], data.test.labels])
    return rearrange(images, "n c h w -> n h w c").numpy(), labels.numpy()


def split(name: str, seed: int) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Draw, class by class, up to 100 pictures to learn from, and as many of each to test on."""
    labels = everything(name)[1]
    random, classes = np.random.default_rng(seed), int(labels.max()) + 1
    orders = [random.permutation(np.flatnonzero(labels == each)) for each in range(classes)]
    count = TESTED // classes
    tested = np.concatenate([order[:count] for order in orders])
    return [order[count : count + MOST] for order in orders], tested


def turned(pictures: Pictures, seed: int) -> Pictures:
    """Turn each picture by an angle of its own; what comes in from outside is a mirror image."""
    angles = np.random.default_rng(seed).uniform(0, 360, len(pictures))
    return np.stack(
        [
            ndimage.rotate(picture, angle, reshape=False, order=1, mode="reflect")
            for picture, angle in zip(pictures, angles, strict=True)
        ]
    )


def resized(pictures: Pictures, side: int) -> Tensor:
    """Return pictures of another size, `(n, c, h, w)` in [0, 1]."""
    images = rearrange(torch.from_numpy(pictures.copy()), "n h w c -> n c h w").float() / 255
    return interpolate(images, size=(side, side), mode="bilinear", antialias=True).clamp(0, 1)


# The methods: from a task to what answers pictures


def machine(features: Features, task: Task) -> Predict:
    """Fit a support vector machine on features, its numbers chosen by cross-validation."""
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), KERNEL, cv=3)
    fitted = search.fit(features(task.pictures), task.labels)
    return lambda pictures: fitted.predict(features(pictures))


def gradients(pictures: Pictures) -> NDArray[np.float64]:
    """Return histograms of oriented gradients (Dalal and Triggs, 2005)."""
    from skimage.feature import hog

    images = rearrange(resized(pictures, HOG_SIDE), "n c h w -> n h w c").numpy()
    rows: list[NDArray[np.float64]] = [hog(each, channel_axis=-1) for each in images]
    return np.stack(rows).astype(np.float64)


def patterns(pictures: Pictures) -> NDArray[np.float64]:
    """Return histograms of uniform local binary patterns (Ojala et al., 2002)."""
    from skimage.feature import local_binary_pattern

    images = 255 * resized(pictures, min(pictures.shape[1], LBP_SIDE))
    grey = reduce(images, "n c h w -> n h w", "mean").byte().numpy()
    rows = []
    for image in grey:
        found = [local_binary_pattern(image, 8 * r, r, method="uniform") for r in RADII]
        counts = [
            np.bincount(each.astype(np.int64).ravel(), minlength=8 * r + 2) / each.size
            for each, r in zip(found, RADII, strict=True)
        ]
        rows.append(np.concatenate(counts))
    return np.stack(rows)


def plain(task: Task) -> Predict:
    """Train an ordinary network with turned copies, for as many steps as the minutes allow."""

    def images(pictures: Pictures) -> NDArray[np.float32]:
        small: NDArray[np.float32] = resized(pictures, SMALL).numpy()
        return rearrange(small, "n c h w -> n h w c")

    def network(steps: int) -> InvariantClassifier:
        return InvariantClassifier(
            network="cnn-small", head=None, steps=steps, random_state=task.seed
        )

    given = images(task.pictures)
    start = time.perf_counter()
    network(TRIAL).fit(given, task.labels)
    step = (time.perf_counter() - start) / TRIAL
    fitted = network(max(TRIAL, int(60 * task.minutes / step))).fit(given, task.labels)
    return lambda pictures: fitted.predict(images(pictures))


class Pretrained:
    """Features of the network trained on ImageNet: means over its last map.

    Pictures seen before are not worked on again; `spared` counts the seconds that takes off.
    """

    def __init__(self) -> None:
        self.network = create_model("efficientnet-lite0", pretrained=True)
        self.known: dict[bytes, NDArray[np.float32]] = {}
        self.spared = self.spent = 0.0

    def __call__(self, pictures: Pictures) -> NDArray[np.float64]:
        """Return the features of pictures."""
        keys = [hashlib.sha256(picture.tobytes()).digest() for picture in pictures]
        new = [index for index, key in enumerate(keys) if key not in self.known]
        if self.known:
            self.spared += (len(keys) - len(new)) * self.spent / len(self.known)
        start = time.process_time()
        if new:
            images = resized(pictures[new], PRETRAINED_SIDE)
            found = orbit_features(self.network, images, Cyclic(1)).numpy()
            self.known |= {keys[index]: row for index, row in zip(new, found, strict=True)}
        self.spent += time.process_time() - start
        return np.stack([self.known[key] for key in keys]).astype(np.float64)


pretrained = cache(Pretrained)


def orbit(pictures: Pictures) -> NDArray[np.float64]:
    """Return pretrained features averaged over the four quarter turns."""
    turns = [pretrained()(np.rot90(pictures, turn, (1, 2))) for turn in range(4)]
    average: NDArray[np.float64] = np.mean(turns, axis=0)
    return average


def linear(features: Features, task: Task) -> Predict:
    """Fit a logistic regression on features, its regularisation chosen by cross-validation."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    fitted = GridSearchCV(model, RIDGE, cv=3).fit(features(task.pictures), task.labels)
    return lambda pictures: fitted.predict(features(pictures))


def ours(task: Task) -> Predict:
    """Let `invint fit` make a classifier of a folder, as a user would."""
    folder, out = task.place / "pictures", task.place / "fit"
    for label in np.unique(task.labels):
        write(task.pictures[task.labels == label], folder / f"class {label}")
    minutes = ("--minutes", task.minutes, "--test-share", KEPT_BACK)
    invint("fit", folder, *minutes, "--out", out, "--seed", task.seed, "--quiet")
    return lambda pictures: answers(out, pictures, task.place)


def answers(out: Path, pictures: Pictures, place: Path) -> Labels:
    """Ask the network that `invint fit` wrote."""
    files = (out / name for name in ("model.onnx", "model.safetensors"))
    network = next(file for file in files if file.exists())
    asked, table = place / f"asked {time.time_ns()}", place / "answers.csv"
    write(pictures, asked)
    invint("predict", network, asked, "--out", table)
    with table.open(newline="") as file:
        found = {Path(row["path"]).stem: row["label"] for row in csv.DictReader(file)}
    return np.array([int(found[f"{n:04}"].split()[-1]) for n in range(len(pictures))])


def write(pictures: Pictures, folder: Path) -> None:
    """Write pictures as PNG files."""
    folder.mkdir(parents=True)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture.squeeze()).save(folder / f"{number:04}.png")


def invint(*arguments: object) -> None:
    """Run a command of ours."""
    command = [sys.executable, "-m", "invint", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


METHODS: dict[str, Callable[[Task], Predict]] = {
    "HOG, SVM": lambda task: machine(gradients, task),
    "LBP, SVM": lambda task: machine(patterns, task),
    "plain network, turned copies": plain,
    "EfficientNet, linear": lambda task: linear(pretrained(), task),
    "EfficientNet over quarter turns, linear": lambda task: linear(orbit, task),
    "invint fit": ours,
}
TIMED = ("plain network, turned copies", "invint fit")  # these take the minutes given


# What is measured


def processor_seconds() -> float:
    """Return the time that this process and those it started have worked."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    spared = pretrained().spared if pretrained.cache_info().currsize else 0.0
    return sum(each.ru_utime + each.ru_stime for each in used) + spared


def scores(predict: Predict, pictures: Pictures, labels: Labels, seed: int) -> dict[str, float]:
    """Return errors upright and turned, and how often quarter turns change the answer."""
    found = np.stack([predict(np.rot90(pictures, turn, (1, 2))) for turn in range(4)])
    turns = np.random.default_rng(seed).integers(0, 4, len(labels))
    return {
        "upright": float((found[0] != labels).mean()),
        "quarter_turns": float((found[turns, np.arange(len(labels))] != labels).mean()),
        "any_angle": float((predict(turned(pictures, seed)) != labels).mean()),
        "changed": float((found != found[0]).any(axis=0).mean()),
    }


def measured(case: dict[str, Any], minutes: float) -> dict[str, Any]:
    """Let one method learn from a set, and return what came out."""
    pictures, labels = everything(case["set"])
    pools, tested = split(case["set"], case["seed"])
    chosen = np.concatenate([pool[: case["per_class"]] for pool in pools])
    with tempfile.TemporaryDirectory() as name:
        task = Task(pictures[chosen], labels[chosen], case["seed"], minutes, Path(name))
        start = processor_seconds()
        predict = METHODS[case["method"]](task)
        learnt = processor_seconds()
        found = scores(predict, pictures[tested], labels[tested], case["seed"])
        answered = processor_seconds() - learnt
    seconds = {"cpu_seconds": round(learnt - start, 1), "answering": round(answered, 1)}
    return case | found | seconds | {"minutes": minutes, "side": PRETRAINED_SIDE}


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table: a mean over seeds in every cell."""
    cells: dict[tuple[str, int, int, str], list[dict[str, Any]]] = {}
    for row in rows:
        rank, minutes = [*METHODS].index(row["method"]), f", {row['minutes']:g} minutes"
        method = row["method"] + minutes * (row["method"] in TIMED)
        cells.setdefault((row["set"], row["per_class"], rank, method), []).append(row)
    errors = ("upright", "quarter_turns", "any_angle", "changed")
    body = [
        [
            f"{name}, {count}",
            method,
            *(f"{100 * _mean(own, key):.1f}" for key in errors),
            f"{_mean(own, 'cpu_seconds'):.1f}",
            f"{_mean(own, 'answering'):.1f}",
        ]
        for (name, count, _, method), own in sorted(cells.items())
    ]
    header = ["set, pictures a class", "method", "upright", "by 90°", "by any angle", "changed"]
    return markdown_table([*header, "s to learn", "s to answer"], body)


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


def is_known(case: dict[str, Any], minutes: float, rows: list[dict[str, Any]]) -> bool:
    """Whether a case has been measured, in as many minutes if these matter."""
    wanted = case | ({"minutes": minutes} if case["method"] in TIMED else {})
    return any(wanted.items() <= row.items() for row in rows)


def cases(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what there is to measure; pictures whose features are known come one after another."""
    for name, seed in product(options.sets, range(options.seeds)):
        for count, method in product(options.per_class, options.methods):
            yield {"set": name, "per_class": count, "seed": seed, "method": method}


def main() -> None:
    """Measure what is not recorded yet, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    sets = ["fashion-mnist", "elpv", "svhn-recropped", "cifar10"]
    parser.add_argument("--sets", nargs="+", default=sets)
    parser.add_argument("--per-class", nargs="+", type=int, default=[20, 50, MOST])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=1, help="other pictures (1)")
    parser.add_argument("--minutes", type=float, default=3.0, help="for what takes as given (3)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = recorded(options.record)
    for case in cases(options):
        if not is_known(case, options.minutes, rows):
            rows.append(measured(case, options.minutes))
            print(json.dumps(rows[-1]), flush=True)
            if options.record:  # at once: what is measured is not lost if this is stopped
                write_record(options.record, this_command(), rows)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
