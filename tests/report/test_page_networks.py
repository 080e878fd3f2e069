from pathlib import Path

import torch
from support.written_runs import tiny_dataset, write_run

from invint.groups import Dihedral
from invint.models.registry import create_model
from invint.nn import LiftConv2d
from invint.report.page import hardest_images, learned_monomials, store_of, turning_filter
from invint.study.records import read_predictions, read_run


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
