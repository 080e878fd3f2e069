"""Trials on a Dask cluster: the executor is that of runs."""

import os

import pytest

from invint.errors import ConfigError
from invint.study.pool import Workspace, executor_for
from invint.train import Execution

WORKSPACE = Workspace(execution=Execution(device="cpu"))


@pytest.mark.slow
def test_calls_are_made_in_processes_of_the_cluster() -> None:
    with executor_for(WORKSPACE, engine="dask") as executor:
        first, second = (executor.submit(os.getpid).result() for _ in range(2))
    assert first == second != os.getpid()


def test_an_address_without_a_scheduler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invint.study.pool.CONNECT", 0.2)
    with (
        pytest.raises(ConfigError, match="no Dask scheduler answers there within"),
        executor_for(WORKSPACE, address="tcp://127.0.0.1:9"),
    ):
        pass
