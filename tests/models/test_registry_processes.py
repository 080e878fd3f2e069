"""Networks in other processes, compiled, and in half precision."""

import pickle
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from invint import create_model, parse_group
from invint.models import Network
from invint.testing import move

SMALL = {"widths": (2, 3, 4), "n_fc": 6, "num_classes": 3, "image_size": 12}


def network(head: str) -> Network:
    torch.manual_seed(0)
    return create_model("sfcnn-small", head=head, group="C4", **SMALL)  # type: ignore[arg-type]


def images() -> Tensor:
    return torch.randn(4, 1, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
@pytest.mark.parametrize("head", ["monomials", "attention"])
def test_two_processes_train_as_one(head: str) -> None:
    """DDP over gloo, in eval mode so that batch statistics do not differ: same logits and steps."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    model, x = network(head).eval(), images()
    results = mp.get_context("spawn").SimpleQueue()
    arguments = (port, pickle.dumps(model), x, results)
    mp.spawn(_share, args=arguments, nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    shares = [share for _, share in sorted(results.get() for _ in range(2))]
    before = model(x)
    _step(model, x)
    for rank, (logits, after) in enumerate(shares):
        share = slice(2 * rank, 2 * rank + 2)
        torch.testing.assert_close(torch.tensor(logits), before[share])
        torch.testing.assert_close(torch.tensor(after), model(x), rtol=1e-4, atol=1e-5)


def _step(model: nn.Module, x: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).square().mean().backward()
    optimizer.step()


def _share(
    rank: int, port: int, pickled: bytes, x: Tensor, results: "mp.SimpleQueue[object]"
) -> None:
    torch.set_num_threads(1)
    model = pickle.loads(pickled)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    parallel = DistributedDataParallel(model.eval())
    logits = parallel(x[2 * rank : 2 * rank + 2]).tolist()
    _step(parallel, x[2 * rank : 2 * rank + 2])
    results.put((rank, (logits, model(x).tolist())))
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.unchecked
@pytest.mark.parametrize("head", ["monomials", "local-ws"])
def test_a_compiled_network_gives_the_same_logits(head: str) -> None:
    torch.compiler.reset()
    model, x = network(head).eval(), images()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.slow
def test_half_precision_stays_near_as_images_turn() -> None:
    """Measured, not promised: bfloat16 sums round differently when their order changes."""
    model, x, group = network("local-ws").eval(), images(), parse_group("C4")
    upright = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        drifts = [
            ((model(move(x, group, symmetry)) - upright).norm() / upright.norm()).item()
            for symmetry in group.grid_symmetries
        ]
    plain = create_model("cnn-small", num_classes=3).eval()
    turned = ((plain(x.rot90(1, (2, 3))) - plain(x)).norm() / plain(x).norm()).item()
    assert 0 < max(drifts) < turned
