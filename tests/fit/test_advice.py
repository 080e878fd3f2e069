"""What the advice says, for answers written by hand."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import one_hot

from invint.data.dataset import Dataset, Split
from invint.errors import RunError
from invint.fit.advice import (
    Comparison,
    beats_guessing,
    caution_lines,
    compare,
    comparison_line,
    confused,
    confusion_lines,
    counted,
    network_lines,
    ordinary_of,
    saved_line,
    short_advice,
    skipped_line,
    table_lines,
    turned_line,
)
from invint.fit.answers import Answer, Turned
from invint.fit.candidates import ORBIT, STEERABLE, UPRIGHT, Candidate
from invint.fit.linear import Judgement
from invint.fit.schedule import Skipped
from invint.study.records import RunRecord
from invint.study.statistics import BETTER, UNDECIDED, WORSE

LABELS = torch.tensor([0, 1] * 60 + [2] * 30)


def answer(
    folder: Path, candidate: Candidate, answers: Tensor, *, error: float = 0.4, change: float = 0.0
) -> Answer:
    """Write what the advice reads of a run that gave these answers."""
    place = folder / candidate.name
    place.mkdir(parents=True)
    logits = 5.0 * one_hot(answers, 3).float()
    save_file({"logits": logits, "labels": LABELS}, place / "predictions.safetensors")
    wrong = (answers != LABELS).double().mean().item()
    run = RunRecord(
        recipe=candidate.recipe_name,
        hash="x",
        choices={"data": {"name": "folder:x", "side": 64}},
        seed=0,
        size=10,
        subset="s",
        data="folder:x",
        note="",
        fingerprint="f",
        error=wrong,
        cross_entropy=0.0,
        parameters=1000,
        steps=1,
        scale=1.0,
        seconds=1.0,
        test_images=len(LABELS),
        train_images=10,
        version="0",
        folder=place,
    )
    judged = Judgement(torch.arange(len(LABELS)), logits.double(), LABELS)
    return Answer(candidate, run, judged, Turned(100, error, change))


def changed(numbers: range) -> Tensor:
    """Return answers that take cats for dogs and the reverse on these pictures."""
    answers = LABELS.clone()
    answers[list(numbers)] = 1 - answers[list(numbers)]
    return answers


def pictures(groups: Tensor | None = None) -> Dataset:
    part = Split(torch.zeros(len(LABELS), 1, 16, 16, dtype=torch.uint8), LABELS, groups)
    return Dataset("folder:pets", part, part, ("cat", "dog", "owl"))


@dataclass
class Found:
    """As much of a search as the advice reads."""

    first: Dataset
    answers: list[Answer]
    held: dict[str, Judgement] = field(default_factory=dict)


def test_a_direction_needs_more_than_chance(tmp_path: Path) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(0)))
    upright = answer(tmp_path, UPRIGHT, changed(range(20)))
    steerable = answer(tmp_path, STEERABLE, changed(range(2)))
    test = pictures().test
    clear = compare(orbit, upright, test)
    assert (clear.better, clear.worse, clear.verdict) == (20, 0, BETTER)
    assert clear.p_value == pytest.approx(2 * 0.5**20)
    assert compare(upright, orbit, test).verdict == WORSE
    weak = compare(orbit, steerable, test)
    assert (weak.better, weak.verdict, weak.p_value) == (2, UNDECIDED, 0.5)
    assert comparison_line(clear, orbit, upright, groups=False) == (
        "Of orbit and upright, the first makes 13.3 percentage points fewer errors on pictures as "
        "they are (right on 20 test pictures where the other is wrong, wrong on 0 where it is "
        "right, p = 1.9e-06)."
    )
    assert "1.3 percentage points fewer errors on pictures as they are: no difference is shown" in (
        comparison_line(weak, orbit, steerable, groups=False)
    )
    same = compare(orbit, orbit, test)
    assert (same.gap, same.p_value, same.verdict) == (0, 1, UNDECIDED)
    assert "makes as many errors" in comparison_line(same, orbit, orbit, groups=False)


def test_pictures_of_one_group_count_once(tmp_path: Path) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(0)))
    upright = answer(tmp_path, UPRIGHT, changed(range(20)))
    judged = compare(orbit, upright, pictures(torch.arange(len(LABELS)) // 10).test)
    assert (judged.better, judged.worse, judged.verdict) == (2, 0, UNDECIDED)
    line = comparison_line(judged, orbit, upright, groups=True)
    assert "right on 2 groups of test pictures" in line


def test_classes_that_differ_by_orientation_are_named(tmp_path: Path) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(30)))
    upright = answer(tmp_path, UPRIGHT, changed(range(0)))
    pairs = confused(orbit, upright)
    (line,) = confusion_lines(pairs, orbit, upright, ("cat", "dog", "owl"))
    assert line.startswith("cat and dog: confused 30 times by orbit, 0 by upright (p = ")
    assert "do not use an invariant network to tell them apart" in line
    assert "differ by their orientation, which orbit cannot see" in short_advice(
        orbit, upright, None or compare(orbit, upright, pictures().test), pairs, learned=True
    )
    (line,) = confusion_lines([], orbit, upright, ())
    assert line.startswith("No pair of classes is confused significantly more often by orbit")


@pytest.mark.parametrize(
    ("gap", "p_value", "words"),
    [
        (-0.1, 0.001, "use orbit: invariance to turns helps on these pictures, even as they are"),
        (0.1, 0.001, "if your pictures always come upright, upright makes fewer errors"),
        (0.1, 0.5, "use orbit: on pictures as they are no difference to upright is shown"),
    ],
)
def test_what_to_do_is_said_first(tmp_path: Path, gap: float, p_value: float, words: str) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(0)))
    upright = answer(tmp_path, UPRIGHT, changed(range(0)))
    better, worse = (30, 5) if gap < 0 else (5, 30)
    found = Comparison(gap, better, worse, p_value)
    assert words in short_advice(orbit, upright, found, [], learned=True)
    assert "nothing should be concluded" in short_advice(orbit, upright, found, [], learned=False)
    assert "Nothing else was tried" in short_advice(orbit, None, None, [], learned=True)


def test_one_table_names_everything_as_the_rest_does(tmp_path: Path) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(15)), error=0.1)
    upright = answer(tmp_path, UPRIGHT, changed(range(30)), error=0.55, change=0.5)
    found = Found(pictures(), [orbit, upright])
    held = upright.judgement
    assert held is not None
    found.held[STEERABLE.name] = held
    head, first, second, third, *meaning = table_lines(found, orbit)  # type: ignore[arg-type]
    columns = ["errors", "cross-validated", "test as it is", "test turned by 90°", "answers change"]
    assert head.split() == " ".join(columns).split()
    assert first.split() == ["orbit", "10.0", "%", "10.0", "%", "10.0", "%", "0.0", "%", "saved"]
    assert second.split() == ["upright", "20.0", "%", "20.0", "%", "55.0", "%", "50.0", "%"]
    assert third.split() == ["steerable", "20.0", "%", "not", "trained", "on", "all"]
    assert [line.partition(":")[0] for line in meaning] == ["orbit", "upright", "steerable"]
    sentences = network_lines(found)  # type: ignore[arg-type]
    assert sentences[0].startswith("orbit, pretrained network over quarter turns: 10.0 % errors")
    assert ordinary_of([orbit, upright]) is upright
    assert ordinary_of([orbit]) is None
    line = turned_line(orbit, upright)
    assert "upright gives another answer for 50.0 % of the pictures and is wrong on 55.0 %" in line
    saved = saved_line(found, orbit)  # type: ignore[arg-type]
    assert saved.startswith("Orbit at 64 x 64 pixels: the best of the cheapest invariant networks")
    assert f"invint export {upright.run.folder} --out upright.onnx" in saved


def test_what_was_left_out_says_what_it_takes() -> None:
    assert skipped_line(Skipped("network x", 120.0, 30.0)) == (
        "Network x would have taken 2.0 minutes, with 0.5 left; give more --minutes."
    )
    assert "was stopped because it took longer than 2.0 minutes" in skipped_line(
        Skipped("network x", 120.0, 30.0, begun=True)
    )


def test_limits_of_the_figures_are_said(tmp_path: Path) -> None:
    found = Found(pictures(), [answer(tmp_path, ORBIT, changed(range(0)))])
    text = "\n".join(caution_lines(found, "a leak"))  # type: ignore[arg-type]
    assert text.startswith("150 test pictures, never used to choose anything; 150 pictures to")
    assert "The scan of the folder warns: a leak." in text
    assert "only large differences" not in text
    few = pictures().test[torch.arange(50)]
    uneven = pictures().train[torch.cat([torch.arange(0, 100, 2), torch.tensor([1, 120, 121])])]
    small = Dataset("folder:x", uneven, few, ("cat", "dog", "owl"))
    found = Found(small, [])
    text = "\n".join(caution_lines(found, ""))  # type: ignore[arg-type]
    assert "only large differences" in text
    assert "The largest class has 50 times the pictures of the smallest" in text
    assert "The scan" not in text


def test_guessing_is_no_learning(tmp_path: Path) -> None:
    good = answer(tmp_path, ORBIT, changed(range(0)))
    lost = answer(tmp_path, UPRIGHT, torch.zeros_like(LABELS))
    assert beats_guessing([good, lost], pictures().test)
    assert not beats_guessing([lost], pictures().test)


def test_predictions_that_are_gone_are_missed(tmp_path: Path) -> None:
    orbit = answer(tmp_path, ORBIT, changed(range(0)))
    (tmp_path / "orbit" / "predictions.safetensors").unlink()
    with pytest.raises(RunError, match=r"predictions.safetensors is gone"):
        compare(orbit, orbit, pictures().test)


def test_numbers_have_their_unit() -> None:
    assert counted(1, "picture") == "1 picture"
    assert counted(1200, "group of test pictures") == "1,200 groups of test pictures"
