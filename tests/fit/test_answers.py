from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from invint.errors import RunError
from invint.fit.answers import Answer, Linear, Turned, chosen, spread_over
from invint.fit.candidates import MIRRORED, ORBIT, STEERABLE, TUNED, UPRIGHT, Candidate
from invint.fit.linear import Judgement
from invint.study.records import RunRecord

IMAGES = 100


def record(candidate: Candidate, *, folder: Path | None = None, error: float = 0.1) -> RunRecord:
    return RunRecord(
        recipe=candidate.recipe_name,
        hash="x",
        choices={"data": {"name": "folder:x", "side": 64}},
        seed=0,
        size=10,
        subset="s",
        data="folder:x",
        note="",
        fingerprint="f",
        error=error,
        cross_entropy=0.0,
        parameters=1000,
        steps=1,
        scale=1.0,
        seconds=1.0,
        test_images=IMAGES,
        train_images=10,
        version="0",
        folder=folder,
    )


def judgement(wrong: Tensor) -> Judgement:
    labels = torch.zeros(len(wrong), dtype=torch.int64)
    return Judgement(torch.arange(len(wrong)), one_hot(wrong.long(), 2).double(), labels)


def answer(candidate: Candidate, wrong: range | None) -> Answer:
    judged = None
    if wrong is not None:
        judged = judgement(torch.isin(torch.arange(IMAGES), torch.tensor(list(wrong))))
    return Answer(candidate, record(candidate), judged, Turned(IMAGES, 0.1, 0.0))


def test_of_what_cannot_be_told_apart_the_cheapest_is_chosen() -> None:
    cheap, dear = answer(ORBIT, range(12)), answer(MIRRORED, range(2, 13))
    assert chosen([cheap, dear]) is cheap  # one error more, of which the deviation is larger


def test_of_what_is_asked_at_one_price_the_best_is_chosen() -> None:
    first, second = answer(ORBIT, range(12)), answer(TUNED, range(2, 13))
    assert chosen([first, second]) is second
    assert chosen([second, first]) is second


def test_what_makes_clearly_fewer_errors_is_chosen_whatever_its_price() -> None:
    cheap, dear = answer(ORBIT, range(30)), answer(MIRRORED, range(5))
    assert chosen([cheap, dear]) is dear


def test_answers_are_compared_on_the_images_both_were_judged_by() -> None:
    cheap, dear = answer(ORBIT, range(30)), answer(TUNED, range(10))
    hard = replace(dear, judgement=dear.judgement and dear.judgement.of(torch.arange(25)))
    assert hard.judgement is not None
    assert cheap.judgement is not None
    assert hard.judgement.error > cheap.judgement.error  # of these images the other gets all wrong
    assert chosen([cheap, hard]) is hard


def test_what_keeps_no_promise_or_was_not_judged_is_never_chosen() -> None:
    upright, orbit, steerable = (
        answer(UPRIGHT, range(0)),
        answer(ORBIT, range(9)),
        answer(STEERABLE, None),
    )
    assert chosen([upright, orbit, steerable]) is orbit
    assert chosen([upright, steerable]) is None


def test_a_last_layer_multiplies_and_adds() -> None:
    last = Linear(torch.tensor([[1.0, 2.0]]).double(), torch.tensor([3.0]).double())
    torch.testing.assert_close(last(torch.tensor([[4.0, 5.0]])), torch.tensor([[17.0]]))


def test_pictures_are_taken_from_all_over_the_set() -> None:
    assert spread_over(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert spread_over(101, 3).tolist() == [0, 50, 100]


def test_a_record_without_a_folder_has_no_network() -> None:
    with pytest.raises(RunError, match="no folder of the run"):
        _ = answer(ORBIT, range(1)).store
