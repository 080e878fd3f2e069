"""Runs in this process: what they write, how they stop, how they resume."""

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from support.stopped_runs import TINY, Noting, Stop
from torch import nn

from invint.data.registry import load_dataset
from invint.errors import ConfigError, DataError, Interrupted, RunError
from invint.export import load_model
from invint.models import MODELS, Network
from invint.recipes import changed, find_recipe
from invint.train import Execution, train_run
from invint.train.setup import RunData, class_weights

if TYPE_CHECKING:
    from support.stopped_runs import TinyRun

Tiny = Callable[..., "TinyRun"]
Outcome = dict[str, Any]

pytestmark = pytest.mark.slow


def test_a_run_leaves_what_the_folder_promises(tiny: Tiny) -> None:
    run = tiny("digits/pooling", "data.test_turns=2", "train.class_weights=true")
    watch = run.train(seed=3)
    folder = run.folder(3)
    assert sorted(path.name for path in folder.iterdir()) == [
        "environment.json",
        "last.safetensors",
        "lock",
        "log.jsonl",
        "model.safetensors",
        "predictions.safetensors",
        "recipe.json",
        "result.json",
        "subset.json",
    ]
    read = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    assert read["recipe"]["hash"] == run.recipe.hash == folder.parent.name
    assert read["recipe"]["choices"] == json.loads(json.dumps(run.recipe.choices))
    assert read["recipe"]["seed"] == read["subset"]["seed"] == 3
    assert len(read["subset"]["indices"]) == read["subset"]["size"] == 40
    result = read["result"]
    assert [result] == watch.results
    assert (result["steps"], result["train_images"], result["test_images"]) == (20, 40, 797)
    assert 0 <= result["averaged_error"] <= 1
    assert sum(row["images"] for row in result["per_class"]) == 797
    wrong = sum(row["images"] * row["error"] for row in result["per_class"])
    assert wrong == pytest.approx(797 * result["error"])


@pytest.mark.parametrize(
    "choice",
    [
        "data.name=nothing",
        "data.name=folder:nowhere",
        "data.size=5",
        "data.augment=fold",
        "model.head=none-such",
    ],
)
def test_a_choice_that_is_refused_leaves_nothing(choice: str, tiny: Tiny) -> None:
    run = tiny("digits/local-ws", choice)
    with pytest.raises((ConfigError, DataError)):
        run.train()
    assert not run.runs.exists()


def test_the_result_is_that_of_the_network_in_the_folder(tiny: Tiny) -> None:
    run = tiny()
    run.train()
    result = json.loads((run.folder() / "result.json").read_text())
    test = load_dataset("digits").test
    model = load_model(run.folder() / "model.safetensors")
    logits = model(test.images.float() / 255)
    stored = load_file(run.folder() / "predictions.safetensors")
    torch.testing.assert_close(logits, stored["logits"], rtol=1e-4, atol=1e-4)
    assert torch.equal(stored["labels"], test.labels)
    error = (stored["logits"].argmax(dim=1) != test.labels).double().mean().item()
    assert result["error"] == error


