import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from invint.errors import ConfigError, RunError
from invint.train import store as module
from invint.train.loop import make_optimizer
from invint.train.store import (
    LAST,
    PREVIOUS,
    Checkpoint,
    RunStore,
    load_optimizer,
    optimizer_tensors,
    read_checkpoint,
)


def example(step: int = 3) -> Checkpoint:
    tensors: dict[str, Tensor] = {
        "network.weight": torch.randn(4, 3),
        "network.count": torch.tensor(step),
        "network.half": torch.randn(2, 2).bfloat16(),
        "random.cpu": torch.get_rng_state(),
    }
    return Checkpoint(tensors, {"step": step, "best": None, "names": ["ä", "b"]})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = example()
    written.write(tmp_path)
    read = read_checkpoint(tmp_path / LAST)
    assert read.facts == written.facts
    assert set(read.tensors) == set(written.tensors)
    for name, tensor in written.tensors.items():
        assert read.tensors[name].dtype == tensor.dtype
        assert torch.equal(read.tensors[name], tensor)
    assert set(read.part("network.")) == {"weight", "count", "half"}


def test_the_checkpoint_before_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        example(step).write(tmp_path)
    assert read_checkpoint(tmp_path / LAST).facts["step"] == 3
    assert read_checkpoint(tmp_path / PREVIOUS).facts["step"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAST, PREVIOUS]


def test_a_cut_off_checkpoint_is_noticed_wherever_it_is_cut(tmp_path: Path) -> None:
    for step in (1, 2):
        example(step).write(tmp_path)
    content = (tmp_path / LAST).read_bytes()
    for length in [0, 1, 7, 8, 9, 50, len(content) // 2, len(content) - 1]:
        (tmp_path / LAST).write_bytes(content[:length])
        found, problems = RunStore(tmp_path).latest_checkpoint()
        assert found is not None
        assert found.facts["step"] == 1
        path = tmp_path / LAST
        assert problems == {path: f"{path}: cut off or not a checkpoint"}


def test_a_checkpoint_with_any_byte_altered_is_noticed(tmp_path: Path) -> None:
    for step in (1, 2):
        example(step).write(tmp_path)
    content = (tmp_path / LAST).read_bytes()
    for place in range(0, len(content), 61):
        altered = bytearray(content)
        altered[place] ^= 0x11
        (tmp_path / LAST).write_bytes(altered)
        found, problems = RunStore(tmp_path).latest_checkpoint()
        assert found is not None
        assert found.facts["step"] == 1, place
        assert list(problems) == [tmp_path / LAST]


def test_two_bad_checkpoints_leave_none(tmp_path: Path) -> None:
    (tmp_path / LAST).write_bytes(b"")
    (tmp_path / PREVIOUS).write_bytes(save({"weight": torch.zeros(3)}))
    found, problems = RunStore(tmp_path).latest_checkpoint()
    assert found is None
    assert [text.partition(": ")[2] for text in problems.values()] == [
        "cut off or not a checkpoint",
        "altered since it was written",
    ]


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert RunStore(tmp_path).latest_checkpoint() == (None, {})


def test_a_kill_between_the_two_renames_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (1, 2):
        example(step).write(tmp_path)
    renamed = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.name == "next.safetensors":
            raise KeyboardInterrupt
        return renamed(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        example(3).write(tmp_path)
    monkeypatch.undo()
    found, problems = RunStore(tmp_path).latest_checkpoint()
    assert found is not None
    assert (found.facts["step"], problems) == (2, {})
    example(4).write(tmp_path)
    assert read_checkpoint(tmp_path / PREVIOUS).facts["step"] == 2


def test_a_checkpoint_of_another_version_is_refused_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_FORMAT", 9)
    example().write(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="format version 9, this invint reads 1; resume with"):
        RunStore(tmp_path).latest_checkpoint()


def test_a_missing_file_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cut off or not a checkpoint"):
        read_checkpoint(tmp_path / LAST)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_an_optimizer_goes_on_as_if_it_had_not_stopped(name: str) -> None:
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make_optimizer(network, name, lr=0.1)
    step(network, optimizer)
    other = copy.deepcopy(network)
    stored = {
        key: value.contiguous() for key, value in optimizer_tensors(network, optimizer).items()
    }
    restored = make_optimizer(other, name, lr=0.1)
    load_optimizer(other, restored, stored)
    step(network, optimizer)
    step(other, restored)
    for a, b in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        for key, value in optimizer.state[a].items():
            assert torch.equal(value, restored.state[b][key])
            assert value.stride() == restored.state[b][key].stride()


def step(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    images = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    optimizer.zero_grad()
    network(images).square().sum().backward()
    optimizer.step()
