import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import config as dynamo
from torch.utils._python_dispatch import TorchDispatchMode

from invint import create_model
from invint.errors import ConfigError
from invint.nn import HEADS
from invint.ops.grids import rotate
from invint.train import Execution
from invint.train.device import CACHES, FIXED, cache_folder, try_algorithms
from invint.train.loop import Meter, Objective, make_optimizer


def test_nothing_is_left_open_once_decided() -> None:
    decided = Execution().decided()
    assert all(getattr(decided, key) is not None for key in FIXED)
    assert decided.threads == torch.get_num_threads()
    assert (decided.deterministic, decided.synchronized) == (False, False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_explained() -> None:
    with pytest.raises(ConfigError, match="device 'cuda' is not available here; leave --device"):
        Execution(device="cuda").decided()
    assert Execution().decided().device == "cpu"
    assert Execution().decided().precision == "float32"
    assert Execution().decided().compile is False


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is an MPS device")
def test_mps_is_named_where_it_is_missing() -> None:
    with pytest.raises(ConfigError, match="device 'mps' is not available here; leave --device"):
        Execution(device="mps").decided()


def test_mps_is_used_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    decided = Execution(device="mps").decided()
    assert decided.torch_device == torch.device("mps")
    assert (decided.precision, decided.compile) == ("float32", False)
    assert decided.autocast().device == "mps"
    assert decided.environment()["device"] == "mps"
    assert Execution().decided().device != "mps"  # it is asked for


class NoDoubles(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses float64 on the device `meta`, which stands for one that has none, as MPS."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = function(*args, **(kwargs or {}))
        for each in out if isinstance(out, tuple | list) else (out,):
            if isinstance(each, Tensor) and each.is_meta and each.dtype == torch.float64:
                raise TypeError(f"{function} makes float64")
        return out


def test_what_refuses_float64_does() -> None:
    with NoDoubles(), pytest.raises(TypeError, match="makes float64"):  # type: ignore[no-untyped-call]
        torch.zeros(2, dtype=torch.float64, device="meta")


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("head", HEADS)
def test_a_step_needs_no_float64_on_the_device(head: str) -> None:
    network = create_model("sfcnn-small", head=head, num_classes=3, in_channels=1, image_size=20)
    optimizer = make_optimizer(network.to("meta"), "adam", lr=0.1)
    images = torch.empty(4, 1, 20, 20, device="meta")
    with NoDoubles():  # type: ignore[no-untyped-call]
        turned = rotate(images, torch.empty(4, device="meta"), mode="bilinear")
        terms = Objective(network)(turned, torch.zeros(4, dtype=torch.long, device="meta"))
        terms.sum().backward()
        optimizer.step()
    assert terms.device.type == "meta"
    for parameter in network.parameters():
        assert parameter.grad is None or parameter.grad.shape == parameter.shape


def test_means_are_kept_in_what_mps_has(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "zeros", lambda *_, **given: made.append(given))
    Meter(torch.device("mps"))
    assert made == [{"dtype": torch.float32, "device": torch.device("mps")}]


@pytest.mark.parametrize("wrong", [{"device": "tpu"}, {"device": "cpu", "precision": "float8"}])
def test_unknown_devices_and_precisions_are_explained(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="expected the device cpu, cuda or mps and the pr"):
        Execution(**wrong).decided()  # type: ignore[arg-type]


def test_a_run_goes_on_as_it_began() -> None:
    begun = Execution(device="cpu", threads=3, precision="bfloat16", deterministic=True).decided()
    assert Execution().as_begun(begun.environment(), Path("run")) == begun


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"threads": 2}, "run: the run began with threads 3, got 2; leave it out to resume, or"),
        ({"precision": "bfloat16"}, "began with precision float32, got bfloat16"),
        ({"compile": True}, "began with compile False, got True"),
        ({"deterministic": True}, "began with deterministic False, got True"),
        ({"synchronized": True}, "began with synchronized False, got True"),
    ],
)
def test_a_run_does_not_go_on_otherwise(other: dict[str, object], message: str) -> None:
    begun = Execution(device="cpu", threads=3, compile=False, precision="float32").decided()
    with pytest.raises(ConfigError, match=message):
        Execution(**other).as_begun(begun.environment(), Path("run"))  # type: ignore[arg-type]


def test_compiled_code_is_kept_where_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INVINT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_folder() == tmp_path / "user" / "invint-compiled"
    monkeypatch.setenv("INVINT_CACHE", str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / "chosen"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"


def test_compilers_have_the_folder_while_a_run_is_executed_and_their_own_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "before")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    execution = Execution(device="cpu", compile=True, cache=tmp_path / "code").decided()
    with execution.applied():
        assert {name: os.environ[name] for name in CACHES} == {
            name: str(tmp_path / "code" / part) for name, part in CACHES.items()
        }
    assert os.environ["TRITON_CACHE_DIR"] == "before"
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    with replace(execution, compile=False).applied():
        assert os.environ["TRITON_CACHE_DIR"] == "before"