def test_the_log_counts_nominal_epochs(tiny: Tiny) -> None:
    """Forty images, but an epoch is a pass over all 1,000, scaled by 0.08: five steps of 16."""
    smooth = ["train.decay=exponential", "train.lr_decay=0.3", "train.lr_decay_epochs=10"]
    run = tiny("digits/local-ws", *smooth)
    watch = run.train()
    assert [entry["epoch"] for entry in watch.entries] == [1, 2, 3, 4]
    assert [entry["step"] for entry in watch.entries] == [5, 10, 15, 20]
    lines = (run.folder() / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == watch.entries
    for entry in watch.entries:
        parts = entry["cross_entropy"] + entry["elastic"] + entry["norm_penalty"]
        assert entry["loss"] == pytest.approx(parts, rel=1e-5)
        epoch = (entry["step"] - 1) / 5
        assert entry["lr"] == pytest.approx(1e-2 * 0.3 ** (epoch / 10))


def test_a_subset_takes_as_many_steps_as_all_images(tiny: Tiny) -> None:
    steps = {
        tiny("digits/local-ws", f"data.size={size}").train().results[0]["steps"]
        for size in (20, "none")
    }
    assert steps == {20}


@pytest.mark.usefixtures("frequent_checkpoints")
@pytest.mark.parametrize("stops", [[1], [7, 7, 8], [4, 5, 6, 19, 20]])
def test_stopping_anywhere_and_going_on_ends_in_the_same_bits(
    tiny: Tiny, undisturbed: Outcome, stops: list[int]
) -> None:
    broken = tiny()
    broken.stop(*stops)
    assert broken.train().results
    assert broken.outcome() == undisturbed


@pytest.mark.parametrize("stops", [[3, 12], [20]])
def test_without_a_checkpoint_a_run_begins_anew(
    tiny: Tiny, undisturbed: Outcome, stops: list[int]
) -> None:
    broken = tiny()
    broken.stop(*stops)
    assert broken.train().began == [0]
    assert broken.outcome() == undisturbed


@pytest.mark.usefixtures("frequent_checkpoints")
def test_the_best_weights_are_the_same_after_a_stop(tiny: Tiny) -> None:
    choices = ("data.validation=0.25", "train.lr=0.05")
    whole, broken = (tiny("digits/pooling", *choices, place=place) for place in ("a", "b"))
    watch = whole.train()
    broken.stop(6, 11, 20)
    broken.train()
    assert broken.outcome() == whole.outcome()
    errors = [entry["validation_error"] for entry in watch.entries]
    result = watch.results[0]
    assert result["best"]["validation_error"] == min(errors)
    assert result["best"]["step"] == 5 * (1 + errors.index(min(errors)))
    assert result["validation_error"] == errors[-1]
    subset = json.loads((whole.folder() / "subset.json").read_text())
    assert (len(subset["indices"]), len(subset["validation"])) == (30, 10)
    assert not set(subset["indices"]) & set(subset["validation"])


SETTLED = [
    "train.decay=cosine",
    "train.warmup=0.5",
    "train.ema=0.9",
    "train.statistics=3",
    "train.clip_norm=1",
    "train.label_smoothing=0.1",
    "train.optimizer=adamw",
    "train.weight_decay=0.01",
    "model.norm_features=true",
    "model.dropout=0.3",
    "data.validation=0.25",
]


@pytest.mark.usefixtures("frequent_checkpoints")
@pytest.mark.parametrize(
    "recipe",
    [
        "digits/monomials selection.start=6 selection.steps=[[1,4],[2,2]]",
        "digits/cnn model.group=none data.test_turns=1",
    ],
)
def test_settled_training_ends_in_the_same_bits_wherever_it_was_stopped(
    tiny: Tiny, recipe: str
) -> None:
    name, *choices = recipe.split()
    whole, broken = (tiny(name, *SETTLED, *choices, place=place) for place in ("a", "b"))
    whole.train()
    broken.stop(3, 6, 13, 20)
    broken.train()
    assert broken.outcome() == whole.outcome()


def test_the_average_is_what_is_exported_and_evaluated(tiny: Tiny) -> None:
    run = tiny("digits/local-ws", *SETTLED)
    run.train()
    last = load_file(run.folder() / "last.safetensors")
    model = load_file(run.folder() / "model.safetensors")
    weight = "classifier.0.weight"
    assert torch.equal(model[weight], last[f"average.{weight}"])
    assert not torch.equal(model[weight], last[f"network.{weight}"])
    mean = "classifier.0.running_mean"
    assert not torch.equal(model[mean], last[f"average.{mean}"])
    assert not torch.equal(model[mean], last[f"network.{mean}"])
    test = load_dataset("digits").test
    logits = load_model(run.folder() / "model.safetensors")(test.images.float() / 255)
    stored = load_file(run.folder() / "predictions.safetensors")["logits"]
    torch.testing.assert_close(logits, stored, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("frequent_checkpoints")
def test_monomials_whose_exponents_became_negative_can_be_gone_on_with(tiny: Tiny) -> None:
    choices = ("train.lr=0.3", "selection.method=none", "selection.start=4", "selection.steps=[]")
    run = tiny("digits/monomials", *choices)
    run.stop(19)
    assert run.train().began == [18]
    state = load_file(run.folder() / "model.safetensors")
    assert any((each < 0).any() for name, each in state.items() if name.endswith("exponents"))
    assert load_model(run.folder() / "model.safetensors").card.head == "monomials"


def test_a_finished_run_says_what_it_is_not(tiny: Tiny) -> None:
    run = tiny()
    run.train()
    watch = run.train(execution=Execution(threads=63, precision="bfloat16", device="cpu"))
    assert watch.notes == [
        f"{run.folder()} is complete; nothing to do",
        "it ran with precision float32, not bfloat16 as asked for; "
        "choose another --runs folder to run it again",
        "it ran with threads 1, not 63 as asked for; choose another --runs folder to run it again",
    ]
    assert len(watch.results) == 1


def test_a_finished_run_is_not_run_again(tiny: Tiny) -> None:
    run = tiny()
    run.train()
    before = {path: path.stat().st_mtime_ns for path in run.folder().iterdir()}
    watch = run.train()
    assert watch.notes == [f"{run.folder()} is complete; nothing to do"]
    assert len(watch.results) == 1
    assert watch.began == []
    assert {path: path.stat().st_mtime_ns for path in run.folder().iterdir()} == before


def test_seeds_and_recipes_have_folders_of_their_own(tiny: Tiny) -> None:
    run, other = tiny(), tiny("digits/local-ws", "train.lr=0.02")
    for seed in (0, 1):
        run.train(seed=seed)
    other.train()
    assert len({run.folder(0), run.folder(1), other.folder()}) == 3
    outcomes = [run.outcome(0), run.outcome(1), other.outcome()]
    for first, second in pairwise(outcomes):
        assert first["model.safetensors"] != second["model.safetensors"]
        assert first["log.jsonl"] != second["log.jsonl"]
    assert outcomes[0]["subset.json"] == outcomes[2]["subset.json"]
    assert outcomes[0]["subset.json"] != outcomes[1]["subset.json"]


def test_the_outcome_does_not_depend_on_the_generator_outside(
    tiny: Tiny, undisturbed: Outcome
) -> None:
    torch.manual_seed(77)
    state, run = torch.get_rng_state(), tiny()
    run.train()
    assert torch.equal(torch.get_rng_state(), state)
    assert run.outcome() == undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_going_on_ends_in_the_same_bits(
    tiny: Tiny, undisturbed: Outcome, number: signal.Signals
) -> None:
    stopped = tiny()
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def press(step: int) -> None:
        if step == 7:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted) as caught:
        stopped.train(after=press)
    assert str(caught.value) == (
        f"stopped at step 7 of 20; the same command resumes it from there ({stopped.folder()})"
    )
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert stopped.train().began == [7]
    assert stopped.outcome() == undisturbed


def test_a_second_signal_stops_at_once(tiny: Tiny) -> None:
    run = tiny()

    def press(step: int) -> None:
        if step == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)  # as torchrun does: no second Ctrl-C
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError

    with pytest.raises(Interrupted, match="stopped at once; the same command resumes from the"):
        run.train(after=press)


