"""All of the pretrained network, trained further: where it begins, when it is judged and kept."""

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.folders import digit_pictures, write
from torch import Tensor

from invint.errors import Interrupted
from invint.export import load_network
from invint.fit import FitConfig
from invint.fit.advice import table_lines
from invint.fit.candidates import ORBIT, TUNED, tuned_recipe
from invint.fit.linear import Judgement
from invint.fit.schedule import Budget, run_stages
from invint.fit.search import Search
from invint.models.efficientnet import efficientnet_lite0
from invint.recipes.recipe import DataChoice
from invint.train import Callback
from invint.train.setup import RunData

SIDE, DIGITS = 32, (0, 1, 4)


def drawn_weights() -> dict[str, Tensor]:
    """Return weights of the backbone as nobody has trained them."""
    torch.manual_seed(0)
    state: dict[str, Tensor] = efficientnet_lite0(num_classes=1000).state_dict()
    return state


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("invint.models.efficientnet.read_weights", drawn_weights)
        patch.setattr("invint.fit.search.PASSES", (3, 2))
        yield


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("digits")
    for digit in DIGITS:
        write(root / "train" / str(digit), digit_pictures(digit, count=10))
        write(root / "test" / str(digit), digit_pictures(digit, count=4, first=20))
    return root


@pytest.fixture
def out(frozen: Path, tmp_path: Path) -> Path:
    """Return a folder with the features and the frozen answer."""
    return shutil.copytree(frozen, tmp_path / "out")


