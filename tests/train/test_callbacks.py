import sys
from pathlib import Path
from typing import Any

import pytest

from invint.errors import ConfigError
from invint.train.callbacks import HOOKS, Callback, Callbacks, TensorBoard

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "on_decode": (1, 2),
    "on_start": (Path("run"), 3, 4),
    "on_step": (5,),
    "on_log": ({"epoch": 1.0},),
    "on_note": ("a note",),
    "on_finish": ({"error": 0.5},),
    "on_end": (),
}


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


def test_tensorboard_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"TensorBoard: needs tensorboard; .*invint\[tensorboard"):
        TensorBoard()


def test_tensorboard_writes_into_the_folder_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    callback = TensorBoard()
    callback.on_end()  # of a run that failed before it began
    callback.on_start(tmp_path, 3, 10)
    callback.on_log({"step": 5, "epoch": 1.0, "error": 0.5, "event": "selection"})
    callback.on_end()
    assert list((tmp_path / "tensorboard").glob("events.*"))