def test_whoever_looks_on_is_told_of_the_end_however_it_comes(tiny: Tiny) -> None:
    run = tiny()
    run.stop(3)
    assert run.watch.ends == 1
    assert run.train().ends == 1


def test_a_run_in_a_thread_cannot_hear_signals_and_does_not_need_to(
    tiny: Tiny, undisturbed: Outcome
) -> None:
    run = tiny()
    thread = threading.Thread(target=run.train)
    thread.start()
    thread.join()
    assert run.outcome() == undisturbed


@pytest.mark.usefixtures("frequent_checkpoints")
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_used(
    tiny: Tiny, undisturbed: Outcome, damage: str
) -> None:
    damaged = tiny()
    damaged.stop(9)
    last = damaged.folder() / "last.safetensors"
    content = bytearray(last.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[-5] ^= 1
    last.write_bytes(content)
    watch = damaged.train()
    problem = "cut off or not a checkpoint" if damage == "cut" else "altered since it was written"
    assert watch.notes == [f"{last}: {problem}; resuming from the checkpoint before it"]
    assert watch.began == [7]
    outcome = damaged.outcome()
    assert outcome.pop("damaged-last.safetensors") == bytes(content)
    assert outcome == undisturbed


@pytest.mark.usefixtures("frequent_checkpoints")
def test_two_damaged_checkpoints_mean_a_new_start(tiny: Tiny) -> None:
    run = tiny()
    run.stop(9)
    for name in ("last.safetensors", "previous.safetensors"):
        (run.folder() / name).write_bytes(b"")
    watch = run.train()
    assert len(watch.notes) == 2
    assert watch.began == [0]


def test_drafts_of_a_killed_process_are_cleared_away(tiny: Tiny) -> None:
    run = tiny()
    run.folder().mkdir(parents=True)
    (run.folder() / ".next.safetensors.abcdef").write_bytes(b"half")
    (run.folder() / "lock").touch()
    run.train()
    assert not list(run.folder().glob(".*"))


def test_a_data_set_that_changed_is_refused(tiny: Tiny) -> None:
    run = tiny()
    run.stop(3)
    path = run.folder() / "subset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fingerprint": "other"}))
    with pytest.raises(RunError, match="the data set has changed since the run began; put it back"):
        run.train()


