import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from invint.errors import DataError
from invint.fit.linear import (
    FEW,
    FOLDS,
    REPEATS,
    Judgement,
    cross_validation,
    excess,
    fit_linear,
    judge,
)
from invint.models.orbits import pose_logits


def blobs(count: int, features: int, classes: int = 3, gap: float = 1.5) -> tuple[Tensor, Tensor]:
    """Return points around a centre for each class, on scales of their own."""
    labels = torch.arange(count) % classes
    centres = gap * torch.randn(classes, features)
    scales = torch.rand(features) * 5 + 0.1
    return (centres[labels] + torch.randn(count, features)) * scales + 3, labels


@pytest.mark.parametrize("features", [5, 200])  # fewer than images, and more
@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_logistic_regression_on_standardised_features(features: int, classes: int) -> None:
    values, labels = blobs(60, features, classes)
    weight, bias = fit_linear(values, labels, strength=0.1, classes=classes)
    scaler = StandardScaler().fit(values.double())
    known = LogisticRegression(C=0.1, tol=1e-8, max_iter=1000)
    known.fit(scaler.transform(values.double()), labels)
    new = torch.randn(20, features) * 3
    found = (new.double() @ weight.T + bias).softmax(dim=1)
    expected = torch.from_numpy(known.predict_proba(scaler.transform(new.double())))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_feature_that_never_changes_does_no_harm() -> None:
    values, labels = blobs(30, 4)
    values[:, 2] = 7.0
    weight, bias = fit_linear(values, labels, strength=1.0, classes=3)
    assert weight.isfinite().all()
    assert bias.isfinite().all()


def test_labels_that_mean_nothing_are_not_learnt() -> None:
    values = torch.randn(120, 300)
    labels = torch.randint(0, 2, (120,))
    folds = cross_validation(labels, None, ["a", "b"], seed=0)
    judged = judge(values, labels, folds, 2)
    assert judged.error > 0.3  # who had seen them would make none: 300 features tell 120 apart
    assert len(judged.logits) == 120


def test_what_can_be_learnt_is_and_each_image_is_judged() -> None:
    values, labels = blobs(90, 10)
    judged = judge(values, labels, cross_validation(labels, None, "abc", seed=0), 3)
    assert judged.error < 0.1
    assert torch.equal(judged.images, torch.arange(90))
    assert judged.strength is not None


def test_a_class_that_a_fold_does_not_show_is_never_answered() -> None:
    values, labels = blobs(30, 4)
    kept, held = torch.arange(30)[labels < 2], torch.arange(30)[labels == 2]
    judged = judge(values, labels, [(kept, held)], 3)
    assert judged.error == 1.0
    assert judged.logits.isfinite().all()
    assert torch.equal(judged.images, held)


def test_folds_hold_every_image_out_once_with_all_classes_on_both_sides() -> None:
    labels = torch.arange(FEW + 60) % 4
    folds = cross_validation(labels, None, "abcd", seed=0)
    assert len(folds) == FOLDS
    assert torch.equal(torch.cat([held for _, held in folds]).sort().values, torch.arange(FEW + 60))
    for kept, held in folds:
        assert not set(kept.tolist()) & set(held.tolist())
        assert set(labels[kept].tolist()) == set(labels[held].tolist()) == {0, 1, 2, 3}


def test_few_images_are_divided_several_times() -> None:
    labels = torch.arange(40) % 2
    folds = cross_validation(labels, None, "ab", seed=0)
    assert len(folds) == FOLDS * REPEATS
    assert not torch.equal(folds[0][1], folds[FOLDS][1])
    assert torch.equal(folds[0][1], cross_validation(labels, None, "ab", seed=0)[0][1])


def test_groups_are_never_divided() -> None:
    labels, groups = torch.arange(48) % 2, torch.arange(48) // 4
    for kept, held in cross_validation(labels, groups, "ab", seed=0):
        assert not set(groups[kept].tolist()) & set(groups[held].tolist())


def test_a_class_too_small_to_judge_by_is_named() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    with pytest.raises(DataError, match=r"too few are there of 'b' \(1\); .* --skip-class"):
        cross_validation(labels, None, ["a", "b"], seed=0)
    labels, groups = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 2])
    with pytest.raises(DataError, match=r"2 groups of each class, too few are there of 'b' \(1\)"):
        cross_validation(labels, groups, ["a", "b"], seed=0)


def test_the_copy_that_stands_upright_is_found() -> None:
    upright, labels = blobs(80, 12, gap=3.0)
    noise = torch.randn(80, 3, 12) - 8  # turned copies look alike, whatever they show
    copies = torch.cat([upright[:, None], noise], dim=1)
    judged = judge(copies, labels, cross_validation(labels, None, "abc", seed=0), 3)
    assert judged.error < 0.05
    weight, bias = fit_linear(copies, labels, strength=0.1, classes=3)
    assert weight.shape == (4, 12)
    logits = pose_logits(copies.double() @ weight.T + bias)
    assert (logits.argmax(dim=1) != labels).double().mean() < 0.05
    turned = pose_logits(copies.roll(1, dims=1).double() @ weight.T + bias)
    torch.testing.assert_close(turned, logits)


def judgement(wrong: list[int], images: list[int]) -> Judgement:
    labels = torch.zeros(len(images), dtype=torch.int64)
    answers = torch.tensor([int(each in wrong) for each in images])
    logits = torch.nn.functional.one_hot(answers, 2).double()
    return Judgement(torch.tensor(images), logits, labels)


def test_excess_is_that_of_the_images_both_judge() -> None:
    first = judgement([0, 1, 2, 3], list(range(10)))
    second = judgement([3], list(range(2, 8)))
    more, deviation = excess(first, second)
    gaps = torch.tensor([1.0, 0, 0, 0, 0, 0])  # on images 2 to 7
    assert more == pytest.approx(1 / 6)
    assert deviation == pytest.approx(gaps.std().item() / 6**0.5)
    assert excess(first, first) == (0.0, 0.0)
