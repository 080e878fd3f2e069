import math
from typing import get_args

import pytest

from invint.errors import ConfigError
from invint.recipes.schedule import TO_ZERO, Decay, Schedule, learning_rate


def test_a_run_takes_epochs_times_images_over_batch_size_steps() -> None:
    schedule = Schedule(images=12_000, batch_size=32, epochs=100)
    assert schedule.steps == 37_500
    assert schedule.steps_per_epoch == 375


@pytest.mark.parametrize(("images", "batch_size", "epochs"), [(1000, 64, 20), (73_257, 128, 100)])
def test_epochs_that_are_not_whole_steps_do_not_drift(
    images: int, batch_size: int, epochs: int
) -> None:
    schedule = Schedule(images=images, batch_size=batch_size, epochs=epochs)
    assert schedule.steps == epochs * images // batch_size
    for epoch in range(epochs + 1):
        assert schedule.step_at(epoch) == epoch * images // batch_size
        back = schedule.epoch_at(schedule.step_at(epoch))
        assert back == pytest.approx(epoch, abs=batch_size / images)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.1])
def test_scale_shortens_steps_and_leaves_epochs(scale: float) -> None:
    schedule = Schedule(images=12_000, batch_size=32, epochs=100, scale=scale)
    assert schedule.steps == 37_500 * scale
    assert schedule.epoch_at(schedule.steps) == pytest.approx(100)
    assert schedule.step_at(40) == 15_000 * scale


def test_a_run_has_at_least_one_step() -> None:
    assert Schedule(images=10, batch_size=64, epochs=1).steps == 1


@pytest.mark.parametrize(
    "wrong", [{"images": 0}, {"batch_size": 0}, {"epochs": 0}, {"scale": 0.0}, {"scale": 1.5}]
)
def test_a_pace_that_leads_nowhere_is_refused(wrong: dict[str, float]) -> None:
    given = {"images": 10, "batch_size": 2, "epochs": 3} | wrong
    with pytest.raises(ConfigError, match=r"must be positive and the scale in \(0, 1\], got"):
        Schedule(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", [0.0, 0.5, 19.99, 20.0, 39.0, 40.0, 99.5])
@pytest.mark.parametrize(("lr", "factor", "period"), [(5e-3, 0.5, 20.0), (1e-4, 0.75, 15.0)])
def test_rates_follow_the_written_formulas(
    epoch: float, lr: float, factor: float, period: float
) -> None:
    exponential = learning_rate(epoch, lr=lr, decay="exponential", factor=factor, epochs=(period,))
    step = learning_rate(epoch, lr=lr, decay="step", factor=factor, epochs=(period,))
    assert exponential == pytest.approx(lr * factor ** (epoch / period))
    assert step == pytest.approx(lr * factor ** math.floor(epoch / period))


def test_a_step_falls_at_the_step_that_begins_its_epoch() -> None:
    """Epoch 50 of CIFAR-10 begins at step 39,062.5: the first step in it has the new rate."""
    schedule = Schedule(images=50_000, batch_size=64, epochs=100)

    def rate(step: int) -> float:
        epoch = schedule.epoch_at(step)
        return learning_rate(epoch, lr=1.0, decay="step", factor=0.5, epochs=(50.0,))

    assert [rate(step) for step in (39_061, 39_062, 39_063)] == [1.0, 1.0, 0.5]


@pytest.mark.parametrize("decay", TO_ZERO)
def test_rates_that_end_at_zero_end_there_whatever_the_length(decay: str) -> None:
    def rate(epoch: float, length: float) -> float:
        return learning_rate(epoch, lr=0.3, decay=decay, length=length)

    assert rate(0, 7) == 0.3
    assert rate(3.5, 7) == pytest.approx(0.15)
    assert rate(7, 7) == rate(8, 7) == pytest.approx(0, abs=1e-15)
    assert rate(1, 4) == pytest.approx(rate(2, 8))
    falling = [rate(epoch / 10, 7) for epoch in range(71)]
    assert falling == sorted(falling, reverse=True)


def test_rates_that_end_at_zero_follow_the_written_formulas() -> None:
    cosine = learning_rate(2.0, lr=0.3, decay="cosine", length=11)
    assert cosine == pytest.approx(0.3 * (1 + math.cos(math.pi * 2 / 11)) / 2)
    assert learning_rate(2.0, lr=0.3, decay="linear", length=11) == pytest.approx(0.3 * 9 / 11)


@pytest.mark.parametrize("decay", get_args(Decay))
def test_a_warm_up_rises_in_a_line_and_is_then_over(decay: str) -> None:
    def rate(epoch: float, warmup: float) -> float:
        return learning_rate(
            epoch, lr=1.0, decay=decay, factor=0.5, epochs=(3.0,), length=10, warmup=warmup
        )

    assert [rate(epoch, 2.0) for epoch in (0.0, 0.5, 1.5)] == pytest.approx(
        [fraction * rate(epoch, 0.0) for epoch, fraction in ((0.0, 0.0), (0.5, 0.25), (1.5, 0.75))]
    )
    assert [rate(epoch, 2.0) for epoch in (2.0, 5.0)] == [rate(epoch, 0.0) for epoch in (2.0, 5.0)]


def test_an_unknown_decay_is_explained() -> None:
    known = "exponential, step, milestones, cosine, linear"
    with pytest.raises(ConfigError, match=f"no decay 'sine'; there are {known}"):
        learning_rate(0, lr=1, decay="sine")
