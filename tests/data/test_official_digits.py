import pytest
import torch
from sklearn.datasets import load_digits as scikit_digits
from torch.nn.functional import interpolate, pad

from invint.data import official
from invint.data.dataset import Dataset
from invint.data.official import DIGITS_SIDE, DIGITS_ZOOM, load_digits, rotate_bytes, small_digits


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_digits()


def test_the_set_never_changes(digits: Dataset) -> None:
    assert digits.fingerprint == "c88e094e93366225"


def test_sizes_are_those_of_the_guide(digits: Dataset) -> None:
    assert (len(digits.train), len(digits.test)) == (1000, 797)
    assert digits.image_shape == (1, 20, 20)


def test_both_parts_have_the_class_ratios_of_the_whole(digits: Dataset) -> None:
    train, test = torch.bincount(digits.train.labels), torch.bincount(digits.test.labels)
    whole = torch.bincount(torch.from_numpy(scikit_digits().target))
    assert torch.equal(train + test, whole)
    assert (train - whole * 1000 / 1797).abs().max() < 1


def test_turning_loses_hardly_any_ink(digits: Dataset) -> None:
    """A pixel becomes four; sorted, because parts do not tell where an image came from."""
    images = torch.cat((digits.train.images, digits.test.images)).double()
    ink = images.sum(dim=(1, 2, 3)).sort().values
    source = torch.from_numpy(scikit_digits().images) * 255 / 16
    expected = 4 * source.sum(dim=(1, 2)).sort().values
    assert ((ink - expected).abs() / expected).max() < 0.1


def test_upright_a_digit_is_enlarged_into_the_middle() -> None:
    digit = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    digit[..., 2:6, 3:6] = torch.randint(0, 256, (4, 3), dtype=torch.uint8)
    upright = torch.zeros(1).double()
    made = rotate_bytes(digit, upright, mode="bicubic", side=DIGITS_SIDE, zoom=DIGITS_ZOOM)
    enlarged = interpolate(digit.double(), size=(16, 16), mode="bicubic").clamp(0, 255)
    assert (made - pad(enlarged, (2, 2, 2, 2))).abs().max() < 0.5 + 1e-9


def test_another_seed_gives_another_set(digits: Dataset) -> None:
    assert load_digits(seed=1).fingerprint != digits.fingerprint


def test_the_table_is_read_as_scikit_learn_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without importing it; where it has moved its file, it is asked."""
    source = scikit_digits()
    for _ in range(2):
        images, labels = small_digits()
        assert torch.equal(images, torch.from_numpy(source.images))
        assert torch.equal(labels, torch.from_numpy(source.target))
        monkeypatch.setattr(official, "DIGITS_TABLE", "gone")
