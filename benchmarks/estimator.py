"""Cross-validate the scikit-learn estimator, as it comes, beside support vector machines.

Each repetition draws 600 of scikit-learn's 8×8 digits and cuts them into 5 folds, for all methods
alike; "turned" means that all of them, to learn from and to test on, are turned by random angles.
The machines are those of scikit-learn with the radial kernel: their two numbers are chosen by a
grid within the training images, or the images come with turned copies. What is in the record is
not measured again.

usage: python benchmarks/estimator.py [--repetitions 3] [--methods NAME …] [--record NAME]
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from record import (
    markdown_table,
    recorded,
    recording_parser,
    show_table,
    this_command,
    write_record,
)
from scipy import ndimage
from scipy.stats import t
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC

from invint import InvariantClassifier

IMAGES, FOLDS, COPIES = 600, 5, 8
GRID = {"C": [1, 10, 100], "gamma": ["scale", 0.02, 0.05, 0.1, 0.2]}
Images = NDArray[np.float64]
Predict = Callable[[Images], NDArray[np.int64]]


def invariant(images: Images, labels: NDArray[np.int64], seed: int) -> Predict:
    """Fit the estimator without arguments but its seed."""
    fitted: Predict = InvariantClassifier(random_state=seed).fit(images, labels).predict
    return fitted


def machine(images: Images, labels: NDArray[np.int64], seed: int) -> Predict:  # noqa: ARG001
    """Fit a support vector machine, its numbers chosen by cross-validation."""
    fitted = GridSearchCV(SVC(), GRID).fit(flat(images), labels)
    return lambda others: fitted.predict(flat(others))


def machine_with_copies(images: Images, labels: NDArray[np.int64], seed: int) -> Predict:
    """Fit a support vector machine on the images and on copies turned by random angles."""
    random = np.random.default_rng(seed)
    copies = [images, *(turned(images, random) for _ in range(COPIES - 1))]
    fitted = SVC(C=10).fit(flat(np.concatenate(copies)), np.tile(labels, COPIES))
    return lambda others: fitted.predict(flat(others))


METHODS = {
    "InvariantClassifier()": invariant,
    "SVM, grid": machine,
    f"SVM, {COPIES} turned copies": machine_with_copies,
}


def flat(images: Images) -> Images:
    """Return one row for each image."""
    return images.reshape(len(images), -1)


def turned(images: Images, random: np.random.Generator) -> Images:
    """Turn each image by an angle of its own, between pixels by bilinear interpolation."""
    angles = random.uniform(0, 360, len(images))
    return np.stack(
        [
            ndimage.rotate(image, angle, reshape=False, order=1)
            for image, angle in zip(images, angles, strict=True)
        ]
    )


def measured(place: dict[str, Any]) -> dict[str, Any]:
    """Fit one method without one fold, and return how often it is right there."""
    random = np.random.default_rng(place["repetition"])
    data, answers = load_digits(return_X_y=True)
    chosen = random.permutation(len(data))[:IMAGES]
    images, labels = data[chosen].reshape(-1, 8, 8) / 16, answers[chosen]
    images = turned(images, random) if place["turned"] else images
    learnt, tested = list(StratifiedKFold(FOLDS).split(images, labels))[place["fold"]]
    start = time.process_time()
    method = METHODS[place["method"]]
    predict = method(images[learnt], labels[learnt], place["repetition"])
    seconds = time.process_time() - start
    right = float((predict(images[tested]) == labels[tested]).mean())
    return place | {"right": right, "cpu_seconds": round(seconds, 2)}


def places(methods: list[str], repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield what there is to measure."""
    for repetition in range(repetitions):
        for method in methods:
            for turn in (False, True):
                for fold in range(FOLDS):
                    yield {
                        "method": method,
                        "turned": turn,
                        "repetition": repetition,
                        "fold": fold,
                    }


def interval(rows: list[dict[str, Any]]) -> str:
    """Return the mean over folds with its 95 % interval.

    Folds learn from the same images, so that their variance alone says too little; it is corrected
    as Nadeau and Bengio (2003) do, by the ratio of images tested on to those learnt from.
    """
    if not rows:
        return "–"
    right = [row["right"] for row in rows]
    mean = f"{100 * np.mean(right):.1f}"
    if len(right) < 2:
        return mean
    variance = (1 / len(right) + 1 / (FOLDS - 1)) * np.var(right, ddof=1)
    return f"{mean} ± {100 * t.ppf(0.975, len(right) - 1) * np.sqrt(variance):.1f}"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    body = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        cells = [interval([row for row in own if row["turned"] == turn]) for turn in (False, True)]
        seconds = np.median([row["cpu_seconds"] for row in own])
        body.append([method, *cells, f"{seconds:.1f}"])
    return markdown_table(["right in %", "upright", "turned", "CPU seconds of a fit"], body)


def main() -> None:
    """Measure what is not recorded yet, print the table, and record it if asked."""
    parser = recording_parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=3, help="other digits (3)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = recorded(options.record)
    known = [{key: row[key] for key in ("method", "turned", "repetition", "fold")} for row in rows]
    for place in places(options.methods, options.repetitions):
        if place not in known:
            rows.append(measured(place))
            print(json.dumps(rows[-1]), flush=True)
            if options.record:  # at once: what is measured is not lost if this is stopped
                write_record(options.record, this_command(), rows)
    show_table(table(rows), rows, record=options.record)


if __name__ == "__main__":
    main()
