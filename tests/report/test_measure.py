from pathlib import Path

import pytest
import torch
from support.written_runs import tiny_dataset, write_run

from invint.audit import turned
from invint.data.batches import scaled
from invint.data.dataset import Dataset
from invint.export import load_model
from invint.groups import Dihedral
from invint.models.registry import create_model
from invint.nn import LiftConv2d
from invint.recipes.recipe import DataChoice
from invint.report import measure
from invint.report.measure import (
    audit_run,
    confidence_by_angle,
    hardest_images,
    learned_monomials,
    least_sure,
    measure_turns,
    missed_images,
    relevance_of,
    scaled_calibration,
    store_of,
    turning_filter,
)
from invint.study.records import read_predictions, read_run
from invint.train.evaluate import calibration_bins, temperature_of


def test_the_hardest_images_are_those_most_runs_miss(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=40)) for seed in range(4)]
    labels = tiny_dataset().test.labels.tolist()
    missed = [0] * 120
    for run in runs:
        predictions = read_predictions(run)
        assert predictions is not None
        for index, found in enumerate(predictions[0].argmax(1).tolist()):
            missed[index] += found != labels[index]
    hard = hardest_images(runs, 10)
    assert [each.wrong for each in hard] == sorted(missed, reverse=True)[:10]
    for each in hard:
        assert each.wrong == missed[each.index]
        assert (each.label, each.runs) == (labels[each.index], 4)
        assert each.found == (each.label + 1) % 10


def test_images_all_get_right_have_no_wrong_label(tmp_path: Path) -> None:
    hard = hardest_images([read_run(write_run(tmp_path, wrong=0))], 3)
    assert [(each.found, each.wrong) for each in hard] == [(None, 0)] * 3


def test_networks_come_back_from_a_run(tmp_path: Path) -> None:
    network = store_of(read_run(write_run(tmp_path, "monomials"))).network()
    monomials = learned_monomials(network)
    assert monomials is not None
    assert len(monomials) == 5
    assert learned_monomials(create_model("cnn-small")) is None
    assert turning_filter(create_model("cnn-small")) is None


def test_the_strongest_filter_is_shown_at_every_element() -> None:
    network = create_model("sfcnn-small", group="D4", in_channels=2)
    found = turning_filter(network)
    assert found is not None
    group, filters = found
    assert group == Dihedral(4)
    layer = next(each for each in network.modules() if isinstance(each, LiftConv2d))
    folded = layer.filters().detach()
    strengths = []
    for channel in range(layer.out_channels):
        own = folded[8 * channel : 8 * channel + 8].mean(dim=1)
        strengths.append((own.square().sum().item(), own))
    torch.testing.assert_close(filters, max(strengths, key=lambda pair: pair[0])[1])
    turned = torch.rot90(filters[0], 1, (0, 1))
    torch.testing.assert_close(filters[1], turned)


def load(_: DataChoice) -> Dataset:
    return tiny_dataset()


def test_the_images_of_a_class_are_its_own_most_often_wrong(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=40)) for seed in range(4)]
    missed = missed_images(runs)
    ranked = hardest_images(runs, 120)
    assert [each.error for each in missed] == sorted((m.error for m in missed), reverse=True)
    for each in missed:
        own = [hard for hard in ranked if hard.label == each.label and hard.wrong]
        assert list(each.hard) == own[:5]
        errors = [run.per_class[each.label].error for run in runs]
        assert each.error == pytest.approx(sum(errors) / 4)
        assert each.images == 12


def test_classes_without_errors_are_left_out(tmp_path: Path) -> None:
    assert missed_images([read_run(write_run(tmp_path, wrong=0))]) == []


def test_the_least_sure_angle_is_that_of_the_lowest_mean_confidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "IMAGES", 10)
    run = read_run(write_run(tmp_path, "cnn"))
    found = least_sure(run, load)
    model = load_model(store_of(run).model)
    some = tiny_dataset().test.images[torch.linspace(0, 119, 10).long()]
    sure = {}
    for angle in range(0, 360, 15):
        logits = model(turned(scaled(some), float(angle), False, "disc"))
        sure[float(angle)] = logits.softmax(dim=1).max(dim=1).values
    assert found.confidence == pytest.approx(min(each.mean().item() for each in sure.values()))
    assert found.confidence == pytest.approx(sure[found.angle].mean().item())
    assert list(found.sure) == pytest.approx(sorted(sure[found.angle].tolist())[:5])
    circle = dict(confidence_by_angle(audit_run(run, load)))
    assert circle == {angle: pytest.approx(each.mean().item()) for angle, each in sure.items()}


def test_turns_measured_without_confidence_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "IMAGES", 4)
    run = read_run(write_run(tmp_path, turned=True))
    assert measure_turns(run, load) == run.turns  # what is known is not measured again
    assert store_of(run).turns.least_sure is None  # type: ignore[union-attr]
    audit = audit_run(run, load)
    assert audit.least_sure is not None
    assert store_of(run).turns == audit


def test_no_image_has_a_say_in_its_own_temperature(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, wrong=30))
    pair = read_predictions(run)
    assert pair is not None
    logits, labels = pair[0].double(), pair[1]
    even, odd = (temperature_of(logits[k::2], labels[k::2]) for k in (0, 1))
    scaled_logits = logits.clone()
    for place in range(len(labels)):
        scaled_logits[place] /= odd if place % 2 == 0 else even
    found = scaled_calibration(run)
    assert found is not None
    assert found[0] == pytest.approx((even * odd) ** 0.5)
    assert found[1] == calibration_bins(scaled_logits, labels)
    (tmp_path / run.folder / "predictions.safetensors").unlink()  # type: ignore[operator]
    assert scaled_calibration(run) is None


def test_relevance_is_of_one_image_of_each_class(tmp_path: Path) -> None:
    images, relevance, labels, found = relevance_of(read_run(write_run(tmp_path)), load)
    assert labels == (0, 1, 2, 3, 4)
    assert torch.equal(images, scaled(tiny_dataset().test.images[:5]))
    assert relevance.shape == (5, 20, 20)
    assert len(found) == 5
