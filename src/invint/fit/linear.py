"""A linear classifier on features, and what cross-validation says of it.

Axes:  n image   f feature   k class
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from invint.data.dataset import check_class_sizes
from invint.errors import DataError
from invint.models.orbits import pose_logits

STRENGTHS = 10.0 ** np.arange(-4.0, 1.5, 0.5)  # inverse regularisation, weakest fit first
PATIENCE = 2  # strengths in a row that do not lower the loss
FOLDS, FEW, REPEATS = 5, 300, 3  # repeated below so many images
ABSENT = -20.0  # logit of a class that a fold does not show
EMPTY = 1e-9  # of the largest variation: none
RANK = 600  # directions that are kept of features of turned copies
STEPS = 1000  # of the solver, at most, for what is kept

Fold = tuple[Tensor, Tensor]  # indices of the images kept to learn from, and of those held out


@dataclass(frozen=True, eq=False)
class Judgement:
    """What cross-validation says of a way to classify: each image by those that never saw it.

    Attributes:
        images: `(n,)`, indices of the images judged.
        logits: `(n, k)`, the mean over repeats.
        labels: `(n,)`, the right answers.
        strength: Inverse strength of the regularisation that was best, where one was chosen.
    """

    images: Int64[Tensor, " n"]
    logits: Float[Tensor, "n k"]
    labels: Int64[Tensor, " n"]
    strength: float | None = None

    @property
    def error(self) -> float:
        """Fraction of wrong answers."""
        return self.wrong.mean().item()

    @property
    def loss(self) -> float:
        """Mean cross-entropy."""
        return cross_entropy(self.logits, self.labels).item()

    @property
    def wrong(self) -> Float[Tensor, " n"]:
        """1 for each wrong answer, 0 for each right one."""
        return (self.logits.argmax(dim=1) != self.labels).double()

    def of(self, images: Tensor) -> "Judgement":
        """Return what is said of some of the images alone."""
        kept = torch.isin(self.images, images)
        return Judgement(self.images[kept], self.logits[kept], self.labels[kept], self.strength)


def excess(first: Judgement, second: Judgement) -> tuple[float, float]:
    """Return how many more errors the first makes on the images both judge, and its deviation.

    As fractions; the deviation is the standard error of the mean of paired differences.
    """
    both = first.images[torch.isin(first.images, second.images)]
    gaps = first.of(both).wrong - second.of(both).wrong
    spread = gaps.std().item() if len(gaps) > 1 else 0.0
    return gaps.mean().item(), spread / max(len(gaps), 1) ** 0.5


def cross_validation(
    labels: Int64[Tensor, " n"],
    groups: Int64[Tensor, " n"] | None,
    names: Sequence[str],
    *,
    seed: int,
) -> list[Fold]:
    """Return folds with the class ratios of the whole, no group divided; few images several times.

    Raises:
        DataError: A class cannot be shown on both sides.
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    fewest = min(check_class_sizes(labels, groups, names, 2, "cross-validation"))
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    keys = None if groups is None else groups.numpy()
    folds: list[Fold] = []
    for repeat in range(REPEATS if len(labels) < FEW else 1):
        splits = kind(min(FOLDS, fewest), shuffle=True, random_state=seed + repeat)
        for kept, held in splits.split(np.zeros(len(labels)), labels.numpy(), keys):
            folds.append((torch.from_numpy(kept), torch.from_numpy(held)))
    return folds


def judge(
    features: Float[Tensor, "n *g f"],
    labels: Int64[Tensor, " n"],
    folds: Sequence[Fold],
    classes: int,
) -> Judgement:
    """Cross-validate logistic regression, and choose its regularisation by the loss.

    Args:
        features: Of each image, or of each of its turned copies: these are told from the first,
            which is the image as it is, as one more class, and joined by `pose_logits`.
        labels: The right answers.
        folds: Which images are kept to learn from, and which held out.
        classes: Their number.
    """
    values, _ = _compact(features)
    answers = labels.numpy()
    paths = [_path(values[kept], answers[kept], values[held], classes) for kept, held in folds]
    images = torch.cat([held for _, held in folds]).unique()  # type: ignore[no-untyped-call]
    best: Judgement | None = None
    worse = 0
    for strength in STRENGTHS:
        judged = _gathered([next(path) for path in paths], folds, images, labels, strength)
        if best is None or judged.loss < best.loss:
            best, worse = judged, 0
            continue
        worse += 1
        if worse == PATIENCE:
            break
    if best is None:
        raise DataError("cross-validation needs at least one fold")
    return best


