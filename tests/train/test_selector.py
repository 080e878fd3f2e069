"""Selection as a phase of a run: what it keeps, what it writes, how a stop leaves no trace."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from support.written_runs import tiny_dataset

from invint.errors import ConfigError
from invint.export import load_model
from invint.nn import Monomials
from invint.recipes import changed, find_recipe
from invint.selection import find_monomials, prune
from invint.selection.pruning import first_dense
from invint.train import run as running
from invint.train.device import ProcessGroup
from invint.train.run import Run
from invint.train.selector import Selection, Selector
from invint.train.setup import RunData
from invint.train.store import RunStore

if TYPE_CHECKING:
    from support.stopped_runs import TinyRun

Tiny = Callable[..., "TinyRun"]

pytestmark = pytest.mark.slow

PRUNED = ("selection.start=6", "selection.steps=[[1,4],[2,2]]")
EXCHANGED = (
    "selection.start=2",
    "selection.pretrain=1.3",
    "selection.candidates=12",
    "selection.patience=6",
    "train.epochs=2",
    "train.scale=0.1",
)
CASES = {
    "digits/monomials": PRUNED,
    "digits/monomials-connectivity": (*PRUNED, "train.class_weights=true"),
    "digits/monomials-connectivity-init": ("selection.start=6", "selection.steps=[[0,2]]"),
    "digits/monomials-lse": EXCHANGED,
    "digits/monomials-none": ("selection.start=3", "model.depths=2", "head.max_distance=4"),
}


@pytest.mark.usefixtures("frequent_checkpoints")
@pytest.mark.parametrize("name", CASES)
def test_stopping_around_a_selection_and_going_on_ends_in_the_same_bits(
    tiny: Tiny, name: str
) -> None:
    whole, broken = (tiny(name, *CASES[name], place=place) for place in ("whole", "broken"))
    whole.train()
    broken.stop(6, 7, 9, 11, 12)  # at selections and after them
    broken.train()
    assert broken.outcome() == whole.outcome()


def test_survivors_keep_exponents_columns_and_moments(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def state(network: Any, optimizer: Any) -> list[torch.Tensor]:
        """Exponents and columns with their moments, monomials first."""
        exponents = find_monomials(network)[2].exponents
        weight = first_dense(network)[1].weight
        found = [exponents, *(optimizer.state[exponents][k] for k in ("exp_avg", "exp_avg_sq"))]
        for table in (weight, *(optimizer.state[weight][k] for k in ("exp_avg", "exp_avg_sq"))):
            rows = table.detach().reshape(len(table), -1, len(exponents))
            found.append(rows.permute(2, 0, 1))
        return [each.detach().clone() for each in found]

    def watched(network: Any, optimizer: Any, kept: list[int]) -> None:
        before = state(network, optimizer)
        prune(network, optimizer, kept)
        for old, new in zip(before, state(network, optimizer), strict=True):
            assert torch.equal(new, old[kept])
            assert old.any()
        seen.append(kept)

    monkeypatch.setattr(running, "prune", watched)
    run = tiny("digits/monomials", *PRUNED)
    events = [entry for entry in run.train().entries if "event" in entry]
    assert [entry["kept"] for entry in events] == seen
    assert [entry["step"] for entry in events] == [5, 10]


def test_a_pruned_network_is_as_small_as_one_that_never_had_more(tiny: Tiny) -> None:
    pruned, small = (
        tiny(name, *choices).train().results[0]["parameters"]
        for name, choices in (
            ("digits/monomials", PRUNED),
            ("digits/monomials-none", ("selection.start=2",)),
        )
    )
    assert pruned == small


@pytest.mark.parametrize("name", ["digits/monomials", "digits/monomials-none"])
def test_exponents_at_the_start_are_those_drawn(tiny: Tiny, name: str) -> None:
    run = tiny(name, *CASES[name], "train.lr=0.05")
    run.train()
    history = RunStore(run.folder()).history()
    drawn = torch.tensor(history.start.exponents)
    assert ((drawn >= 0) & (drawn < 1)).all()
    model = load_file(run.folder() / "model.safetensors")
    trained = model[min(key for key in model if key.endswith("exponents"))]
    torch.testing.assert_close(torch.tensor(history.final.exponents), trained)
    assert not torch.equal(torch.tensor(history.start.keep(history.survivors).exponents), trained)
    other = tiny(name, *CASES[name], "train.lr=0.01")  # what is drawn depends on the seed alone
    other.train()
    assert RunStore(other.folder()).history().start == history.start


def test_what_least_squares_chose_is_what_is_shown_and_trained(tiny: Tiny) -> None:
    run = tiny("digits/monomials-lse", *EXCHANGED)
    entries = run.train().entries
    (event,) = [entry for entry in entries if "event" in entry]
    assert event["accepted"] <= event["tried"] <= 12
    assert event["objective"][1] <= event["objective"][0]
    history = RunStore(run.folder()).history()
    assert history.first == Monomials.from_dict(event["monomials"])
    assert history.start == Monomials.from_dict(event["start"])
    assert history.final.distances == history.first.distances
    assert load_model(run.folder() / "model.safetensors").card.head == "monomials"


def test_the_learning_rate_starts_anew_with_the_exchanged_monomials(tiny: Tiny) -> None:
    """Pre-training ends in step 8.125 of 6.25 an epoch, that is after eight steps."""
    smooth = ["train.decay=exponential", "train.lr_decay=0.3", "train.lr_decay_epochs=10"]
    run = tiny("digits/monomials-lse", *EXCHANGED, *smooth)
    watch = run.train()
    rates = {entry["step"]: entry["lr"] for entry in watch.entries if "event" not in entry}
    for step, rate in rates.items():
        epoch = (step - 1 - (8 if step > 8 else 0)) / 6.25
        assert rate == pytest.approx(1e-2 * 0.3 ** (epoch / 10))
    assert [entry["step"] for entry in watch.entries if "event" in entry] == [8]


def test_selections_that_fall_on_one_step_are_all_shown(tiny: Tiny) -> None:
    run = tiny("digits/monomials", "selection.start=6", "selection.steps=[[0.1,4],[0.15,2]]")
    run.train()
    history = RunStore(run.folder()).history()
    assert [(step.step, len(step.kept)) for step in history.steps] == [(0, 4), (0, 2)]


def test_weights_are_not_the_best_before_all_is_chosen(tiny: Tiny) -> None:
    run = tiny("digits/monomials", *PRUNED, "data.validation=0.25", "train.lr=1e-9")
    watch = run.train()
    errors = [entry["validation_error"] for entry in watch.entries if "event" not in entry]
    assert len(errors) == 4
    assert watch.results[0]["best"]["step"] == 15
    assert len(load_file(run.folder() / "best.safetensors")["head.1.exponents"]) == 2


def test_a_last_batch_of_one_image_does_not_stop_a_selection_at_the_start(tiny: Tiny) -> None:
    choices = ("data.size=257", "selection.start=3", "selection.steps=[[0,2]]", "train.scale=0.01")
    run = tiny("digits/monomials-connectivity-init", *choices)
    event = run.train().entries[0]
    assert len(event["scores"]) == 3


def test_connectivity_is_that_of_the_weighted_loss(tiny: Tiny) -> None:
    """At the start, where both runs have the same weights."""
    scores = [
        tiny(name, *CASES[name], f"train.class_weights={weighted}", "data.size=43")
        .train()
        .entries[0]["scores"]
        for name in ["digits/monomials-connectivity-init"]
        for weighted in ("true", "false")
    ]
    assert scores[0] != scores[1]


@pytest.mark.parametrize("name", ["digits/monomials", "digits/monomials-lse"])
def test_all_processes_take_the_choice_of_the_one_that_leads(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Their running statistics differ, and with them what each of them would choose."""

    def other(_: ProcessGroup, value: Any) -> Any:
        if value.exchanged is None:
            return replace(value, kept=tuple(range(len(value.kept))))
        return replace(value, exchanged=value.exchanged.keep([1, 0]))

    monkeypatch.setattr(ProcessGroup, "from_main", other)
    run = tiny(name, *CASES[name])
    events = [entry for entry in run.train().entries if "event" in entry]
    if name == "digits/monomials":
        assert [entry["kept"] for entry in events] == [[0, 1, 2, 3], [0, 1]]
    chosen = [tuple(event["monomials"]["distances"]) for event in events]
    monkeypatch.undo()
    alone = tiny(name, *CASES[name], place="alone").train().entries
    assert chosen != [tuple(each["monomials"]["distances"]) for each in alone if "event" in each]


