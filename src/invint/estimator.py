"""A scikit-learn classifier of small images: `fit`, `predict`, `predict_proba`, `score`.

Axes:  n image   c channel   h w pixel
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn.functional import interpolate, pad

from invint.data.batches import Batches, test_batches
from invint.data.dataset import Split, holdout
from invint.errors import ConfigError, ShapeError
from invint.models.fold import fold
from invint.models.networks import Network
from invint.models.registry import MODELS, create_model
from invint.recipes.schedule import learning_rate
from invint.train.averages import with_statistics
from invint.train.device import Execution
from invint.train.evaluate import logits_of, scores_of
from invint.train.loop import Meter, Objective, fit, make_optimizer
from invint.train.setup import normalisation_for

SMALLEST = 16  # side of the images a network is given, in pixels
STRENGTH = 0.01  # C of the logistic regression, of features of variance 1
SMALLEST_PRETRAINED = 128  # learnt from photographs of 224
WARM_UP = 0.05  # of the training; before that the learning rate rises
STATISTICS = 20  # batches from which statistics of normalisation are found anew at the end
STEPS = 15  # of training, times the square root of the number of images
FEWEST, MOST = 200, 4000  # of them
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
    trained on), enlarged a whole number of times if smaller than 16 pixels (128 for pretrained
    networks), and padded with the darkest value to a square. On one machine, answers depend on
    `random_state` and the data alone.

    Args:
        head: Head of a steerable network: `max`, `avg`, `monomials`, `global-ws`, `local-ws`,
            `mlp`, `attention` or `sf-ii`; by default that of the network, which is `max`. No other
            is known to be better on small images: see the results in the documentation.
        group: Its symmetries: `C8` are eight rotations, `D4` four with their mirror images; by
            default those of the network, here `C8`.
        network: Name of the network; `cnn-small` is an ordinary one.
        pretrained: Take the network as ImageNet left it and learn no more than a linear classifier
            of its features, in seconds: for `orbit-efficientnet-lite0`, which is exactly invariant
            to quarter turns, and `efficientnet-lite0`, which is not invariant; with the extra
            `pretrained`. How to train, from `steps` to `augment`, then has no meaning.
        steps: Steps of training; by default 15 times the square root of the number of images
            learnt from, from 200 to 4,000.
        batch_size: Images per step.
        lr: Learning rate at its highest; it rises for a twentieth of the training, and falls to
            zero along a cosine.
        dropout: Fraction of activations dropped in training.
        augment: Any of `rotate`, `crop`, `flip`, `cutout`: what is done to images in training.
        class_weight: `balanced` to weight classes inversely to how often they occur, or a
            dictionary of weights by class.
        image_shape: `(h, w)` or `(h, w, c)` of flat images; one number may be -1. By default flat
            images are taken for grey squares.
        early_stopping: Hold images out, test on them ten times in the training, and keep the
            network that was right most often, the last of several.
        validation_fraction: Fraction of the images held out for that.
        n_iter_no_change: Tests without a better result after which training stops.
        verbose: Show a bar with the time left.
        random_state: Of the weights, the batches and dropout.
        device: `cpu`, `cuda` or `mps`; by default CUDA where it is.

    Attributes:
        classes_: Labels of the classes, in the order of the probabilities.
        n_features_in_: Numbers in an image.
        network_: The trained network, a `torch.nn.Module` on the CPU.
        image_shape_: Height, width and channels of the images.
        loss_curve_: Loss of each tenth of the training.
        validation_scores_: Accuracy after each tenth on the images held out, if there are any.
        n_iter_: Steps made.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.model_selection import cross_val_score
        >>> X, y = load_digits(return_X_y=True)
        >>> scores = cross_val_score(InvariantClassifier(steps=10), X[:100], y[:100], cv=2)
    """

    _smallest = SMALLEST  # until it is fitted, and of those that 0.1 pickled

    def __init__(  # noqa: PLR0913
        self,
        *,
        head: str | None = None,
        group: str | None = None,
        network: str = "sfcnn-small",
        pretrained: bool = False,
        steps: int | None = None,
        batch_size: int = 64,
        lr: float = 1e-2,
        dropout: float = 0.0,
        augment: Sequence[str] = ("rotate",),
        class_weight: str | Mapping[Any, float] | None = None,
        image_shape: Sequence[int] | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 3,
        verbose: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        device: str | None = None,
    ) -> None:
        self.head = head
        self.group = group
        self.network = network
        self.pretrained = pretrained
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.dropout = dropout
        self.augment = augment
        self.class_weight = class_weight
        self.image_shape = image_shape
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> "InvariantClassifier":  # noqa: N803
        """Train a network on images and their labels.

        Args:
            X: Images `(n, h, w)`, `(n, h, w, c)` or `(n, features)`, of any numbers.
            y: Label of each: numbers or strings.
        """
        self._check_counts()
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
        self._smallest = SMALLEST_PRETRAINED if self.pretrained else SMALLEST
        byte = values.dtype == np.uint8
        self._range = (0.0, 255.0) if byte else (float(values.min()), float(values.max()))
        stored = (self._images(values).clamp(0, 1) * FULL).round().to(torch.int32).to(torch.uint16)
        part = Split(stored, torch.from_numpy(labels.astype(np.int64)))
        self._normal = normalisation_for(self.network, part)
        if self.pretrained:
            self._train_classifier(part)
        else:
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
        parts = torch.split((images - mean) / std, _images_at_once(images))
        unknown = torch.zeros(BATCH, dtype=torch.int64)
        batches = ((part.to(execution.torch_device), unknown[: len(part)]) for part in parts)
        logits, _ = logits_of(network, batches)
        probabilities: NDArray[np.float64] = logits.double().softmax(dim=1).numpy()
        return probabilities

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give an estimator pickled by 0.1 the options that came later."""
        later = {name: each.default for name, each in signature(type(self)).parameters.items()}
        super().__setstate__(later | state)

    def _check_counts(self) -> None:
        steps = 1 if self.steps is None else self.steps
        if steps < 1 or self.batch_size < 2 or self.n_iter_no_change < 1:
            raise ConfigError(
                "InvariantClassifier: expected at least 1 step, 2 images per step and 1 test for "
                f"n_iter_no_change, got {steps}, {self.batch_size} and {self.n_iter_no_change}"
            )

    @property
    def _execution(self) -> Execution:
        return Execution(device=self.device, precision="float32").decided()

    def _train(self, part: Split, weights: Tensor | None) -> None:
        """Make all steps, or as many as help; keep the network and the loss of each tenth."""
        execution, seed = self._execution, self._seed()
        learnt, held = self._held_out(part, seed)
        steps = steps_for(len(learnt)) if self.steps is None else self.steps
        batches, meter = self._batches(learnt, seed), Meter(execution.torch_device)
        self.loss_curve_: list[float] = []
        self.validation_scores_: list[float] = []
        with execution.applied(), _progress(steps, shown=bool(self.verbose)) as moved:
            torch.manual_seed(seed)
            network = self._build(part, dropout=self.dropout, norm_features=True)
            network.to(execution.torch_device)
            objective = Objective(network, reg=1e-3, elastic=1e-7, class_weights=weights)
            learn = partial(
                fit,
                objective.to(execution.torch_device),
                make_optimizer(network, "adam", lr=self.lr),
                batches,
                rate=lambda step: self._rate((step + 0.5) / steps),
                meter=meter,
                after_step=moved,
            )
            marks = sorted({steps * tenth // 10 for tenth in range(11)})
            for tenth in pairwise(marks):
                self.n_iter_ = learn(steps=range(*tenth))
                self.loss_curve_.append(meter.read()["loss"])
                if held is not None and self._waited_enough(network, batches, held):
                    break
            if held is None:
                self.network_ = self._settled(network, batches)
        self._check_loss()

    def _train_classifier(self, part: Split) -> None:
        """Fit the last layer of a pretrained network, a logistic regression of its features."""
        with self._execution.applied():
            torch.manual_seed(self._seed())
            network = self._build(part, pretrained=True).eval()
            if any(True for _ in network.head.parameters()):
                raise ConfigError(
                    f"InvariantClassifier: the head {self.head!r} has weights to be learnt, and "
                    "pretrained networks learn their last layer alone; expected avg or max"
                )
            features = self._features(network, part)
        scaler = StandardScaler().fit(features)
        linear = LogisticRegression(C=STRENGTH, class_weight=self.class_weight, max_iter=1000)
        labels = self.classes_[part.labels.numpy()]
        linear.fit(scaler.transform(features), labels)
        _set_layer(network.classifier, scaler, linear)
        self.n_iter_, self.validation_scores_ = int(linear.n_iter_.max()), []
        self.loss_curve_ = [log_loss(labels, linear.predict_proba(scaler.transform(features)))]
        self.network_ = network

    def _features(self, network: Network, part: Split) -> NDArray[np.float64]:
        """Return what the classifier of a network is given."""
        device, (mean, std) = self._execution.torch_device, self._normal
        body = fold(nn.Sequential(network.features, network.head)).to(device)
        size = _images_at_once(part.images)
        images = test_batches(part, batch_size=size, mean=mean, std=std, device=device)
        found, _ = logits_of(body, images)
        values: NDArray[np.float64] = found.double().numpy()
        return values

    def _check_loss(self) -> None:
        if not math.isfinite(self.loss_curve_[-1]):
            raise ConfigError(
                "InvariantClassifier: the loss is NaN or infinite; try a smaller lr than "
                f"{self.lr:g}"
            )

    def _held_out(self, part: Split, seed: int) -> tuple[Split, Split | None]:
        """Return the images to learn from, and those that say when to stop."""
        if not self.early_stopping:
            return part, None
        fraction = self.validation_fraction
        kept, held = holdout(part.labels, fraction, seed, name="InvariantClassifier")
        return part[kept], part[held]

    def _batches(self, part: Split, seed: int) -> Batches:
        mean, std = self._normal
        return Batches(
            part,
            batch_size=self.batch_size,
            seed=seed,
            augment=tuple(self.augment),
            mean=mean,
            std=std,
            device=self._execution.torch_device,
        )

    def _settled(self, network: nn.Module, batches: Batches) -> nn.Module:
        """Return the network as it answers, with statistics of the batches that come next."""
        count = min(STATISTICS, self.n_iter_)
        following = batches(range(self.n_iter_, self.n_iter_ + count))
        return with_statistics(network, following, self._execution.autocast).cpu()

    def _waited_enough(self, network: nn.Module, batches: Batches, held: Split) -> bool:
        """Test a network on the images held out, keep it if none was better; is it time to stop?"""
        settled, (mean, std) = self._settled(network, batches), self._normal
        images = test_batches(held, batch_size=BATCH, mean=mean, std=std)
        scores = self.validation_scores_
        scores.append(1 - scores_of(*logits_of(settled, images)).error)
        if scores[-1] == max(scores):
            self.network_ = settled
        best = max(range(len(scores)), key=lambda look: (scores[look], look))
        return len(scores) - 1 - best >= self.n_iter_no_change

    def _seed(self) -> int:
        state = self.random_state
        if isinstance(state, int | np.integer):
            return int(state)
        return int(check_random_state(state).randint(2**31))

    def _build(self, part: Split, **options: Any) -> Network:
        plain = self.network in MODELS and MODELS[self.network].group is None
        _, channels, height, width = part.images.shape
        return create_model(
            self.network,
            head=self.head,
            group=None if plain else self.group,
            num_classes=len(self.classes_),
            in_channels=channels,
            image_size=(height, width),
            **options,
        )

    def _rate(self, done: float) -> float:
        """Return the learning rate when a part of the training is done."""
        return learning_rate(done, lr=self.lr, decay="cosine", length=1.0, warmup=WARM_UP)

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
        times = -(-self._smallest // max(height, width))
        if times > 1:
            images = interpolate(images, scale_factor=times, mode="bilinear")
        height, width = images.shape[-2:]
        side = max(height, width)
        above, left = (side - height) // 2, (side - width) // 2
        borders = (left, side - width - left, above, side - height - above)
        return pad(images.contiguous(), borders)


def steps_for(images: int) -> int:
    r"""Return how many steps so many images are worth: $15 \sqrt{n}$, within bounds."""
    return min(max(round(STEPS * math.sqrt(images)), FEWEST), MOST)


@contextmanager
def _progress(steps: int, *, shown: bool) -> Iterator[Callable[[int], bool]]:
    """Yield what is told how many steps are done; show them on stderr if asked."""
    with Progress(console=Console(stderr=True), disable=not shown) as progress:
        task = progress.add_task("training", total=steps)

        def moved(step: int) -> bool:
            progress.update(task, completed=step)
            return False  # go on

        yield moved


def _images_at_once(images: Tensor) -> int:
    """Return how many images of a size are worked on together: 256 of up to 32 x 32 pixels."""
    return max(min(BATCH, BATCH * 32**2 // images[0, 0].numel()), 1)


def _set_layer(layer: nn.Module, scaler: StandardScaler, linear: LogisticRegression) -> None:
    """Make a dense layer compute a logistic regression of standardised features."""
    weight = linear.coef_ / scaler.scale_
    bias = linear.intercept_ - weight @ scaler.mean_
    if len(weight) == 1:  # two classes: the logits are half as much, with both signs
        weight, bias = (np.concatenate([-each, each]) / 2 for each in (weight, bias))
    state = {"weight": weight, "bias": bias}
    layer.load_state_dict({name: torch.from_numpy(each) for name, each in state.items()})


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
