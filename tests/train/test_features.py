"""Features that are computed once: the right ones, kept, and gone on with."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invint import ConfigError, parse_group
from invint.data.batches import scaled
from invint.data.dataset import Split
from invint.errors import DataError
from invint.models import Network
from invint.nn import GlobalPool, Orbit, OrbitFeatures
from invint.train.features import images_fingerprint, orbit_features, weights_fingerprint

C4 = parse_group("C4")


class Counting(nn.Module):
    """A backbone that counts the images it sees."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = (nn.Conv2d(1, 5, 3, stride=2), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 2))
        self.layers = nn.Sequential(*layers)
        self.seen: list[int] = []

    def __deepcopy__(self, _: dict[int, Any]) -> "Counting":
        twin = Counting()
        twin.load_state_dict(self.state_dict())
        twin.seen = self.seen  # one list for all copies
        return twin

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x) // C4.order)
        out: Tensor = self.layers(x)
        return out


def images(count: int = 10, dtype: torch.dtype = torch.uint8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 1, 12, 12), generator=generator).to(dtype)


def expected(backbone: nn.Module, stored: Tensor) -> Tensor:
    with torch.no_grad():
        maps: Tensor = OrbitFeatures(backbone, C4).eval()(scaled(stored))
    return maps


def test_features_are_those_of_the_orbit(tmp_path: Path) -> None:
    backbone, stored = Counting(), images()
    maps = expected(backbone, stored)
    for keep, right in [
        ("maps", maps),
        ("turns", maps.mean((3, 4))),
        ("mean", maps.mean((2, 3, 4))),
    ]:
        for folder in (None, tmp_path):
            found = orbit_features(backbone, stored, C4, keep=keep, folder=folder, batch_size=3)  # type: ignore[arg-type]
            torch.testing.assert_close(found, right)
            assert found.dtype == torch.float32
    means = Orbit(backbone, C4).eval()(scaled(stored))
    torch.testing.assert_close(orbit_features(backbone, stored, C4), means.detach())
    assert len(list(tmp_path.glob("*.npy"))) == 3


def test_the_backbone_is_left_alone_and_used_as_in_evaluation() -> None:
    backbone, stored = Counting().train(), images()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    found = orbit_features(backbone, stored, C4)
    assert backbone.training
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    torch.testing.assert_close(found, orbit_features(backbone.eval(), stored, C4))
    assert torch.is_grad_enabled()
    assert not found.requires_grad


def test_turned_images_have_the_same_means_and_shifted_turns() -> None:
    backbone, stored = Counting(), images()
    turned = torch.rot90(stored, 1, (-2, -1))
    torch.testing.assert_close(
        orbit_features(backbone, turned, C4), orbit_features(backbone, stored, C4)
    )
    still = orbit_features(backbone, stored, C4, keep="turns")
    moved = orbit_features(backbone, turned, C4, keep="turns")
    torch.testing.assert_close(moved, still.roll(1, dims=2))


def test_networks_orbits_and_splits_are_taken() -> None:
    stored = images()
    network = nn.Conv2d(1, 4, 3)
    plain = Network(Counting(), GlobalPool(4, "mean"), nn.Linear(4, 2))
    right = orbit_features(plain.features, stored, C4)
    torch.testing.assert_close(orbit_features(plain, stored, C4), right)
    orbit = OrbitFeatures(plain.features, C4, chunk=2)
    split = Split(stored, torch.zeros(len(stored), dtype=torch.int64))
    torch.testing.assert_close(orbit_features(orbit, split), right)
    torch.testing.assert_close(orbit_features(orbit, split, C4), right)
    assert orbit_features(orbit, split, parse_group("D4"), keep="turns").shape == (10, 4, 8)
    with pytest.raises(ConfigError, match="orbit_features: the backbone is no orbit; give a gr"):
        orbit_features(network, stored)


def test_sixteen_bits_and_floats_are_images_too() -> None:
    eight = images()
    right = orbit_features(Counting(), eight, C4)
    sixteen = (eight.to(torch.int32) * 257).to(torch.uint16)
    torch.testing.assert_close(orbit_features(Counting(), sixteen, C4), right)
    torch.testing.assert_close(orbit_features(Counting(), scaled(eight), C4), right)


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    backbone, stored = Counting(), images()
    told: list[tuple[int, int]] = []
    first = orbit_features(backbone, stored, C4, folder=tmp_path, batch_size=4)
    assert backbone.seen == [4, 4, 2]
    again = orbit_features(
        backbone, stored, C4, folder=tmp_path, progress=lambda *each: told.append(each)
    )
    assert backbone.seen == [4, 4, 2]
    assert told == [(10, 10)]
    assert torch.equal(again, first)
    again += 1  # of the caller alone
    assert torch.equal(orbit_features(backbone, stored, C4, folder=tmp_path), first)