def _gathered(
    found: Sequence[Tensor], folds: Sequence[Fold], images: Tensor, labels: Tensor, strength: float
) -> Judgement:
    """Put together what the folds say; an image judged several times gets the mean."""
    sums = torch.zeros(len(labels), found[0].shape[1], dtype=torch.float64)
    times = torch.zeros(len(labels), 1, dtype=torch.float64)
    for logits, (_, held) in zip(found, folds, strict=True):
        sums.index_add_(0, held, logits)
        times.index_add_(0, held, torch.ones(len(held), 1, dtype=torch.float64))
    return Judgement(images, (sums / times)[images], labels[images], float(strength))


def _path(
    kept: NDArray[Any], answers: NDArray[Any], held: NDArray[Any], classes: int
) -> Iterator[Tensor]:
    """Yield logits for the images held out, strength by strength, each from the one before."""
    solver = _solver(warm_start=True, tol=1e-3, max_iter=100)  # nearly there is near enough
    for strength in STRENGTHS:
        solver.set_params(C=strength)
        weight, bias = _solved(solver, kept, answers, classes)
        logits = torch.from_numpy(held) @ weight.T + bias
        yield logits if held.ndim == 2 else pose_logits(logits)


def fit_linear(
    features: Float[Tensor, "n *g f"],
    labels: Int64[Tensor, " n"],
    *,
    strength: float,
    classes: int,
) -> tuple[Float[Tensor, "k f"], Float[Tensor, " k"]]:
    """Return weight and bias of logistic regression, on features as they come.

    What standardises the features is folded in, so one dense layer computes all of it. Turned
    copies get one more class, as in `judge`.
    """
    values, back = _compact(features)
    weight, bias = _solved(
        _solver(C=strength, tol=1e-7, max_iter=STEPS), values, labels.numpy(), classes
    )
    mean, std = _normal(features)
    weight = (weight @ torch.from_numpy(back).T) / std
    return weight, bias - weight @ mean


def _normal(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of each feature; one that never changes gets 1."""
    std, mean = torch.std_mean(features.double().flatten(0, -2), dim=0, correction=0)
    return mean, torch.where(std > 1e-8, std, 1.0)


def _compact(features: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Standardise, and turn into as many features as there are images, if these are fewer.

    A rotation of feature space changes nothing for an L2 penalty: what is left out is zero for
    every image, and so is its weight. Solving takes that much less time.

    Returns:
        The features, and the matrix that takes weights back.
    """
    mean, std = _normal(features)
    values = ((features.double() - mean) / std).numpy()
    rows = values.reshape(-1, values.shape[-1])
    if features.ndim == 2 and len(rows) >= rows.shape[1]:
        return values, np.eye(rows.shape[1])
    if features.ndim == 3:  # many rows, of which the largest variations are enough
        back = _directions(rows)
        return values @ back, back
    left, scale, right = np.linalg.svd(values, full_matrices=False)
    return left * scale, right.T


def _directions(rows: NDArray[Any]) -> NDArray[Any]:
    """Return the directions of the largest variations of rows, as columns."""
    from scipy.linalg import eigh  # slow to import

    few = len(rows) < rows.shape[1]
    products = rows @ rows.T if few else rows.T @ rows
    first, last = max(len(products) - RANK, 0), len(products) - 1
    sizes, found = eigh(products, subset_by_index=(first, last))
    found = found[:, sizes > EMPTY * sizes[-1]][:, ::-1]
    back = rows.T @ found if few else found
    directions: NDArray[Any] = back / np.linalg.norm(back, axis=0)
    return directions


def _solver(**options: Any) -> Any:
    from sklearn.linear_model import LogisticRegression  # slow to import

    return LogisticRegression(**options)


def _solved(
    solver: Any, values: NDArray[Any], answers: NDArray[Any], classes: int
) -> tuple[Tensor, Tensor]:
    """Solve, and return weight and bias for all classes, those not shown here included."""
    if values.ndim == 3:  # turned copies are of one more class
        turned = np.full((len(answers), values.shape[1] - 1), classes)
        answers = np.concatenate([answers[:, None], turned], axis=1).ravel()
        values, classes = values.reshape(-1, values.shape[2]), classes + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # steps may run out at the weak end, where nothing is lost
        solver.fit(values, answers)
    weight, bias = torch.from_numpy(solver.coef_), torch.from_numpy(solver.intercept_)
    if len(solver.classes_) == 2:  # one row for the odds of two
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    every = torch.zeros(classes, weight.shape[1], dtype=weight.dtype)
    constant = torch.full((classes,), ABSENT, dtype=bias.dtype)
    shown = torch.from_numpy(solver.classes_)
    every[shown], constant[shown] = weight, bias
    return every, constant
