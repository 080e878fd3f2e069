import pytest
from torch import nn

from invint.nn.modes import evaluating


def modes(network: nn.Module) -> list[bool]:
    return [module.training for module in network.modules()]


@pytest.mark.parametrize("training", [True, False])
def test_every_module_gets_its_own_mode_back(training: bool) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()))
    network.train(training)
    network[1].train(not training)  # as where one part is frozen
    before = modes(network)
    with evaluating(network):
        assert not any(modes(network))
    assert modes(network) == before


def test_modes_are_put_back_when_something_fails() -> None:
    network = nn.Sequential(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="stop"), evaluating(network):
        raise ValueError("stop")
    assert modes(network) == [True, True]
