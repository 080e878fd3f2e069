"""What the advice says, for runs written by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import one_hot

from invint.data.dataset import Dataset, Split
from invint.errors import RunError
from invint.fit.advice import (
    NAMES,
    SHOWN_HEADING,
    Summary,
    advise,
    best_run,
    caution_lines,
    compare,
    comparison_line,
    confused,
    confusion_lines,
    counted,
    findings_of,
    saved_line,
    short_advice,
    summaries_of,
)
from invint.fit.plan import Plan
from invint.study.records import RunRecord
from invint.study.statistics import BETTER, UNDECIDED, WORSE

PLAN = Plan(side=16, batch_size=32, steps=300, seeds=1)


def record(
    folder: Path,
    recipe: str,
    answers: Tensor,
    labels: Tensor,
    *,
    seed: int = 0,
    turned: float = 0.5,
    validation: float = 0.1,
) -> RunRecord:
    """Write what the comparison reads of a run that gave these answers."""
    place = folder / recipe / str(seed)
    place.mkdir(parents=True)
    logits = 5.0 * one_hot(answers, int(labels.max()) + 1).float()
    save_file({"logits": logits, "labels": labels}, place / "predictions.safetensors")
    return RunRecord(
        recipe=recipe,
        hash="x",
        choices={},
        seed=seed,
        size=10,
        subset=f"subset {seed}",
        data="arrays:x",
        note="",
        fingerprint="f",
        error=(answers != labels).double().mean().item(),
        validation_error=validation,
        cross_entropy=0.0,
        parameters=1000,
        steps=1,
        scale=1.0,
        seconds=1.0,
        test_images=len(labels),
        train_images=10,
        version="0",
        turns=((0.0, 1.0), (90.0, turned), (180.0, turned)),
        folder=place,
    )


def data(labels: Tensor, groups: Tensor | None = None) -> Dataset:
    part = Split(torch.zeros(len(labels), 1, 16, 16, dtype=torch.uint8), labels, groups)
    names = ("cat", "dog", "owl")[: int(labels.max()) + 1]
    return Dataset("arrays:pets", part, part, names)


def changed(labels: Tensor, numbers: range) -> Tensor:
    """Return answers that take cats for dogs and the reverse on these images."""
    answers = labels.clone()
    answers[list(numbers)] = 1 - answers[list(numbers)]
    return answers


LABELS = torch.tensor([0, 1] * 60 + [2] * 30)


def four(folder: Path, wrong: dict[str, range], *, turned: float = 0.5) -> list[Summary]:
    """Return the four networks, each with its wrong answers."""
    return summaries_of(
        [
            record(folder, name, changed(LABELS, wrong.get(name, range(0))), LABELS, turned=turned)
            for name in NAMES
        ]
    )


def pick(each: list[Summary], name: str) -> Summary:
    return next(one for one in each if one.recipe == f"fit/{name}")


def test_one_seed_is_judged_by_the_images_alone(tmp_path: Path) -> None:
    found = four(tmp_path, {"fit/cnn": range(20), "fit/pooling": range(2)})
    clear = compare(pick(found, "local-ws"), pick(found, "cnn"), data(LABELS).test)
    assert (clear.better, clear.worse, clear.verdict) == (20, 0, BETTER)
    assert clear.p_value == pytest.approx(2 * 0.5**20)
    back = compare(pick(found, "cnn"), pick(found, "local-ws"), data(LABELS).test)
    assert back.verdict == WORSE
    weak = compare(pick(found, "local-ws"), pick(found, "pooling"), data(LABELS).test)
    assert (weak.better, weak.verdict, weak.p_value) == (2, UNDECIDED, 0.5)
    assert comparison_line(clear, groups=False) == (
        "Compared with the ordinary network, integration makes 13.3 percentage points fewer errors "
        "(one seed; right more often on 20 test images, less often on 0, p = 1.9e-06)."
    )
    assert "no difference is shown (measured: 1.3 percentage points fewer errors" in (
        comparison_line(weak, groups=False)
    )


def test_the_page_says_first_what_to_do(tmp_path: Path) -> None:
    findings = findings_of(four(tmp_path, {"fit/cnn": range(20)}), data(LABELS))
    advice = advise(findings, data(LABELS), PLAN)
    short, right, did, *rest = advice.sections()
    assert short == ("In short", ["Rotation invariance helps on these images."])
    assert right[0].startswith("Right answers")
    assert right[1][0] == "Ordinary network (cnn): 86.7 %, turned 50.0 %"
    assert len(right[1]) == len(NAMES)
    assert did == (SHOWN_HEADING, list(advice.shown))
    text = advice.text()
    assert "In short: rotation invariance helps on these images." in text
    for heading, lines in [did, *rest]:
        assert "\n".join([heading, *lines]) in text


def test_images_of_one_group_count_once(tmp_path: Path) -> None:
    found = four(tmp_path, {"fit/cnn": range(20)})
    groups = torch.arange(len(LABELS)) // 10
    judged = compare(pick(found, "local-ws"), pick(found, "cnn"), data(LABELS, groups).test)
    assert (judged.better, judged.worse, judged.verdict) == (2, 0, UNDECIDED)
    assert "right more often on 2 groups of test images" in comparison_line(judged, groups=True)


def test_several_seeds_must_agree_too(tmp_path: Path) -> None:
    def runs(name: str, counts: list[int]) -> list[RunRecord]:
        return [
            record(tmp_path, name, changed(LABELS, range(count)), LABELS, seed=seed)
            for seed, count in enumerate(counts)
        ]

    steady = summaries_of([*runs("fit/local-ws", [1, 2, 3]), *runs("fit/cnn", [20, 22, 24])])
    judged = compare(steady[0], steady[1], data(LABELS).test)
    assert judged.verdict == BETTER
    # differences of 19, 20 and 21 errors of 150: 13.33 points, deviation 0.67, Student's t 4.303
    assert "95 % interval -15.0 to -11.7 over 3 seeds" in comparison_line(judged, groups=False)
    unsteady = summaries_of(
        [*runs("fit/pooling", [0, 30, 60]), *runs("fit/cnn-turned", [40, 40, 45])]
    )
    assert compare(unsteady[0], unsteady[1], data(LABELS).test).verdict == UNDECIDED


def test_validation_decides_and_a_tie_goes_to_what_bears_turning(tmp_path: Path) -> None:
    found = four(tmp_path / "tie", {"fit/local-ws": range(50)})
    assert best_run(found).recipe == "fit/local-ws"  # though its test error is the largest
    better = record(tmp_path, "fit/cnn", LABELS, LABELS, validation=0.05)
    clear = [*found[1:], *summaries_of([better])]
    assert best_run(clear).recipe == "fit/cnn"
    pair = [
        record(tmp_path, "fit/pooling", LABELS, LABELS, seed=seed, validation=error)
        for seed, error in ((0, 0.02), (1, 0.01), (2, 0.01))
    ]
    assert best_run(summaries_of(pair)).seed == 1


def test_confused_classes_are_named_with_their_counts(tmp_path: Path) -> None:
    found = four(tmp_path, {"fit/local-ws": range(24), "fit/cnn": range(1)})
    (pair,) = confused(pick(found, "local-ws"), pick(found, "cnn"))
    assert (pair.classes, pair.count, pair.other) == ((0, 1), 24, 1)
    findings = findings_of(found, data(LABELS))
    (line,) = confusion_lines(findings, data(LABELS).class_names, PLAN)
    assert line.startswith("cat and dog: confused 24 times by the integrated network, 1 by the")
    assert "differ by their orientation" in short_advice(findings, PLAN)
    assert findings.best.recipe != "fit/cnn"
    assert saved_line(findings).endswith("take the ordinary network, fit/cnn, instead.")
    ordinary = replace(findings, best=pick(found, "cnn").runs[0])
    assert "instead" not in saved_line(ordinary)
    assert "instead" not in saved_line(replace(findings, confusions=()))


@pytest.mark.parametrize(
    ("wrong", "turned", "expected"),
    [
        ({"fit/cnn": range(30)}, 0.5, "helps on these images"),
        ({}, 0.5, "nothing was shown for or against"),
    ],
)
def test_the_summary_says_no_more_than_was_shown(
    wrong: dict[str, range], turned: float, expected: str, tmp_path: Path
) -> None:
    findings = findings_of(four(tmp_path, wrong, turned=turned), data(LABELS))
    assert expected in short_advice(findings, PLAN)
    assert "No pair of classes" in confusion_lines(findings, ("cat", "dog", "owl"), PLAN)[0]


def test_a_cost_is_called_a_cost(tmp_path: Path) -> None:
    labels = torch.arange(150) % 3
    runs = []
    for name in NAMES:
        answers = labels.clone()
        if name == "fit/local-ws":  # errors spread over all pairs: none stands out
            answers[:8] = (answers[:8] + 1) % 3
        runs.append(record(tmp_path, name, answers, labels))
    findings = findings_of(summaries_of(runs), data(labels))
    assert findings.comparisons[0].verdict == WORSE
    assert findings.confusions == ()
    assert "costs accuracy on these images as they are" in short_advice(findings, PLAN)


def test_what_turning_does_is_said_where_upright_shows_nothing(tmp_path: Path) -> None:
    runs = [
        record(tmp_path, name, LABELS, LABELS, turned=0.9 if name == "fit/pooling" else 0.4)
        for name in NAMES
    ]
    findings = findings_of(summaries_of(runs), data(LABELS))
    assert "use the steerable network with pooling; otherwise" in short_advice(findings, PLAN)
    text = advise(findings, data(LABELS), PLAN).text()
    assert "the ordinary network is right on 40.0 %, trained on turned copies on 40.0 %" in text
    assert "Compared with the ordinary network, no difference is shown (both make as many" in text
    assert "shared by 4 networks: of these the one made for turned images" in text
    assert "150 test images of 16 x 16 pixels" in text
    assert "with 1 seed, 300 steps each" in text
    assert "only large differences" not in text
    few = torch.tensor([0, 1, 2] * 5)
    cautious = advise(findings, data(few), PLAN).text()
    assert "So few test images show only large differences" in cautious


def test_nothing_is_concluded_from_networks_that_had_no_time(tmp_path: Path) -> None:
    short = replace(PLAN, steps=30, whole=False)
    findings = findings_of(four(tmp_path, {"fit/local-ws": range(24)}), data(LABELS))
    text = advise(findings, data(LABELS), short).text()
    assert "In short: the time was too short for all the steps that these networks need" in text
    assert "Networks that have not learned show nothing by it." in text
    assert "do not use" not in text
    assert "differ by their orientation" not in text


def test_nothing_is_concluded_from_networks_that_guess(tmp_path: Path) -> None:
    wrong = {name: range(60) for name in NAMES} | {"fit/cnn": range(30)}
    few = torch.tensor([0, 1] * 30)
    runs = [record(tmp_path, name, changed(few, wrong[name]), few) for name in NAMES]
    findings = findings_of(summaries_of(runs), data(few))
    assert not findings.learned
    assert "no network does better than always naming the largest" in short_advice(findings, PLAN)
    lines = confusion_lines(findings, ("cat", "dog"), PLAN)
    assert lines[0].endswith("Networks that have not learned show nothing by it.")


def test_lost_predictions_are_explained(tmp_path: Path) -> None:
    found = four(tmp_path, {})
    run = pick(found, "cnn").runs[0]
    assert run.folder is not None
    (run.folder / "predictions.safetensors").unlink()
    with pytest.raises(RunError, match=r"predictions\.safetensors is gone"):
        findings_of(found, data(LABELS))


def test_rare_classes_are_pointed_out() -> None:
    rare = torch.tensor([0] * 50 + [1] * 10)
    assert "The largest class has 5 times the images" in "\n".join(caution_lines(data(rare), PLAN))
    even = torch.tensor([0] * 20 + [1] * 10)
    assert "The largest class" not in "\n".join(caution_lines(data(even), PLAN))


def test_numbers_have_their_unit() -> None:
    assert counted(1, "seed") == "1 seed"
    assert counted(1200, "group of test images") == "1,200 groups of test images"
