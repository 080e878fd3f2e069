from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from invint.data.batches import scaled
from invint.data.dataset import Split
from invint.fit.features import EVERY, MIRRORED, PIXELS, TURNS, FrozenFeatures, batch_of
from invint.fit.schedule import OutOfTime
from invint.ops.grids import move_back


class Corner(nn.Module):
    """Tells where things are: no turn leaves it alone."""

    def forward(self, images: Tensor) -> Tensor:
        return images[:, 0, :3, :2].flatten(1)


def pictures(count: int = 9) -> Split:
    images = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)
    return Split(images, torch.arange(count) % 2)


def frozen(folder: Path) -> FrozenFeatures:
    return FrozenFeatures(Corner(), folder, "some pictures")


@pytest.mark.parametrize("elements", [TURNS[:1], TURNS, MIRRORED])
def test_features_are_the_mean_over_moved_copies(tmp_path: Path, elements: range) -> None:
    split = pictures()
    copies = [Corner()(move_back(scaled(split.images), EVERY, each)) for each in elements]
    found = frozen(tmp_path).of("train", split, elements)
    torch.testing.assert_close(found, torch.stack(copies).mean(dim=0))


def test_features_over_turns_stay_as_pictures_turn(tmp_path: Path) -> None:
    split = pictures()
    turned = Split(torch.rot90(split.images, 1, (2, 3)), split.labels)
    first, second = frozen(tmp_path / "a"), frozen(tmp_path / "b")
    torch.testing.assert_close(first.of("x", split, TURNS), second.of("x", turned, TURNS))
    assert not torch.allclose(first.of("x", split, [0]), second.of("x", turned, [0]))


def test_some_pictures_have_the_features_they_have_among_all(tmp_path: Path) -> None:
    split, rows = pictures(), torch.tensor([1, 4, 8])
    network = frozen(tmp_path)
    some = network.of("train", split, TURNS, rows)
    torch.testing.assert_close(some, network.of("train", split, TURNS)[rows])


def test_a_turn_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    forward = Corner.forward

    def counted(network: Corner, images: Tensor) -> Tensor:
        seen.append(len(images))
        return forward(network, images)

    monkeypatch.setattr(Corner, "forward", counted)
    split = pictures()
    for elements in (TURNS[:1], TURNS, MIRRORED, TURNS):
        frozen(tmp_path).of("train", split, elements)
    assert sum(seen) == len(MIRRORED) * len(split)


def test_progress_is_told_and_may_stop(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    network = frozen(tmp_path)
    network.progress = lambda done, total: told.append((done, total))
    network.of("train", pictures(), TURNS)
    assert told == [(9, 36), (18, 36), (27, 36), (36, 36)]

    def stop() -> None:
        raise OutOfTime

    network.check = stop
    with pytest.raises(OutOfTime):
        network.of("test", pictures(), TURNS)


def test_batches_hold_as_many_pixels_whatever_the_side(tmp_path: Path) -> None:
    assert batch_of(64) * 64**2 == PIXELS
    assert batch_of(10_000) == 1
    assert frozen(tmp_path).seconds(1, 64) > 0
