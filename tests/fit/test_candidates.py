import pytest

from invint.errors import ConfigError
from invint.fit.candidates import (
    BACKBONE,
    CANDIDATES,
    ENOUGH,
    MIRRORED,
    MOST,
    ORBIT,
    PLAIN,
    POSED,
    STEERABLE,
    TUNED,
    UPRIGHT,
    backbone_sides,
    candidate_of,
    find_backbone,
    frozen_recipe,
    scratch_recipe,
    scratch_sides,
    tuned_recipe,
    whole_steps,
)
from invint.recipes.recipe import DataChoice
from invint.recipes.schedule import Schedule


def test_small_pictures_are_enlarged_for_the_backbone_and_large_ones_are_not() -> None:
    assert backbone_sides(8) == [64]
    assert backbone_sides(28) == [64, 96, 128]
    assert backbone_sides(32) == [64, 96, 128, 160]
    assert backbone_sides(400) == [64, 96, 128, 160, 224]


def test_sides_from_scratch_go_from_that_of_the_pictures_down_to_half() -> None:
    assert scratch_sides(20) == [20, 16]
    assert scratch_sides(33) == [34, 32, 28, 24, 20]
    assert scratch_sides(8) == [16]
    assert scratch_sides(500) == [64, 56, 48, 40, 32]


def test_each_candidate_has_one_name_everywhere() -> None:
    data = DataChoice(name="digits")
    for candidate in (UPRIGHT, ORBIT, POSED, MIRRORED):
        recipe = frozen_recipe(candidate, data, BACKBONE)
        assert candidate_of(recipe.name) is candidate
        assert recipe.model.group == (candidate.group or "C1")
    assert candidate_of(tuned_recipe(data, BACKBONE, 500, 8).name) is TUNED
    for candidate in (STEERABLE, PLAIN):
        recipe = scratch_recipe(candidate, data, 500, 300)
        assert candidate_of(recipe.name) is candidate
    assert len(CANDIDATES) == len({each.title for each in CANDIDATES.values()})
    assert ORBIT.name in CANDIDATES


@pytest.mark.parametrize("images", [30, 500, 7000])
def test_networks_from_scratch_differ_in_the_network_alone(images: int) -> None:
    steps = whole_steps(images)
    assert ENOUGH <= steps <= MOST
    first, second = (
        scratch_recipe(each, DataChoice(), images, steps) for each in (STEERABLE, PLAIN)
    )
    assert first.train == second.train
    assert first.data == second.data
    made = Schedule(images=images, batch_size=first.train.batch_size, epochs=first.train.epochs)
    assert made.steps == pytest.approx(steps, abs=max(images / 64, 1))


def test_the_backbone_is_the_one_asked_for_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invint.fit.candidates.has_weights", lambda: True)
    assert find_backbone(None) == find_backbone(BACKBONE) == BACKBONE
    assert find_backbone("none") is None
    with pytest.raises(ConfigError, match="--backbone resnet50: there are efficientnet-lite0"):
        find_backbone("resnet50")


def test_without_the_extra_there_is_none_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("invint.fit.candidates.has_weights", lambda: False)
    monkeypatch.setattr("invint.fit.candidates.WEIGHTS", "not_installed_here")
    assert find_backbone(None) is None
    with pytest.raises(ConfigError, match=r"needs not_installed_here; pip .*invint\[pretrained\]"):
        find_backbone(BACKBONE)
