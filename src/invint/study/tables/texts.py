"""Numbers of a table in words: errors with their deviation, differences with their interval."""

from invint.study.statistics import Difference


def interval_text(difference: Difference) -> str:
    """Return the difference and, of several pairs, its interval."""
    text = signed(difference.mean)
    if difference.low is not None and difference.high is not None:
        text += f" [{signed(difference.low)}, {signed(difference.high)}]"
    return text


def signed(number: float, kind: str = ".2f") -> str:
    """Return a number with its sign, the minus as long as the plus."""
    text = f"{number:+{kind}}"
    return text.replace("-", "−") if float(text) else text[1:]


def decimals(mean: float) -> int:
    """Return how many digits of an error in percent are worth printing."""
    return 2 if mean >= 1 else 3


def plus_minus(mean: float, deviation: float | None) -> str:
    """Return an error in percent with its deviation, if there is one."""
    digits = decimals(mean)
    text = f"{mean:.{digits}f}"
    return text if deviation is None else f"{text} ± {deviation:.{digits}f}"
