"""The set that is always there: scikit-learn's 1,797 real digits, enlarged and turned."""

import torch
from torch import Tensor

from invint.data.dataset import Dataset, Split
from invint.data.download import Entry
from invint.data.mnist import DIGITS
from invint.data.rotated_mnist import turn_each

SIDE, ZOOM, TRAIN = 20, 2.0, 1000


def load_digits(*, seed: int = 0) -> Dataset:
    """Make the embedded data set; nothing is downloaded.

    Each 8×8 image becomes 16×16 pixels in the middle of 20×20 and is turned about the centre by
    one angle, uniform in [0°, 360°), in a single bicubic interpolation. 1,000 images are for
    training and 797 for testing, with the class ratios of the whole.

    Args:
        seed: Decides angles and split; figures are for the default.
    """
    from sklearn.datasets import load_digits as scikit_digits

    source = scikit_digits()
    small = torch.from_numpy(source.images)[:, None]
    labels = torch.from_numpy(source.target).long()
    generator = torch.Generator().manual_seed(seed)
    angles = 2 * torch.pi * torch.rand(len(labels), generator=generator, dtype=torch.float64)
    bytes_of = (small * 255 / 16).round().byte()
    images = turn_each(bytes_of, angles, side=SIDE, zoom=ZOOM, mode="bicubic")
    train = _stratified(labels, TRAIN, generator)
    held_out = torch.ones(len(labels), dtype=torch.bool)
    held_out[train] = False
    test = held_out.nonzero()[:, 0]
    return Dataset("digits", Split(images, labels)[train], Split(images, labels)[test], DIGITS)


def _stratified(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw `count` images with the class ratios of all; sorted."""
    sizes = torch.bincount(labels)
    exact = sizes * (count / len(labels))
    shares = exact.floor().long()
    rest = torch.argsort(exact - shares, descending=True, stable=True)[: count - int(shares.sum())]
    shares[rest] += 1
    drawn = []
    for label, share in enumerate(shares.tolist()):
        members = (labels == label).nonzero()[:, 0]
        drawn.append(members[torch.randperm(len(members), generator=generator)[:share]])
    return torch.cat(drawn).sort().values


ENTRY = Entry(
    title="scikit-learn's digits, turned",
    load=lambda _: load_digits(),
    images="1,000 + 797",
    classes="10",
    shape="20x20 grey",
    licence="CC BY 4.0",
)
