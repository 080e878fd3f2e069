import math

import pytest
import torch
from torch import Tensor

from invint.data.dataset import check_class_sizes, holdout, index_hash, random_words, subset
from invint.errors import ConfigError, DataError

WORDS = [2828107829875270466, 17138637939000117138, 12123041896962090765]
PINNED = [
    (500, 0, "31743198a07a6801"),
    (500, 1, "ec203005d0ef316b"),
    (1000, 0, "e0e6fe587a1fbba3"),
    (3000, 4, "ee461e082ff876c3"),
]
SPLIT = ("0a61d60874ccf0ee", "e857e6193db3a437")
GROUPED = "f8a3737ce9dc304c"
MIXED = [(80, "99ff8408892d6244"), (140, "e9a699c7c68c2641"), (250, "c61808ba7b5fc152")]


def labels_of(counts: list[int]) -> Tensor:
    """Return labels with these counts, in an order without a pattern."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]


def in_turn(count: int) -> Tensor:
    return torch.arange(count) % 10


def test_random_words_are_what_they_were() -> None:
    assert random_words(3, "digits", 0).tolist() == WORDS
    assert random_words(2, "digits", 0).tolist() == WORDS[:2]


@pytest.mark.parametrize(("size", "seed", "expected"), PINNED)
def test_subsets_are_what_they_were(size: int, seed: int, expected: str) -> None:
    assert index_hash(subset(in_turn(12000), size, seed, name="rotmnist")) == expected


def test_splits_are_what_they_were() -> None:
    kept, held = holdout(in_turn(1000), 0.2, 0, name="digits")
    assert (index_hash(kept), index_hash(held)) == SPLIT


def test_grouped_subsets_are_what_they_were() -> None:
    groups = torch.arange(1000) // 7
    assert index_hash(subset(in_turn(1000), 200, 3, name="slides", groups=groups)) == GROUPED


@pytest.mark.parametrize(("size", "expected"), MIXED)
def test_subsets_of_groups_of_several_classes_are_what_they_were(size: int, expected: str) -> None:
    groups = torch.arange(280).square() % 113
    labels = labels_of([130, 90, 31, 29])
    assert index_hash(subset(labels, size, 5, name="slides", groups=groups)) == expected


def test_the_hash_sees_numbers_and_order() -> None:
    hashes = {index_hash(torch.tensor(each)) for each in ([1, 2], [2, 1], [1, 3], [1])}
    assert len(hashes) == 4


def test_name_and_seed_change_the_subset() -> None:
    found = {
        index_hash(subset(in_turn(1000), 100, seed, name=name))
        for name in ("svhn", "cifar10")
        for seed in (0, 1)
    }
    assert len(found) == 4


def test_numbers_rise_and_occur_once() -> None:
    chosen = subset(labels_of([50, 30, 20]), 40, 0, name="x")
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert len(chosen) == 40


def test_the_whole_set_is_its_own_subset() -> None:
    assert subset(in_turn(30), 30, 5, name="x").tolist() == list(range(30))


@pytest.mark.parametrize("number", range(40))
def test_each_class_gets_its_share_rounded_down_or_up(number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    classes = int(torch.randint(2, 9, (), generator=generator))
    counts = torch.randint(1, 60, (classes,), generator=generator).tolist()
    labels, total = labels_of(counts), sum(counts)
    enough = max(math.ceil(total / count) for count in counts)
    for size in range(enough, total, 1 + total // 20):
        chosen = labels[subset(labels, size, number, name="x")].bincount()
        assert int(chosen.sum()) == size
        for count, got in zip(counts, chosen.tolist(), strict=True):
            assert got in (size * count // total, -(-size * count // total))


def test_small_classes_get_one_image() -> None:
    labels = labels_of([500, 2, 1])
    for size in range(3, 100):
        assert labels[subset(labels, size, 0, name="x")].bincount().tolist() == [size - 2, 1, 1]


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("counts", [[100, 100, 100], [150, 40, 7], [5, 5, 6, 90, 31]])
def test_larger_subsets_contain_smaller_ones(counts: list[int], grouped: bool) -> None:
    labels = labels_of(counts)
    groups = torch.arange(len(labels)) // 2 if grouped else None
    smaller: set[int] = set()
    for size in range(30, len(labels) + 1, 7):
        chosen = set(subset(labels, size, 2, name="x", groups=groups).tolist())
        assert chosen >= smaller
        smaller = chosen


def test_images_of_a_class_are_equally_likely() -> None:
    labels = in_turn(200)
    hits = torch.zeros(200)
    for seed in range(160):
        hits[subset(labels, 50, seed, name="x")] += 1
    deviation = math.sqrt(160 * 0.25 * 0.75)
    assert float((hits - 40).abs().max()) < 4.5 * deviation


def test_surplus_images_fall_to_other_classes_with_other_seeds() -> None:
    labels = in_turn(100)
    favoured = {
        int(labels[subset(labels, 11, seed, name="x")].bincount().argmax()) for seed in range(50)
    }
    assert len(favoured) > 5


def test_gaps_in_the_class_numbers_do_no_harm() -> None:
    labels = torch.tensor([7] * 10 + [3] * 20)
    chosen = labels[subset(labels, 15, 0, name="x")]
    assert chosen.bincount().tolist() == [0, 0, 0, 10, 0, 0, 0, 5]


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_never_divided(seed: int) -> None:
    groups = torch.randint(0, 40, (400,), generator=torch.Generator().manual_seed(seed))
    labels = labels_of([200, 120, 80])
    chosen = subset(labels, 150, seed, name="x", groups=groups)
    kept, held = holdout(labels, 0.2, seed, name="x", groups=groups)
    inside = set(chosen.tolist())
    for group in range(40):
        members = set((groups == group).nonzero()[:, 0].tolist())
        assert members <= inside or not members & inside
    assert not set(groups[kept].tolist()) & set(groups[held].tolist())
    largest = int(groups.bincount().max())
    assert abs(len(chosen) - 150) <= largest / 2
    assert abs(len(held) - 80) <= largest / 2


def test_groups_of_one_class_keep_the_ratios() -> None:
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor([300, 200, 100]))
    groups = torch.arange(600) // 5
    chosen = labels[subset(labels, 120, 0, name="x", groups=groups)].bincount()
    assert (chosen - torch.tensor([60, 40, 20])).abs().max() <= 5


def test_a_split_has_every_image_on_one_side() -> None:
    labels = labels_of([50, 30, 20])
    kept, held = holdout(labels, 0.2, 0, name="x")
    assert sorted(kept.tolist() + held.tolist()) == list(range(100))
    assert labels[held].bincount().tolist() == [10, 6, 4]


def test_what_is_held_out_is_not_a_subset_in_disguise() -> None:
    _, held = holdout(in_turn(1000), 0.2, 0, name="x")
    both = set(held.tolist()) & set(subset(in_turn(1000), 200, 0, name="x").tolist())
    assert 10 < len(both) < 80


@pytest.mark.parametrize("size", [0, 1001])
def test_says_how_many_images_there_are(size: int) -> None:
    message = rf"subset: expected a size from 1 to 1000, the images of 'svhn', got {size}"
    with pytest.raises(ConfigError, match=message):
        subset(in_turn(1000), size, 0, name="svhn")


def test_says_how_many_images_show_all_classes() -> None:
    message = "subset of 'svhn': 9 images cannot show 10 classes; ask for at least 10"
    with pytest.raises(ConfigError, match=message):
        subset(in_turn(1000), 9, 0, name="svhn")


@pytest.mark.parametrize("share", [0.0, 1.0, 20.0])
def test_says_what_a_share_is(share: float) -> None:
    with pytest.raises(ConfigError, match=rf"between 0 and 1 for 'svhn', got {share}"):
        holdout(in_turn(1000), share, 0, name="svhn")


def test_says_which_class_a_split_leaves_out() -> None:
    message = r"split of 'x': the images kept leave out class 1 \(1 images\); ask for"
    with pytest.raises(DataError, match=message):
        holdout(labels_of([30, 1]), 0.2, 0, name="x")


def test_says_which_class_groups_leave_out() -> None:
    labels = torch.tensor([0] * 50 + [1] * 50)
    groups = torch.cat((torch.arange(50), torch.full((50,), 99)))
    message = r"subset of 'x': the images chosen leave out class [01] \(50 images\); ask for"
    with pytest.raises(DataError, match=message):
        subset(labels, 10, 0, name="x", groups=groups)


def test_a_fraction_that_leaves_too_few_images_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        holdout(labels_of([12, 12, 12]), 0.96, 0, name="x")
    assert str(caught.value) == (
        "split of 'x': a fraction of 0.96 leaves 1 of 36 images, which cannot show 3 classes; "
        "ask for less"
    )
    assert len(holdout(labels_of([12, 12, 12]), 0.9, 0, name="x")[0]) == 4


def test_says_the_name_of_the_class_where_it_is_known() -> None:
    for labels, classes in (
        (labels_of([30, 1]), ("many", "rare")),
        (labels_of([1, 30]), ("rare", "")),
    ):
        line = r"split of 'x': the images kept leave out class 'rare' \(1 images\); ask for other"
        with pytest.raises(DataError, match=line):
            holdout(labels, 0.2, 0, name="x", class_names=classes)
    groups = torch.arange(100) // 50
    with pytest.raises(DataError, match=r"the images chosen leave out class '[ab]' \(50 images\)"):
        subset(groups, 10, 0, name="x", groups=groups, class_names=("a", "b"))


def test_classes_too_small_for_what_is_planned_are_named() -> None:
    labels = torch.tensor([0] * 9 + [1] + [2] * 4)
    assert check_class_sizes(labels[labels == 0], None, ("a",), 9, "9 folds") == [9]
    with pytest.raises(DataError) as caught:
        check_class_sizes(labels, None, ("a", "rare", "c", "none"), 5, "5 folds")
    assert str(caught.value) == (
        "5 folds: expected at least 5 pictures of each class, too few are there of 'rare' (1), "
        "'c' (4), 'none' (0); add some, or leave such classes out with --skip-class NAME or "
        "--min-per-class 5"
    )
    groups = torch.arange(len(labels)) // 3
    with pytest.raises(
        DataError, match=r"at least 3 groups of each class.* 'rare' \(1\), 'c' \(2\)"
    ):
        check_class_sizes(labels, groups, ("a", "rare", "c"), 3, "3 folds")
