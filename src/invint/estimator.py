"""A scikit-learn classifier of small images: `fit`, `predict`, `predict_proba`, `score`.

Axes:  n image   c channel   h w pixel
"""

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from invint.data.batches import Batches, normalisation
from invint.data.dataset import Split
from invint.errors import ConfigError, ShapeError
from invint.models.fold import fold
from invint.models.networks import Network
from invint.models.registry import MODELS, create_model
from invint.recipes.schedule import learning_rate
from invint.train.device import Execution
from invint.train.evaluate import logits_of
from invint.train.loop import Meter, Objective, fit, make_optimizer

SMALLEST = 16  # side of the images a network is given, in pixels
LAST_RATE = 0.01  # of the first
FULL = 65535  # images of any type are kept with sixteen bits while a network learns from them
BATCH = 256  # images asked at a time

# Estimators pickled by 0.1 name classes by the modules that held them then.
MOVED = {
    "models.folding": "models.fold",
    "models.network": "models.networks",
    "nn.attention": "nn.heads",
    "nn.dropout": "nn.layers",
    "nn.mlp": "nn.heads",
    "nn.normalization": "nn.layers",
    "nn.pooling": "nn.layers",
    "nn.steerable_integration": "nn.heads",
    "nn.weighted_sums": "nn.heads",
}
for _old, _new in MOVED.items():
    sys.modules.setdefault(f"invint.{_old}", sys.modules[f"invint.{_new}"])


class InvariantClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of small images whose answers do not change when an image turns.

    Images are `(n, h, w)`, `(n, h, w, c)`, or flat `(n, features)` as scikit-learn keeps them. They
    are scaled to [0, 1] (bytes by 255, all else by the smallest and largest value among the images
    trained on), enlarged a whole number of times if smaller than 16 pixels, and padded with the
    darkest value to a square. On one machine, answers depend on `random_state` and the data alone.

    Args:
        head: Head of a steerable network: `max`, `avg`, `monomials`, `global-ws`, `local-ws`,
            `mlp`, `attention` or `sf-ii`; `None` for a plain network. None is known
            to be better than `max` on small images: see the results in the documentation.
        group: Its symmetries: `C8` are eight rotations, `D4` four with their mirror images.
        network: Name of the network; `cnn-small` with `head=None` is an ordinary one.
        steps: Steps of training.
        batch_size: Images per step.
        lr: Learning rate at the start; it falls to a hundredth.
        dropout: Fraction of activations dropped in training.
        augment: Any of `rotate`, `crop`, `flip`, `cutout`: what is done to images in training.
        class_weight: `balanced` to weight classes inversely to how often they occur, or a
            dictionary of weights by class.
        image_shape: `(h, w)` or `(h, w, c)` of flat images; one number may be -1. By default flat
            images are taken for grey squares.
        random_state: Of the weights, the batches and dropout.
        device: `cpu`, `cuda` or `mps`; by default CUDA where it is.

    Attributes:
        classes_: Labels of the classes, in the order of the probabilities.
        n_features_in_: Numbers in an image.
        network_: The trained network, a `torch.nn.Module` on the CPU.
        image_shape_: Height, width and channels of the images.
        loss_curve_: Loss of each tenth of the training.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.model_selection import cross_val_score
        >>> X, y = load_digits(return_X_y=True)
        >>> scores = cross_val_score(InvariantClassifier(steps=20), X[:100], y[:100], cv=2)
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        head: str | None = "max",
        group: str | None = "C8",
        network: str = "sfcnn-small",
        steps: int = 200,
        batch_size: int = 64,
        lr: float = 1e-2,
        dropout: float = 0.1,
        augment: Sequence[str] = ("rotate",),
        class_weight: str | Mapping[Any, float] | None = None,
        image_shape: Sequence[int] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
    ) -> None:
        self.head = head
        self.group = group
        self.network = network
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.dropout = dropout
        self.augment = augment
        self.class_weight = class_weight
        self.image_shape = image_shape
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> "InvariantClassifier":  # noqa: N803
        """Train a network on images and their labels.

        Args:
            X: Images `(n, h, w)`, `(n, h, w, c)` or `(n, features)`, of any numbers.
            y: Label of each: numbers or strings.
        """
        if self.steps < 1 or self.batch_size < 2:
            raise ConfigError(
                "InvariantClassifier: expected at least 1 step and 2 images per step, got "
                f"{self.steps} and {self.batch_size}"
            )
        values, answers = validate_data(
            self, X, y, dtype="numeric", ensure_2d=False, allow_nd=True, ensure_min_samples=2
        )
        check_classification_targets(answers)
        self.classes_, labels = np.unique(answers, return_inverse=True)
        if len(self.classes_) < 2:
            raise ConfigError(
                "InvariantClassifier: expected images of at least 2 classes, got 1 class "
                f"({self.classes_[0]!r})"
            )
        self.n_features_in_ = math.prod(values.shape[1:])
        self.image_shape_ = self._shape_of(values)
        byte = values.dtype == np.uint8
        self._range = (0.0, 255.0) if byte else (float(values.min()), float(values.max()))
        stored = (self._images(values).clamp(0, 1) * FULL).round().to(torch.int32).to(torch.uint16)
        part = Split(stored, torch.from_numpy(labels.astype(np.int64)))
        self._normal = normalisation(part)
        self._train(part, self._weights(answers))
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the most likely label of each image."""
        best = self.predict_proba(X).argmax(axis=1)
        chosen: NDArray[Any] = self.classes_[best]
        return chosen

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class, `(n, classes)`, in the order of `classes_`."""
        check_is_fitted(self)
        images = self._images(self._checked(X))
        execution = self._execution
        network: nn.Module = fold(self.network_).to(execution.torch_device)
        exact = execution.device == "cpu"  # then no image changes the answer to another
        network, images = (network.double(), images.double()) if exact else (network, images)
        mean, std = (torch.tensor(each).to(images)[:, None, None] for each in self._normal)
        parts = torch.split((images - mean) / std, BATCH)
        unknown = torch.zeros(BATCH, dtype=torch.int64)
        batches = ((part.to(execution.torch_device), unknown[: len(part)]) for part in parts)
        logits, _ = logits_of(network, batches)
        probabilities: NDArray[np.float64] = logits.double().softmax(dim=1).numpy()
        return probabilities

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    @property
    def _execution(self) -> Execution:
        return Execution(device=self.device, precision="float32").decided()

    def _train(self, part: Split, weights: Tensor | None) -> None:
        """Make all steps; keep the network and the mean loss of each tenth of them."""
        execution, seed, (mean, std) = self._execution, self._seed(), self._normal
        device = execution.torch_device
        batches = Batches(
            part,
            batch_size=self.batch_size,
            seed=seed,
            augment=tuple(self.augment),
            mean=mean,
            std=std,
            device=device,
        )
        with execution.applied():
            torch.manual_seed(seed)
            network = self._build(part).to(device)
            objective = Objective(network, reg=1e-3, elastic=1e-7, class_weights=weights).to(device)
            optimizer = make_optimizer(network, "adam", lr=self.lr)
            meter, self.loss_curve_ = Meter(device), []
            marks = sorted({self.steps * tenth // 10 for tenth in range(11)})
            for tenth in pairwise(marks):
                steps = range(*tenth)
                fit(objective, optimizer, batches, steps=steps, rate=self._rate, meter=meter)
                self.loss_curve_.append(meter.read()["loss"])
        if not math.isfinite(self.loss_curve_[-1]):
            raise ConfigError(
                "InvariantClassifier: the loss is NaN or infinite; try a smaller lr than "
                f"{self.lr:g}"
            )
        self.network_ = network.cpu().eval()

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31))

    def _build(self, part: Split) -> Network:
        plain = self.network in MODELS and MODELS[self.network].group is None
        _, channels, height, width = part.images.shape
        return create_model(
            self.network,
            head=self.head,
            **({} if plain else {"group": self.group}),
            num_classes=len(self.classes_),
            in_channels=channels,
            image_size=(height, width),
            dropout=self.dropout,
        )

    def _rate(self, step: int) -> float:
        done = step / self.steps  # the whole training counts as one epoch
        return learning_rate(done, lr=self.lr, decay="exponential", factor=LAST_RATE, epochs=(1.0,))

    def _weights(self, answers: NDArray[Any]) -> Tensor | None:
        if self.class_weight is None:
            return None
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=answers)
        return torch.tensor(weights, dtype=torch.float32)

    def _checked(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return images as an array, if they are of the shape of those trained on."""
        values: NDArray[Any] = check_array(X, dtype="numeric", ensure_2d=False, allow_nd=True)
        if values.ndim == 2:  # then the number and names of columns must be those of training
            validate_data(self, X, dtype="numeric", reset=False)
        found = self._shape_of(values)
        if found != self.image_shape_:
            raise ShapeError(
                f"InvariantClassifier: expected images of height, width and channels "
                f"{self.image_shape_}, as in training, got {found}"
            )
        return values

    def _shape_of(self, values: NDArray[Any]) -> tuple[int, int, int]:
        """Return height, width and channels of an image."""
        if values.ndim == 4:
            return values.shape[1], values.shape[2], values.shape[3]
        if values.ndim == 3:
            return values.shape[1], values.shape[2], 1
        if values.ndim != 2:
            raise ShapeError(
                "InvariantClassifier: expected (n, h, w), (n, h, w, c) or (n, features), got "
                f"{values.shape}. Reshape your data"
            )
        return _flat_shape(values.shape[1], self.image_shape)

    def _images(self, values: NDArray[Any]) -> Tensor:
        """Return images as float `(n, c, h, w)`, scaled, enlarged and padded to a square."""
        height, width, _ = self.image_shape_
        low, high = self._range
        scaled = torch.from_numpy((values.astype(np.float64) - low) / ((high - low) or 1.0))
        images = rearrange(scaled.flatten(1).float(), "n (h w c) -> n c h w", h=height, w=width)
        times = -(-SMALLEST // max(height, width))
        if times > 1:
            images = interpolate(images, scale_factor=times, mode="bilinear")
        height, width = images.shape[-2:]
        side = max(height, width)
        above, left = (side - height) // 2, (side - width) // 2
        borders = (left, side - width - left, above, side - height - above)
        return pad(images.contiguous(), borders)


def _flat_shape(features: int, given: Sequence[int] | None) -> tuple[int, int, int]:
    """Return height, width and channels of flat images."""
    if given is None:
        side = math.isqrt(features)
        if side**2 != features:
            raise ShapeError(
                f"InvariantClassifier: {features} features are no square image; give image_shape, "
                "as (height, width) or (height, width, channels)"
            )
        return side, side, 1
    shape = [*given, 1] if len(given) == 2 else [*given]
    if len(shape) != 3 or any(each < 1 and each != -1 for each in shape) or shape.count(-1) > 1:
        raise ConfigError(
            "InvariantClassifier: expected image_shape (height, width) or (height, width, "
            f"channels), one of them perhaps -1, got {tuple(given)}"
        )
    known = math.prod(each for each in shape if each != -1)
    height, width, channels = (features // known if each == -1 else each for each in shape)
    if height * width * channels != features:
        raise ShapeError(
            f"InvariantClassifier: {features} features do not make images of {tuple(given)}; "
            "correct image_shape"
        )
    return height, width, channels
