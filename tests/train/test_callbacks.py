import sys
from pathlib import Path
from typing import Any

import pytest

from invint.errors import ConfigError
from invint.train.callbacks import (
    HOOKS,
    TRACKERS,
    Callback,
    Callbacks,
    MLflow,
    TensorBoard,
    Tracker,
    WandB,
    flattened,
)
from invint.train.store import RunStore

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "on_decode": (1, 2),
    "on_start": (Path("run"), 3, 4),
    "on_step": (5,),
    "on_log": ({"epoch": 1.0},),
    "on_note": ("a note",),
    "on_finish": ({"error": 0.5},),
    "on_end": (),
}

ENTRY: dict[str, Any] = {"step": 5, "epoch": 1.0, "error": 0.5, "event": "selection"}
RESULT: dict[str, Any] = {"error": 0.25, "steps": 10}


class Recording(Callback):
    """Keeps the hooks that were called, in a list that several may share."""

    def __init__(self, name: str, calls: list[tuple[Any, ...]]) -> None:
        for hook in HOOKS:
            setattr(self, hook, lambda *given, hook=hook: calls.append((name, hook, *given)))


def test_every_hook_is_forwarded_to_every_callback_in_order() -> None:
    assert set(ARGUMENTS) == set(HOOKS)
    calls: list[tuple[Any, ...]] = []
    several = Callbacks([Recording("first", calls), Recording("second", calls)])
    for hook, arguments in ARGUMENTS.items():
        getattr(several, hook)(*arguments)
    expected = [
        (name, hook, *arguments)
        for hook, arguments in ARGUMENTS.items()
        for name in ("first", "second")
    ]
    assert calls == expected


@pytest.mark.parametrize("callback", [Callback(), Callbacks([])])
def test_hooks_are_optional(callback: Callback) -> None:
    for hook, arguments in ARGUMENTS.items():
        assert getattr(callback, hook)(*arguments) is None


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    tracker = TRACKERS[name]
    with pytest.raises(ConfigError, match=f"needs {name}; .*invint\\[{name}\\]") as caught:
        tracker()
    assert str(caught.value).startswith(f"{tracker.__name__}: ")


class Notebook(Tracker):
    """Keeps what it is sent, until it breaks."""

    module = "json"  # any that is there

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def send(self, numbers: dict[str, float], step: int) -> None:
        if "broken" in numbers:
            raise OSError("no route\nto host")
        self.sent.append((numbers, step))

    def close(self, complete: bool) -> None:
        self.sent.append(complete)


def test_a_tracker_gets_the_numbers_and_the_test_error(tmp_path: Path) -> None:
    tracker = Notebook()
    tracker.on_finish(RESULT)  # of a run that was complete before
    tracker.on_end()
    for complete in (False, True):
        tracker.on_start(tmp_path, 3, 10)
        tracker.on_log(ENTRY)
        if complete:
            tracker.on_finish(RESULT)
        tracker.on_end()
    numbers = ({"epoch": 1.0, "error": 0.5}, 5)
    assert tracker.sent == [numbers, False, numbers, ({"test_error": 0.25}, 10), True]


def test_a_tracker_that_breaks_does_not_break_the_run(tmp_path: Path) -> None:
    tracker = Notebook()
    tracker.on_start(tmp_path, 0, 10)
    with pytest.warns(UserWarning, match="Notebook: no route to host; the run goes on without it"):
        tracker.on_log({"step": 1, "broken": 1.0})
    tracker.on_log(ENTRY)
    tracker.on_end()
    assert tracker.sent == []


def test_a_tracker_that_cannot_begin_stops_the_run(tmp_path: Path) -> None:
    class Closed(Notebook):
        advice = "pay"

        def begin(self, *_: object) -> None:
            raise OSError("closed")

    with pytest.raises(ConfigError, match="Closed: closed; pay"):
        Closed().on_start(tmp_path, 0, 10)


def test_nested_choices_are_named_with_dots() -> None:
    assert flattened({"name": "a", "train": {"lr": 0.1, "decay": {}}}) == {
        "name": "a",
        "train.lr": 0.1,
    }


def two_starts(tracker: Tracker, folder: Path) -> None:
    """Begin a run that is stopped at a step, and complete it."""
    tracker.on_start(folder, 0, 10)
    tracker.on_log(ENTRY)
    tracker.on_end()
    tracker.on_start(folder, 5, 10)
    tracker.on_log(ENTRY | {"step": 10, "error": 0.125})
    tracker.on_finish(RESULT)
    tracker.on_end()


@pytest.fixture
def begun(tmp_path: Path) -> RunStore:
    """A run's folder with its recipe."""
    store = RunStore(tmp_path / "run")
    store.path.mkdir()
    store.write("recipe.json", {"name": "a/b", "seed": 3, "choices": {"train": {"lr": 0.5}}})
    return store


@pytest.mark.slow
def test_tensorboard_writes_into_the_folder_of_the_run(begun: RunStore) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    two_starts(TensorBoard(), begun.path)
    found = reader.EventAccumulator(str(begun.path / "tensorboard")).Reload()
    assert [(each.step, each.value) for each in found.Scalars("error")] == [(5, 0.5), (10, 0.125)]
    assert [each.value for each in found.Scalars("test_error")] == [0.25]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow and what it imports
def test_mlflow_keeps_one_run_over_two_starts(
    begun: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    two_starts(MLflow(), begun.path)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("invint").experiment_id])
    assert (run.info.run_name, run.info.status) == ("a/b seed 3", "FINISHED")
    assert run.data.params == {"name": "a/b", "seed": "3", "choices.train.lr": "0.5"}
    history = client.get_metric_history(run.info.run_id, "error")
    assert [(each.step, each.value) for each in history] == [(5, 0.5), (10, 0.125)]
    assert run.data.metrics["test_error"] == 0.25
    assert begun.tracked_as("mlflow") == run.info.run_id


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of MLflow and what it imports
def test_mlflow_that_cannot_keep_runs_is_one_line(
    begun: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://x")
    with pytest.raises(ConfigError, match=r"^MLflow: .*; set MLFLOW_TRACKING_URI to") as it:
        MLflow().on_start(begun.path, 0, 10)
    assert "\n" not in str(it.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of W&B and what it imports
def test_wandb_offline_keeps_one_id_over_two_starts(
    begun: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    two_starts(WandB(), begun.path)
    wandb.teardown()  # a process of its own writes the files
    id = begun.tracked_as("wandb")
    files = list((begun.path / "wandb").glob("offline-run-*/*.wandb"))
    assert {file.name for file in files} == {f"run-{id}.wandb"}
    content = b"".join(file.read_bytes() for file in files)
    assert all(name in content for name in (b"a/b seed 3", b"choices", b"error", b"test_error"))