@pytest.fixture(scope="module")
def frozen(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("frozen")
    search(pictures, place)
    return place


class Noting(Callback):
    """Keeps how many runs began, and at which step; may press Ctrl-C in the first."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.began: list[int] = []

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        if folder.parts[-3] == TUNED.name:
            self.began.append(step)

    def on_step(self, step: int) -> None:
        if len(self.began) == 1 and step == self.stop:
            os.kill(os.getpid(), signal.SIGINT)


def search(pictures: Path, out: Path, *, stop: int | None = None) -> Search:
    """Return a search that has the answer of the frozen network."""
    found = Search(
        config=FitConfig(folder=pictures, side=SIDE),
        out=out,
        native=20,
        channels=1,
        budget=Budget(600.0),
        callback=Noting(stop),
        backbone="efficientnet-lite0",
    )
    found._frozen(ORBIT, SIDE)
    return found


def tuned(found: Search) -> list[str]:
    """Do what is to be done with all of the network, and name what there was no time for."""
    return [each.name for each in run_stages(found._tuned(), found.budget)]


def test_the_recipe_takes_large_pictures_in_parts() -> None:
    small, large = (
        tuned_recipe(DataChoice(side=side), "efficientnet-lite0", 500, 8) for side in (64, 224)
    )
    assert (small.train.accumulate, large.train.accumulate) == (1, 7)
    few = tuned_recipe(DataChoice(side=224), "efficientnet-lite0", 20, 8)
    assert few.train.batch_size >= 2 * few.train.accumulate
    assert small.train.rate(8.0) == 0
    assert small.model.group == "C4"


def test_it_begins_with_the_answers_of_the_frozen_network(pictures: Path, out: Path) -> None:
    found = search(pictures, out)
    (orbit,) = found.answers
    network, card = load_network(orbit.store.model)
    network.eval()
    fresh = card.build(pretrained=True).eval()
    train = found.dataset(SIDE).train
    found._begin(SIDE, torch.arange(len(train)), fresh)
    images = train.images[:8].float() / 255
    first, second = network(images), fresh(images)
    ratio = second.norm() / first.norm()  # the frozen one is as sure as it should be
    torch.testing.assert_close(first * ratio, second, rtol=1e-3, atol=1e-3)


def test_a_trial_begins_without_the_pictures_it_is_judged_by(
    pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = search(pictures, out)
    begun: list[Tensor] = []
    monkeypatch.setattr(Search, "_begin", lambda *given: begun.append(given[2]))
    found._judge_tuned(SIDE, 2)
    recipe = found._tuned_recipe("trials", SIDE, 2)
    data = RunData.of(recipe, 0, None)
    held = found.held[TUNED.name]
    assert data.validation is not None
    assert held.images.tolist() == data.validation[1].tolist()
    assert torch.equal(held.labels, found.first.train.labels[held.images])
    assert begun[0].tolist() == data.train_indices.tolist()
    assert not set(begun[0].tolist()) & set(held.images.tolist())


@pytest.mark.slow
def test_it_is_an_answer_like_the_others_and_is_read_back(
    pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "_is_hopeless", lambda *_: False)
    stopped = search(pictures, out, stop=2)
    with pytest.raises(Interrupted):
        tuned(stopped)
    again = search(pictures, out)
    assert again._affordable_tuning()[:2] == (SIDE, 3)  # as it was begun
    assert tuned(again) == []
    assert isinstance(again.callback, Noting)
    assert again.callback.began == [2, 0]  # the trial goes on, then all pictures
    orbit, answer = again.answers
    assert (orbit.candidate, answer.candidate) == (ORBIT, TUNED)
    assert answer.turned.changed == 0
    assert answer.judgement is again.held[TUNED.name]
    network, card = load_network(answer.store.model)
    images = torch.rand(2, 1, *card.image_size, dtype=torch.float64)
    network.double().eval()
    moved = network(torch.rot90(images, 1, (2, 3)))
    torch.testing.assert_close(moved, network(images), atol=1e-9, rtol=0)
    assert str(card.group) == "C4"
    late = search(pictures, out)
    late.budget = Budget(0.1, clock=lambda: 0.0)
    assert tuned(late) == []  # it takes no time
    assert isinstance(late.callback, Noting)
    assert late.callback.began == []
    assert [each.run.error for each in late.answers] == [each.run.error for each in again.answers]


def test_what_is_hopeless_is_not_trained_on_all_pictures(
    pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = search(pictures, out)

    def fail(self: Search, *_: object) -> None:
        images = torch.arange(len(self.first.train))
        labels = self.first.train.labels
        wrong = torch.nn.functional.one_hot((labels + 1) % len(DIGITS), len(DIGITS)).double()
        self.held[TUNED.name] = Judgement(images, wrong, labels)

    monkeypatch.setattr(Search, "_judge_tuned", fail)
    assert tuned(found) == []
    assert [each.candidate for each in found.answers] == [ORBIT]
    lines = table_lines(found, found.answers[0])
    assert any(line.split()[:2] == [TUNED.name, "100.0"] for line in lines)
    assert lines[-1] == f"{TUNED.name}: {TUNED.title}"


def test_without_the_time_it_is_named(
    pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = search(pictures, out)
    monkeypatch.setattr(Search, "_prices", lambda *_: (20.0, 50.0))
    found.budget = Budget(400.0, clock=lambda: 0.0)  # 360 are left, 288 for two
    assert found._affordable_tuning() == (SIDE, 3, 20.0, 50.0)
    found.budget = Budget(100.0, clock=lambda: 0.0)
    (skipped,) = run_stages(found._tuned(), found.budget)
    assert skipped.name == f"{TUNED.title}, 32 x 32 pixels"
    assert skipped.seconds == 2 * (2 * 20 + 50)
    assert not (out / "trials").exists()


@pytest.mark.parametrize(
    ("seconds", "side"),
    [
        ({96: 5.0, 64: 2.0}, 96),  # often enough at the size of the frozen network
        ({96: 90.0, 64: 2.0}, 64),  # seldom there
        ({96: 900.0, 64: 500.0}, 64),  # nowhere: the smallest is named
    ],
)
def test_the_size_is_one_that_can_be_seen_often_enough(
    pictures: Path, out: Path, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], side: int
) -> None:
    monkeypatch.setattr("invint.fit.search.PASSES", (8, 3))
    monkeypatch.setattr(Search, "side_of", lambda *_: 96)
    monkeypatch.setattr(Search, "_prices", lambda _, side: (seconds[side], 0.0))
    found = search(pictures, out)
    found.config = replace(found.config, side=None)
    assert found._affordable_tuning()[0] == side
    found.config = replace(found.config, side=96)  # asked for: no other
    assert found._affordable_tuning()[0] == 96