def test_a_folder_for_code_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    execution = Execution(device="cpu", compile=True, cache=tmp_path / "file" / "code").decided()
    message = r"file/code: cannot keep compiled code there \(.*\); set INVINT_CACHE to a folder"
    with pytest.raises(ConfigError, match=message), execution.applied():
        pass


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_was_compiled_is_found_again_where_the_folder_was_carried(
    tmp_path: Path, device: str
) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.utils import clear_caches

    def hits(folder: Path) -> int:
        torch._dynamo.reset()
        clear_caches()  # of this process, as another one would start
        counters.clear()
        with Execution(device=device, compile=True, cache=folder).decided().applied():
            compiled = torch.compile(lambda x: (x.sin() * 2).sum())
            found = compiled(torch.ones(8, device=device))
        torch.testing.assert_close(found, 16 * torch.ones((), device=device).sin())
        return counters["inductor"]["fxgraph_cache_hit"]

    assert hits(tmp_path / "made") == 0
    shutil.move(tmp_path / "made", tmp_path / "carried")
    assert hits(tmp_path / "carried") > 0


@pytest.mark.slow
def test_everything_global_is_put_back() -> None:
    def state() -> tuple[int, bool, list[int]]:
        strict = torch.are_deterministic_algorithms_enabled()
        return torch.get_num_threads(), strict, torch.get_rng_state().tolist()

    before = state()
    execution = Execution(device="cpu", threads=before[0] + 1, deterministic=True).decided()
    with execution.applied():
        assert torch.get_num_threads() == before[0] + 1
        assert torch.are_deterministic_algorithms_enabled()
        torch.manual_seed(9)
    assert state() == before


def test_long_runs_try_more_algorithms_and_what_follows_does_not() -> None:
    before = torch.backends.cudnn.benchmark_limit
    with Execution(device="cpu").decided().applied():
        assert torch.backends.cudnn.benchmark_limit == 5
        try_algorithms(100_000)
        assert torch.backends.cudnn.benchmark_limit == 10
        try_algorithms(2_000)
        assert torch.backends.cudnn.benchmark_limit == 5
    assert torch.backends.cudnn.benchmark_limit == before


@pytest.mark.gpu
def test_the_generators_of_all_devices_are_put_back() -> None:
    before = torch.cuda.get_rng_state_all()
    with Execution(device="cuda").decided().applied():
        torch.manual_seed(9)
    for mine, now in zip(before, torch.cuda.get_rng_state_all(), strict=True):
        assert torch.equal(mine, now)


def test_half_precision_is_under_autocast_and_full_precision_is_not() -> None:
    with Execution(device="cpu", precision="bfloat16").decided().autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    with Execution(device="cpu", precision="float32").decided().autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32


def test_the_environment_says_what_a_run_began_with() -> None:
    environment = Execution(device="cpu", threads=2).decided().environment()
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == 2
    assert environment["processes"] == 1
    assert set(FIXED) <= set(environment)


@pytest.mark.parametrize("program", ["bin/invint", "src/invint/__main__.py"])
def test_the_command_can_be_typed_again(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program, "study", "digits", "--title", "Two words"])
    command = Execution().decided().environment()["command"]
    assert command == "invint study digits --title 'Two words'"


def test_the_command_does_not_say_where_folders_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are for others to read."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path.parent / "records.json"
    given = ["study", "--runs", str(tmp_path / "runs"), f"--records={elsewhere}", "--set=a=b"]
    monkeypatch.setattr(sys, "argv", ["invint", *given, "folder:photos"])
    command = Execution().decided().environment()["command"]
    assert command == "invint study --runs runs --records=records.json --set=a=b folder:photos"


def test_the_compiler_sees_more_kinds_of_networks_than_by_default_while_a_run_lasts() -> None:
    before = dynamo.recompile_limit
    with Execution(device="cpu", compile=False).decided().applied():
        assert dynamo.recompile_limit == before
    with Execution(device="cpu", compile=True).decided().applied():
        assert dynamo.recompile_limit > before
    assert dynamo.recompile_limit == before


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"threads": {}}, r"threads: expected int, got \{\}"),
        ({"compile": -1}, "compile: expected bool, got -1"),
        ({"precision": []}, r"precision: expected str, got \[\]"),
    ],
)
def test_what_a_folder_says_of_another_type_is_refused(
    values: dict[str, object], message: str
) -> None:
    begun = Execution().decided().environment() | values
    with pytest.raises(ConfigError, match=message):
        Execution().as_begun(begun, Path("run"))