def test_other_images_weights_groups_and_parts_have_other_files(tmp_path: Path) -> None:
    backbone, stored = Counting(), images()
    orbit_features(backbone, stored, C4, folder=tmp_path)
    other = stored.clone()
    other[0, 0, 0, 0] ^= 1
    orbit_features(backbone, other, C4, folder=tmp_path)
    orbit_features(backbone, stored, C4, keep="turns", folder=tmp_path)
    orbit_features(backbone, stored, parse_group("D4"), folder=tmp_path)
    orbit_features(backbone, stored, C4, folder=tmp_path, fingerprint="known")
    with torch.no_grad():
        next(backbone.layers[3].parameters())[0] += 1
    orbit_features(backbone, stored, C4, folder=tmp_path)
    assert len(list(tmp_path.glob("*.npy"))) == 6
    strides = (nn.Conv2d(1, 1, 3, stride=step) for step in (1, 2))
    assert len({weights_fingerprint(each.requires_grad_(False)) for each in strides}) == 2
    assert images_fingerprint(stored) != images_fingerprint(stored.reshape(10, 1, 6, 24))


def test_whoever_is_stopped_goes_on(tmp_path: Path) -> None:
    backbone, stored = Counting(), images()

    def stop(done: int, _: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        orbit_features(backbone, stored, C4, folder=tmp_path, batch_size=3, progress=stop)
    found = orbit_features(backbone, stored, C4, folder=tmp_path, batch_size=3)
    assert sum(backbone.seen) in (10, 13)  # the batch at which it was stopped may come again
    torch.testing.assert_close(found, expected(Counting(), stored).mean((2, 3, 4)))


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="no SIGKILL")
def test_a_killed_process_loses_one_batch(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from train.test_features import C4, Counting, images
from invint.train.features import orbit_features
def kill(done, total):
    if done == 6:
        os.kill(os.getpid(), signal.SIGKILL)
folder = Path({str(tmp_path)!r})
orbit_features(Counting(), images(), C4, folder=folder, batch_size=3, progress=kill)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    backbone = Counting()
    found = orbit_features(backbone, images(), C4, folder=tmp_path, batch_size=3)
    assert sum(backbone.seen) in (4, 7)
    torch.testing.assert_close(found, expected(Counting(), images()).mean((2, 3, 4)))


@pytest.mark.parametrize("damage", ["note", "rows", "other"])
def test_damaged_files_are_made_again(tmp_path: Path, damage: str) -> None:
    backbone, stored = Counting(), images()
    right = orbit_features(backbone, stored, C4, folder=tmp_path).clone()
    (rows,), (note,) = tmp_path.glob("*.npy"), tmp_path.glob("*.json")
    if damage == "note":
        note.write_text(note.read_text()[:-9])
    elif damage == "rows":
        rows.write_bytes(rows.read_bytes()[:-9])
    else:
        note.write_text(note.read_text().replace('"mean"', '"maps"'))
    torch.testing.assert_close(orbit_features(backbone, stored, C4, folder=tmp_path), right)
    assert sum(backbone.seen) == 20


class Decoding:
    """Images that exist only when asked for."""

    def __init__(self) -> None:
        self.asked: list[slice] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, rows: slice, /) -> Tensor:
        self.asked.append(rows)
        return images()[rows]


def test_pictures_need_not_be_in_memory(tmp_path: Path) -> None:
    decoding = Decoding()
    found = orbit_features(
        Counting(), decoding, C4, folder=tmp_path, batch_size=4, fingerprint="pictures"
    )
    torch.testing.assert_close(found, orbit_features(Counting(), images(), C4))
    assert max(each.stop - each.start for each in decoding.asked) == 4


@pytest.mark.unchecked
def test_bad_arguments_and_places_are_refused(tmp_path: Path) -> None:
    message = "expected keep of mean, turns, maps, a batch_size of at least 1 and an image, got 'x'"
    with pytest.raises(ConfigError, match=message):
        orbit_features(Counting(), images(), C4, keep="x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="got 'mean', 0 and 10 images"):
        orbit_features(Counting(), images(), C4, batch_size=0)
    with pytest.raises(ConfigError, match="got 'mean', 32 and 0 images"):
        orbit_features(Counting(), images(0), C4)
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(
        DataError, match=r"file: cannot keep features \(.*\); make room there or ch"
    ):
        orbit_features(Counting(), images(), C4, folder=taken)
