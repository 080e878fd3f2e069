"""A few trials of two methods, one of them failed."""

from invint.study.search import Choice, Range
from invint.study.tune import Trial

SPACE = (Range("train.lr", 1e-5, 1e-1, log=True), Choice("train.batch_size", (32, 64)))


def trial(number: int, fidelity: float, error: float | None) -> Trial:
    return Trial(
        number=number,
        configuration={"train.lr": 1e-3 * (number + 1), "train.batch_size": 32},
        fidelity=fidelity,
        state="failed" if error is None else "done",
        validation_error=error,
        seconds=1.5,
        problem="the loss is nan" if error is None else "",
    )


BOHB = [trial(1, 0.5, 0.2), trial(0, 0.5, None), trial(2, 1.0, 0.1)]
RANDOM = [trial(0, 1.0, 0.15), trial(1, 1.0, 0.125)]