def test_a_run_of_another_version_is_refused(tiny: Tiny) -> None:
    run = tiny()
    run.stop(3)
    path = run.folder() / "recipe.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(RunError, match="format 2, this invint reads 1; resume it with the version"):
        run.train()


def test_another_library_or_machine_is_noted(tiny: Tiny) -> None:
    run = tiny()
    run.stop(3)
    path = run.folder() / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"torch": "1.0", "processes": 2}))
    assert run.train().notes == [
        f"the run began with torch 1.0 and is resumed with {torch.__version__}: the last bits may "
        "differ",
        "the run began with processes 2 and is resumed with 1: the last bits may differ",
    ]


def test_a_run_goes_on_with_its_own_number_of_threads(tiny: Tiny) -> None:
    run, seen = tiny(), set[int]()
    run.stop(3)
    with pytest.raises(ConfigError, match="the run began with threads 1, got 2"):
        run.train(execution=Execution(threads=2))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    run.train(execution=Execution(), after=lambda _: seen.add(torch.get_num_threads()))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)
    assert seen == {1}


def test_an_environment_that_was_never_written_is_decided_anew(tiny: Tiny) -> None:
    run = tiny()
    run.stop(1)
    for name in ("environment.json", "subset.json"):
        (run.folder() / name).unlink()
    run.train()
    assert (run.folder() / "environment.json").exists()
    assert (run.folder() / "subset.json").exists()


def test_a_loss_that_is_no_number_stops_the_run(tiny: Tiny) -> None:
    run = tiny("digits/pooling", "train.lr=1e30")
    with pytest.raises(RunError) as caught:
        run.train()
    assert str(caught.value).startswith(f"{run.folder()}: the loss is nan in epoch ")
    assert str(caught.value).endswith(
        "the last good checkpoint is kept; try a smaller learning rate, for instance "
        "--set train.lr=1e-4"
    )
    assert not (run.folder() / "result.json").exists()


@pytest.mark.usefixtures("frequent_checkpoints")
def test_weights_that_are_no_numbers_are_never_saved(tiny: Tiny) -> None:
    run = tiny()
    run.stop(3)
    from invint.train import run as training

    def spoil(self: training.Run, step: int) -> float:
        del step
        with torch.no_grad():
            next(self.network.parameters()).fill_(float("inf"))
        return 0.0

    rate = training.Run.rate
    training.Run.rate = spoil  # type: ignore[method-assign]
    try:
        with pytest.raises(RunError, match="the last good checkpoint is kept"):
            run.train()
    finally:
        training.Run.rate = rate  # type: ignore[method-assign]
    assert run.train().began == [2]


