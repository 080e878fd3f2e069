import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from invint import Dihedral, ShapeError
from invint.nn import GroupBatchNorm
from invint.testing import assert_equivariant


def test_statistics_are_shared_by_the_group() -> None:
    layer = GroupBatchNorm(3, momentum=0.25).double()
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    x = 5 + 2 * torch.randn(4, 3, 8, 5, 5, dtype=torch.float64)
    out = layer(x)
    for c in range(3):
        values = x[:, c]
        normal = (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()
        torch.testing.assert_close(out[:, c], layer.weight[c] * normal + layer.bias[c])
        torch.testing.assert_close(layer.running_mean[c], 0.25 * values.mean())
        torch.testing.assert_close(layer.running_var[c], 0.75 + 0.25 * values.var())


def test_commutes_with_moving_in_both_modes() -> None:
    layer = GroupBatchNorm(3).double()
    x = torch.randn(2, 3, 8, 5, 6, dtype=torch.float64)
    assert_equivariant(layer, x, Dihedral(4))
    assert_equivariant(layer.eval(), x, Dihedral(4))
    assert layer.num_batches_tracked == 9  # once still and once for each of the eight symmetries


def test_state_is_that_of_an_ordinary_batch_norm() -> None:
    layer, ordinary = GroupBatchNorm(3), nn.BatchNorm3d(3)
    assert list(layer.state_dict()) == list(ordinary.state_dict())
    layer(torch.randn(2, 3, 4, 5, 5))
    ordinary.load_state_dict(layer.state_dict())
    x = torch.randn(2, 3, 4, 5, 5)
    assert torch.equal(layer.eval()(x), ordinary.eval()(x))


def test_refuses_wrong_channels() -> None:
    with pytest.raises(ShapeError, match="GroupBatchNorm: expected c=3, got c=4"):
        GroupBatchNorm(3)(torch.zeros(1, 4, 2, 5, 5))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_a_gpu_normalises_as_written(dtype: torch.dtype, last: bool) -> None:
    x, gradient = (each.to(dtype) for each in _data())
    expected = _pass(GroupBatchNorm(3).double(), x.double(), gradient.double())
    x, gradient = x.cuda(), gradient.cuda()
    if last:
        x, gradient = (
            each.permute(0, 3, 4, 1, 2).contiguous().permute(0, 3, 4, 1, 2)
            for each in (x, gradient)
        )
    layer = GroupBatchNorm(3).to("cuda", torch.float64 if dtype is torch.float64 else torch.float32)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    *found, slope = (each.cpu().double() for each in _pass(layer, x, gradient))
    *wanted, wanted_slope = expected
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    terms = wanted[0] * gradient.cpu().double()  # they cancel: the scale of errors is theirs
    scale = terms.square().sum((0, 2, 3, 4)).sqrt()
    assert ((slope - wanted_slope).abs() < tolerance * scale).all()


@pytest.mark.slow
def test_two_processes_normalise_as_one() -> None:
    """Over gloo on CPU, with unequal shares: outputs, gradients and running statistics agree."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(_normalise, args=(port, results), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    first, second = (
        [torch.tensor(found, dtype=torch.float64) for found in share]
        for _, share in sorted(results.get() for _ in range(2))
    )
    out, gradient, mean, variance, weight = _pass(GroupBatchNorm(3).double(), *_data())
    torch.testing.assert_close(torch.cat([first[0], second[0]]), out)
    torch.testing.assert_close(torch.cat([first[1], second[1]]), gradient)
    for share in (first, second):
        torch.testing.assert_close(share[2], mean)
        torch.testing.assert_close(share[3], variance)
    torch.testing.assert_close(first[4] + second[4], weight)


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 3, 4, 4, 4, dtype=torch.float64, generator=generator)
    return x, torch.randn(x.shape, dtype=torch.float64, generator=generator)


def _pass(layer: GroupBatchNorm, x: Tensor, gradient: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = layer(x)
    out.backward(gradient)
    found = [out, x.grad, layer.running_mean, layer.running_var, layer.weight.grad]
    return [tensor.detach() for tensor in found if tensor is not None]


def _normalise(rank: int, port: int, results: "mp.SimpleQueue[object]") -> None:
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    x, gradient = _data()
    share = slice(0, 3) if rank == 0 else slice(3, 5)
    layer = GroupBatchNorm(3, synchronized=True).double()
    results.put((rank, [found.tolist() for found in _pass(layer, x[share], gradient[share])]))
    dist.destroy_process_group()