def test_least_squares_keeps_what_was_learned_without_monomials(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    apply = Run.apply

    def watched(run: Run, selection: Selection) -> None:
        before = {key: value.clone() for key, value in run.network.features.state_dict().items()}
        apply(run, selection)
        after = run.network.features.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(value, after[key]) for key, value in before.items())
        assert not run.optimizer.state
        seen.append(selection)

    monkeypatch.setattr(Run, "apply", watched)
    tiny("digits/monomials-lse", *EXCHANGED).train()
    assert len(seen) == 1


def drawn(name: str, *choices: str) -> Monomials:
    """Return the monomials a run on tiny digits starts with."""
    recipe, nothing = changed(find_recipe(name), choices), torch.arange(0)
    data = RunData(tiny_dataset(), nothing, nothing, None, (0.5,), (0.2,))
    start = Selector(recipe, data, recipe.schedule(1000), 0).start
    assert start is not None
    return start


def test_what_is_drawn_is_as_the_head_has_it() -> None:
    """The map of digits has a side of 5, and half of it is the largest distance by default."""
    name, many = "digits/monomials-none", "selection.start=50"
    usual, far = drawn(name, many), drawn(name, many, "head.max_distance=4")
    assert [max(map(max, each.distances)) for each in (usual, far)] == [2, 4]
    pairs = drawn(name, many, "head.factors=2", "head.own_angles=true")
    assert {len(row) for row in pairs.distances} == {2}
    assert len({row[1] for row in pairs.angles}) == 50
    steep = drawn(name, many, "head.exponents=1,3")
    assert (steep.distances, steep.angles) == (usual.distances, usual.angles)
    assert max(map(max, steep.exponents)) > 2


def test_a_catalog_has_more_combinations_where_distances_are_larger() -> None:
    for reach, combinations in ((2, 3), (4, 10)):
        found = drawn("digits/monomials-magnitude-catalog", f"head.max_distance={reach}")
        assert len({tuple(sorted(row)) for row in found.distances}) == combinations


def test_distances_that_do_not_fit_the_map_are_refused() -> None:
    with pytest.raises(ConfigError, match="a distance of 5 does not fit a map of 5 x 5; use at"):
        drawn("digits/monomials-none", "head.max_distance=5")


def test_connectivity_keeps_its_sign_where_asked(tiny: Tiny) -> None:
    name, first = (
        "digits/monomials-connectivity-init",
        ("selection.start=8", "selection.steps=[[0,2]]"),
    )
    scores = [
        torch.tensor(tiny(name, *first, *more, "train.scale=0.01").train().entries[0]["scores"])
        for more in ((), ("selection.signed=true",), ("selection.statistics=running",))
    ]
    assert torch.equal(scores[0], scores[1].abs())
    assert scores[1].min() < 0
    assert not torch.equal(scores[0], scores[2])
