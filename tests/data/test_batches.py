import hashlib
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
import torch
from torch import Tensor

from invint.data import batches as module
from invint.data.batches import AUGMENTATIONS, BLOCK, Batches, normalisation, scaled
from invint.data.dataset import Split, index_hash, random_words
from invint.errors import ConfigError

ALL = ("rotate", "crop", "flip", "cutout")
STREAM, LATER = "bff6c992b656119e", "c88a3a364d8b9ddb"
PARAMETERS = {
    "rotate": "2cb22e5e8a67669c",
    "crop": "f25d3b27b7bc6185",
    "flip": "58fa3a5499f4a6a6",
    "cutout": "8db67cd9bba5b4be",
}


class Channels(TypedDict):
    """Mean and deviation of each channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


PLAIN = Channels(mean=(0.0,), std=(1.0,))
COLOUR = Channels(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def some_part(count: int, channels: int = 1, side: int = 8, bits: int = 8) -> Split:
    """Return random images whose labels are their numbers."""
    generator = torch.Generator().manual_seed(count)
    shape = (count, channels, side, side)
    values = torch.randint(0, 2**bits, shape, generator=generator, dtype=torch.int32)
    images = values.to(torch.uint8 if bits == 8 else torch.uint16)
    return Split(images, torch.arange(count))


def stream(batches: Batches, steps: range) -> list[int]:
    """Return the labels of these steps one after another."""
    return [label for _, labels in batches(steps) for label in labels.tolist()]


def hash_of(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]


def test_the_stream_is_what_it_was() -> None:
    batches = Batches(some_part(100), batch_size=16, seed=0, **PLAIN)
    assert index_hash(torch.tensor(stream(batches, range(100)))) == STREAM
    assert index_hash(batches.indices(12345)) == LATER


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_what_they_were(name: str) -> None:
    parameters = module._parameters(name, 0, 5, 16, (32, 32))
    if name == "rotate":  # the last bit of a float is not promised
        parameters = (parameters * 1e4).round().long()
    assert hash_of(parameters) == PARAMETERS[name]


def test_every_pass_has_every_image_once_in_another_order() -> None:
    numbers = stream(Batches(some_part(30), batch_size=4, seed=0, **PLAIN), range(30))
    passes = [numbers[start : start + 30] for start in range(0, 120, 30)]
    assert all(sorted(each) == list(range(30)) for each in passes)
    assert len({tuple(each) for each in passes}) == 4


def test_batches_are_pieces_of_seeded_passes() -> None:
    numbers = stream(Batches(some_part(7), batch_size=3, seed=5, **PLAIN), range(20))
    expected: list[int] = []
    for number in range(9):
        words = random_words(7, "pass", 5, number).tolist()
        expected += sorted(range(7), key=words.__getitem__)
    assert numbers == expected[:60]


def test_a_batch_larger_than_the_set_wraps_around() -> None:
    part = some_part(5)
    [(images, labels)] = Batches(part, batch_size=13, seed=0, **PLAIN)(range(1))
    assert sorted(labels[:5].tolist()) == sorted(labels[5:10].tolist()) == [0, 1, 2, 3, 4]
    assert torch.equal(images, scaled(part.images)[labels])


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("memory", [None, 0])
def test_batches_do_not_depend_on_where_iteration_starts(bits: int, memory: int | None) -> None:
    def fresh() -> Batches:
        part = some_part(50, 3, bits=bits)
        return Batches(part, batch_size=6, seed=3, augment=ALL, memory=memory, **COLOUR)

    whole = list(fresh()(range(2 * BLOCK + 10)))
    used = fresh()
    for start, stop in ((100, 130), (57, 100), (0, 3), (63, 65), (2 * BLOCK, 2 * BLOCK + 1)):
        for batches in (fresh(), used):
            for step, (images, labels) in zip(
                range(start, stop), batches(range(start, stop)), strict=True
            ):
                assert torch.equal(images, whole[step][0])
                assert torch.equal(labels, whole[step][1])


@pytest.mark.parametrize("bits", [8, 16])
def test_streamed_batches_equal_resident_ones(bits: int, tmp_path: Path) -> None:
    part = some_part(40, 3, bits=bits)
    np.save(tmp_path / "images.npy", part.images.numpy())
    mapped = np.load(tmp_path / "images.npy", mmap_mode="c")
    from_disk = Split(torch.from_numpy(mapped), part.labels)
    resident = Batches(part, batch_size=8, seed=1, augment=ALL, **COLOUR)
    streamed = Batches(from_disk, batch_size=8, seed=1, augment=ALL, memory=100, **COLOUR)
    assert streamed.streamed
    assert not resident.streamed
    for ours, theirs in zip(streamed(range(80)), resident(range(80)), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("together", [2, 16])
@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("steps", [range(130), range(57, 75), range(62, 200, 3)])
def test_making_batches_together_changes_none(
    together: int, memory: int | None, steps: range
) -> None:
    part = some_part(40, 3)
    alone = Batches(part, batch_size=8, seed=1, augment=ALL, memory=memory, **COLOUR)
    several = Batches(part, batch_size=8, seed=1, augment=ALL, memory=memory, **COLOUR)
    several.together = together
    for ours, theirs in zip(several(steps), alone(steps), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


def test_streaming_can_be_left_in_the_middle() -> None:
    streamed = Batches(some_part(40), batch_size=8, seed=1, memory=0, **PLAIN)
    first = next(iter(streamed(range(1000))))
    assert torch.equal(first[0], next(iter(streamed(range(1000))))[0])


def test_a_limit_that_suffices_keeps_images() -> None:
    part = some_part(40)
    assert not Batches(part, batch_size=8, seed=1, memory=40 * 64, **PLAIN).streamed
    assert Batches(part, batch_size=8, seed=1, memory=40 * 64 - 1, **PLAIN).streamed


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_have_the_whole_batch(world: int) -> None:
    part = some_part(50, 3)
    alone = Batches(part, batch_size=12, seed=0, augment=ALL, **COLOUR)
    ranks = [
        Batches(part, batch_size=12, seed=0, augment=ALL, rank=rank, world=world, **COLOUR)
        for rank in range(world)
    ]
    steps = range(60, 70)
    for whole, *shares in zip(alone(steps), *(each(steps) for each in ranks), strict=True):
        assert torch.equal(torch.cat([images for images, _ in shares]), whole[0])
        assert torch.equal(torch.cat([labels for _, labels in shares]), whole[1])


def test_another_seed_gives_other_batches() -> None:
    part = some_part(50)
    found = [stream(Batches(part, batch_size=8, seed=seed, **PLAIN), range(3)) for seed in (0, 1)]
    assert found[0] != found[1]


def test_augmentation_is_applied_in_order_and_then_normalised() -> None:
    part = some_part(20, 3)
    names = ("flip", "rotate", "crop")
    batches = Batches(part, batch_size=4, seed=2, augment=names, **COLOUR)
    [(images, labels)] = batches(range(70, 71))
    expected = scaled(part.images)[labels]
    for name in names:
        parameters = module._parameters(name, 2, 1, 4, (8, 8))[70 - BLOCK]
        expected = AUGMENTATIONS[name].apply(expected, parameters)
    for channel in range(3):
        expected[:, channel] -= COLOUR["mean"][channel]
        expected[:, channel] /= COLOUR["std"][channel]
    assert torch.equal(images, expected)


def test_parameters_of_one_augmentation_do_not_depend_on_others() -> None:
    part = some_part(20)
    alone = Batches(part, batch_size=4, seed=2, augment=("flip",), **PLAIN)
    after = Batches(part, batch_size=4, seed=2, augment=("crop", "flip"), **PLAIN)
    assert torch.equal(alone._drawn(0).parameters[0], after._drawn(0).parameters[1])


@pytest.mark.parametrize("memory", [None, 0])
def test_only_chosen_images_occur(memory: int | None) -> None:
    part, chosen = some_part(50), torch.arange(3, 50, 4)
    batches = Batches(part, batch_size=5, seed=0, memory=memory, chosen=chosen, **PLAIN)
    copied = Batches(part[chosen], batch_size=5, seed=0, **PLAIN)
    assert set(stream(batches, range(3))) <= set(chosen.tolist())
    assert batches.indices(7).tolist() == stream(batches, range(7, 8))
    for ours, theirs in zip(batches(range(9)), copied(range(9)), strict=True):
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


def test_stored_images_are_scaled_to_one() -> None:
    assert scaled(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx(
        [0, 0.2, 1]
    )
    sixteen = torch.tensor([0, 13107, 40000, 65535], dtype=torch.int32).to(torch.uint16)
    assert scaled(sixteen).tolist() == pytest.approx([0, 0.2, 40000 / 65535, 1])


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("chunk", [1, 500, 2**22])
def test_normalisation_matches_its_definition(
    bits: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    part = some_part(20, 3, bits=bits)
    mean, std = normalisation(part)
    values = part.images.numpy().astype(np.float64) / (2**bits - 1)
    np.testing.assert_allclose(mean, values.mean(axis=(0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(std, values.std(axis=(0, 2, 3)), rtol=1e-13)


def test_normalisation_of_chosen_images() -> None:
    part, chosen = some_part(20, 3), torch.tensor([3, 5, 11])
    assert normalisation(part, chosen=chosen) == normalisation(part[chosen])


def test_a_constant_channel_is_not_divided_by_zero() -> None:
    part = Split(torch.full((3, 1, 4, 4), 51, dtype=torch.uint8), torch.zeros(3).long())
    mean, std = normalisation(part)
    assert mean == pytest.approx((0.2,))
    assert std == (1.0,)


def test_normalised_images_have_mean_zero_and_deviation_one() -> None:
    part = some_part(64, 3)
    mean, std = normalisation(part)
    [(images, _)] = Batches(part, batch_size=64, seed=0, mean=mean, std=std)(range(1))
    torch.testing.assert_close(images.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(images.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-3, rtol=0)


@pytest.mark.parametrize("bits", [8, 16])
def test_test_batches_come_in_order_once(bits: int) -> None:
    part = some_part(10, bits=bits)
    batches = list(module.test_batches(part, batch_size=4, mean=(0.5,), std=(0.25,)))
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == list(range(10))
    expected = (scaled(part.images) - 0.5) / 0.25
    assert torch.equal(torch.cat([images for images, _ in batches]), expected)


def test_test_batches_of_chosen_images_keep_their_order() -> None:
    chosen = torch.tensor([7, 2, 5])
    batches = module.test_batches(some_part(10), batch_size=2, chosen=chosen, **PLAIN)
    assert [labels.tolist() for _, labels in batches] == [[7, 2], [5]]


def test_batches_do_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    list(Batches(some_part(10), batch_size=4, seed=0, augment=ALL, **PLAIN)(range(3)))
    assert torch.equal(torch.get_rng_state(), before)


def test_says_that_ranks_need_equal_shares() -> None:
    with pytest.raises(ConfigError, match="divisible by 3 processes, got 64"):
        Batches(some_part(5), batch_size=64, seed=0, world=3, **PLAIN)


def test_says_which_ranks_there_are() -> None:
    with pytest.raises(ConfigError, match="expected a rank from 0 to 1, got 2"):
        Batches(some_part(5), batch_size=64, seed=0, rank=2, world=2, **PLAIN)


def test_says_which_augmentations_there_are() -> None:
    message = "no augmentation 'turn'; there are rotate, crop, flip, cutout"
    with pytest.raises(ConfigError, match=message):
        Batches(some_part(5), batch_size=64, seed=0, augment=("turn",), **PLAIN)


def test_says_that_there_are_no_images() -> None:
    with pytest.raises(ConfigError, match="Batches: expected at least one image, got none"):
        Batches(some_part(0), batch_size=64, seed=0, **PLAIN)


@pytest.mark.parametrize(("mean", "std"), [((0.0,), (1.0,)), ((0.0,) * 3, (1.0, 0.0, 1.0))])
def test_says_what_normalisation_needs(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    message = r"expected mean and positive std of 3 channels, got mean .* use normalisation"
    with pytest.raises(ConfigError, match=message):
        Batches(some_part(5, 3), batch_size=64, seed=0, mean=mean, std=std)


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [8, 16])
def test_a_gpu_gives_the_same_batches_resident_and_streamed(bits: int) -> None:
    part = some_part(40, 3, bits=bits)
    places = [("cpu", None), ("cuda", None), ("cuda", 0)]
    cpu, resident, streamed = (
        Batches(part, batch_size=8, seed=1, augment=ALL, device=device, memory=memory, **COLOUR)
        for device, memory in places
    )
    for a, b, c in zip(cpu(range(80)), resident(range(80)), streamed(range(80)), strict=True):
        assert torch.equal(b[0], c[0])
        assert torch.equal(b[1], c[1])
        assert torch.equal(a[1], b[1].cpu())
        torch.testing.assert_close(a[0], b[0].cpu(), atol=1e-3, rtol=0)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("memory", [None, 0])
def test_a_gpu_never_waits_for_a_batch(memory: int | None) -> None:
    batches = Batches(
        some_part(40, 3), batch_size=8, seed=1, augment=ALL, device="cuda", memory=memory, **COLOUR
    )
    try:
        torch.cuda.set_sync_debug_mode("error")
        assert sum(len(labels) for _, labels in batches(range(200))) == 1600
    finally:
        torch.cuda.set_sync_debug_mode("default")
