import base64
import io
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.written_runs import tiny_dataset, write_run

from invint.groups import Cyclic, Dihedral
from invint.models.registry import create_model
from invint.nn import LiftConv2d, Monomials
from invint.report.figures import Series, series_of
from invint.report.networks import learned_monomials, store_of, turning_filter
from invint.report.pictures import (
    filter_figure,
    hardest_figure,
    hardest_images,
    monomial_figure,
    picture_uri,
    selection_figure,
)
from invint.study.records import read_predictions, read_run

OWN = Series("digits/monomials", "monomials", 2)


def test_pictures_come_back_pixel_by_pixel() -> None:
    generator = torch.Generator().manual_seed(0)
    for channels in (1, 3):
        image = torch.randint(256, (channels, 6, 5), generator=generator).to(torch.uint8)
        kind, _, text = picture_uri(image).partition(",")
        assert kind == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(text))) as picture:
            assert picture.size == (5, 6)
            for y in range(6):
                for x in range(5):
                    value = picture.getpixel((x, y))
                    expected = image[:, y, x].tolist()
                    assert (list(value) if isinstance(value, tuple) else [value]) == expected
    deep = torch.tensor([[[0, 65535]]], dtype=torch.uint16)
    with Image.open(io.BytesIO(base64.b64decode(picture_uri(deep).partition(",")[2]))) as picture:
        assert [picture.getpixel((x, 0)) for x in (0, 1)] == [0, 255]


def test_the_hardest_images_are_those_most_runs_miss(tmp_path: Path) -> None:
    runs = [read_run(write_run(tmp_path, seed=seed, wrong=40)) for seed in range(4)]
    labels = tiny_dataset().test.labels.tolist()
    missed = [0] * 120
    for run in runs:
        predictions = read_predictions(run)
        assert predictions is not None
        for number, found in enumerate(predictions[0].argmax(1).tolist()):
            missed[number] += found != labels[number]
    hard = hardest_images(runs, 10)
    assert [each.wrong for each in hard] == sorted(missed, reverse=True)[:10]
    for each in hard:
        assert each.wrong == missed[each.number]
        assert (each.label, each.runs) == (labels[each.number], 4)
        assert each.found == (each.label + 1) % 10
    names = [str(k) for k in range(10)]
    figure = hardest_figure(hard, tiny_dataset().test, names, "digits")
    texts = [each.text for each in ET.fromstring(figure.svg).iter("text")]
    assert texts[:2] == [f"{hard[0].label} → {hard[0].found}", f"{hard[0].wrong} of 4"]


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


@pytest.mark.parametrize("group", [Cyclic(3), Cyclic(16), Dihedral(4)])
def test_filters_are_drawn_with_their_angles(tmp_path: Path, group: Cyclic | Dihedral) -> None:
    run = read_run(write_run(tmp_path))
    figure = filter_figure(group, torch.randn(group.order, 5, 5), run, OWN)
    texts = [each.text or "" for each in ET.fromstring(figure.svg).iter("text")]
    assert len(texts) == group.order
    assert texts[1] == f"{360 / group.n:g}°"
    assert sum("⇅" in text for text in texts) == (group.order // 2 if group.has_flips else 0)


def test_factors_sit_at_their_distances_and_angles(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path))
    ray = Monomials(((0, 1, 3),), ((0, 0, 0),), ((0.5, 1.0, -0.25),))
    root = ET.fromstring(monomial_figure(ray, run, OWN).svg)
    circles = [(float(c.attrib["cx"]), c.attrib["class"]) for c in root.iter("circle")]
    (x0, _), (x1, _), (x3, kind) = circles
    assert (x3 - x0) == pytest.approx(3 * (x1 - x0), abs=0.2)
    assert kind == "hollow"
    free = Monomials(((0, 2),), ((0, math.pi / 2),), ((0.5, 1.0),))
    root = ET.fromstring(monomial_figure(free, run, OWN).svg)
    first, second = root.iter("circle")
    assert first.attrib["cx"] == second.attrib["cx"]
    assert float(second.attrib["cy"]) < float(first.attrib["cy"])


def test_kept_monomials_are_the_coloured_ones(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "monomials"))
    figure = selection_figure(run, OWN)
    assert figure is not None
    bars = list(ET.fromstring(figure.svg).iter("rect"))
    kept = [bar for bar in bars if "solid" in bar.attrib["class"]]
    assert (len(bars), len(kept)) == (12, 5)
    told = {int((bar[0].text or "").split()[1].rstrip(":")) for bar in kept}
    assert told == set(run.selections[0]["kept"])
    assert selection_figure(read_run(write_run(tmp_path)), OWN) is None


def test_names_leave_out_what_all_share() -> None:
    assert [each.name for each in series_of(["a/x", "a/y"]).values()] == ["x", "y"]
    assert [each.name for each in series_of(["a/x", "b/x"]).values()] == ["a/x", "b/x"]
    assert [each.kind for each in series_of([f"a/{k}" for k in range(11)]).values()][10] == "s0"
