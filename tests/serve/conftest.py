"""Two networks with random weights, opened once."""

from pathlib import Path

import pytest
from support.serving import write_network

from invint.serve.networks import ServedNetwork, open_networks


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of an ordinary and of an invariant network."""
    folder = tmp_path_factory.mktemp("networks")
    return [
        write_network(folder / "ordinary.safetensors", "cnn-small"),
        write_network(folder / "invariant.safetensors", "sfcnn-small", "local-ws"),
    ]


@pytest.fixture(scope="session")
def networks(files: list[Path]) -> list[ServedNetwork]:
    """Both networks."""
    return open_networks(files)