def test_digits_are_learned_in_seconds(tmp_path: Path) -> None:
    """A hundred steps of a narrow network get two of three turned digits right."""
    choices = (
        "model.widths=6,8,12 model.n_fc=16 model.group=C4 model.dropout=0 train.lr=0.02 "
        "train.batch_size=32 train.scale=0.16"
    )
    recipe = changed(find_recipe("digits/local-ws"), choices.split())
    folder = train_run(recipe, runs=tmp_path, execution=Execution(device="cpu", threads=1)).path
    result = json.loads((folder / "result.json").read_text())
    assert result["steps"] == 100
    assert result["error"] < 1 / 3


def test_class_weights_reach_the_loss_where_they_are_asked_for(tiny: Tiny) -> None:
    weighted, plain = (
        tiny("digits/local-ws", "data.size=43", "train.scale=0.02", f"train.class_weights={each}")
        .train()
        .entries[0]["loss"]
        for each in ("true", "false")
    )
    assert weighted != plain


def test_class_weights_are_inverse_to_how_often_classes_occur() -> None:
    labels = torch.tensor([0, 0, 0, 1, 3, 3])
    weights = class_weights(labels, 5)
    assert weights.tolist() == pytest.approx([6 / 15, 6 / 5, 6 / 5, 6 / 10, 6 / 5])
    balanced = class_weights(torch.arange(4).repeat(3), 4)
    assert balanced.tolist() == [1, 1, 1, 1]


def test_a_run_begins_with_pretrained_weights_and_leaves_pixels_to_the_network(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(network: Network) -> None:
        torch.nn.init.constant_(next(network.parameters()), 7.0)

    monkeypatch.setitem(MODELS, "cnn-small", replace(MODELS["cnn-small"], load=load))
    choices = ("model.group=none", "train.lr=0")
    run = tiny("digits/cnn", "model.pretrained=true", *choices)
    run.train()
    model = load_model(run.folder() / "model.safetensors")
    assert (model.card.mean, model.card.std) == ((0.0,), (1.0,))
    assert (load_file(run.folder() / "model.safetensors")["features.0.weight"] == 7).all()
    fresh = tiny("digits/cnn", *choices)
    fresh.train()
    assert (load_file(fresh.folder() / "model.safetensors")["features.0.weight"] != 7).all()


@pytest.mark.usefixtures("frequent_checkpoints")
def test_a_run_may_begin_with_weights_and_images_that_are_there(tmp_path: Path) -> None:
    choices = [*TINY.split(), "model.group=none", "train.keep_statistics=true"]
    recipe = changed(find_recipe("digits/cnn"), choices)
    data = RunData.of(recipe, 0, None)
    few = replace(data, dataset=replace(data.dataset, test=data.dataset.test[torch.arange(9)]))

    def ones(network: nn.Module) -> None:
        with torch.no_grad():
            for weight in network.parameters():
                weight.fill_(0.1)

    def outcome(place: str, lr: float, after: Callable[[int], None] | None = None) -> Outcome:
        moved, noting = recipe.replace(train={"lr": lr}), Noting(after)
        store = train_run(
            moved,
            runs=tmp_path / place,
            callback=noting,
            data=few,
            begin=ones,
            execution=Execution(device="cpu", threads=1, compile=False),
        )
        return load_file(store.model)

    assert all((each == 0.1).all() for each in outcome("still", 0.0).values() if each.ndim == 4)
    whole = outcome("whole", 0.01)

    def stop(step: int) -> None:
        if step == 7:
            raise Stop

    with pytest.raises(Stop):
        outcome("stopped", 0.01, stop)
    again = outcome("stopped", 0.01)
    assert all(torch.equal(again[name], value) for name, value in whole.items())
    assert json.loads(next(tmp_path.rglob("result.json")).read_text())["test_images"] == 9
