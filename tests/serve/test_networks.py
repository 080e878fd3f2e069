import json
import time
from pathlib import Path

import pytest
import torch
from support.serving import write_network
from torch import Tensor

from invint.errors import ConfigError
from invint.export import load_model
from invint.models.fold import FoldedConv2d
from invint.serve.networks import ServedNetwork, default_angles, open_networks

FOREVER = float("inf")


def test_a_file_is_folded_and_answers_as_the_network_in_it(
    files: list[Path], networks: list[ServedNetwork]
) -> None:
    images = torch.rand(30, 1, 20, 20)
    for path, network in zip(files, networks, strict=True):
        expected = load_model(path)(images).softmax(dim=1)
        actual = network.probabilities(images, deadline=FOREVER)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    invariant = networks[1].run
    assert isinstance(invariant, torch.nn.Module)
    assert any(isinstance(each, FoldedConv2d) for each in invariant.modules())


def test_titles_are_those_of_the_cards(networks: list[ServedNetwork]) -> None:
    assert [each.title for each in networks] == ["cnn-small", "sfcnn-small, local-ws"]


def test_a_run_folder_goes_by_the_name_of_its_recipe(tmp_path: Path) -> None:
    write_network(tmp_path / "model.safetensors", "cnn-small")
    (tmp_path / "recipe.json").write_text(json.dumps({"name": "digits/cnn"}))
    assert open_networks([tmp_path])[0].title == "digits/cnn"


def test_two_networks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [write_network(tmp_path / f"{name}.safetensors", "cnn-small") for name in "ab"]
    titles = [each.title for each in open_networks(paths)]
    assert titles == ["cnn-small (a.safetensors)", "cnn-small (b.safetensors)"]


@pytest.mark.slow
def test_a_torch_export_file_can_be_served(tmp_path: Path) -> None:
    path = write_network(tmp_path / "network.pt2", "cnn-small")
    network = open_networks([path])[0]
    rows = network.probabilities(torch.rand(30, 1, 20, 20), deadline=FOREVER)
    torch.testing.assert_close(rows.sum(dim=1), torch.ones(30))


def test_says_that_a_folder_has_no_network(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expected the folder of a run, with recipe\.json"):
        open_networks([tmp_path])


def test_says_that_a_recipe_is_none(tmp_path: Path) -> None:
    write_network(tmp_path / "model.safetensors", "cnn-small")
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"recipe\.json: not the recipe of a run"):
        open_networks([tmp_path])


def test_says_which_images_it_cannot_show(tmp_path: Path) -> None:
    path = write_network(tmp_path / "wide.safetensors", "cnn-small", image_size=(20, 24))
    with pytest.raises(ConfigError, match=r"even side and 1 or 3 channels, but .* 1 x 20 x 24"):
        open_networks([path])


def test_refuses_to_compare_networks_of_other_classes(files: list[Path], tmp_path: Path) -> None:
    other = write_network(tmp_path / "b.safetensors", "cnn-small", class_names=("cat", "dog"))
    with pytest.raises(ConfigError, match="other classes than cnn-small; compare networks of the"):
        open_networks([files[0], other])


def test_the_circle_is_divided_less_finely_for_a_slow_network(
    networks: list[ServedNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("invint.serve.networks.time.monotonic", lambda: now)

    def slow(images: Tensor) -> Tensor:
        nonlocal now
        now += 0.008 * len(images)
        return torch.zeros(len(images), 10)

    snail = ServedNetwork("snail", networks[0].card, slow)
    assert default_angles([snail]) == 36
    assert default_angles([snail, snail]) == 24


def test_nothing_is_computed_after_the_deadline(networks: list[ServedNetwork]) -> None:
    with pytest.raises(TimeoutError):
        networks[0].probabilities(torch.rand(1, 1, 20, 20), deadline=time.monotonic() - 1)
