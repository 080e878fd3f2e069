"""One run in several processes, as `torchrun` starts them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from invint.nn import GroupBatchNorm

T = TypeVar("T")


@dataclass(frozen=True)
class Team:
    """The processes of a run.

    Attributes:
        rank: Number of this process; 0 writes all files.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def agree(self, flag: bool) -> bool:
        """Return whether any process says so."""
        if self.size == 1:
            return flag
        flags: list[bool] = [False] * self.size
        dist.all_gather_object(flags, flag)
        return any(flags)

    def add_up(self, values: Tensor) -> None:
        """Replace values by their sum over all processes."""
        if self.size > 1:
            dist.all_reduce(values)

    def of_leader(self, value: T) -> T:
        """Return the value of the process that leads, so that all go on with the same."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def shared(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return the network so that gradients are averaged over all processes."""
        if self.size == 1:
            return network
        numbers = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=numbers)


@contextmanager
def team(device: torch.device) -> Iterator[Team]:
    """Join the processes that `torchrun` started, if it did."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    try:
        yield Team(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


class _SynchronizedNorm(GroupBatchNorm):
    """Ordinary batch normalisation with the statistics of all processes."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `(b, c)` or `(b, c, h, w)`."""
        if x.ndim == 2:
            return super().forward(x[:, :, None, None, None])[:, :, 0, 0, 0]
        return super().forward(x[:, :, None])[:, :, 0]


def synchronize(network: nn.Module) -> None:
    """Let all batch normalisations use the statistics of all processes; names stay the same."""
    for module in list(network.modules()):
        if isinstance(module, GroupBatchNorm):
            module.synchronized = True
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
                norm = _SynchronizedNorm(
                    child.num_features,
                    eps=child.eps,
                    momentum=child.momentum or 0.1,
                    synchronized=True,
                )
                norm.load_state_dict(child.state_dict())
                setattr(module, name, norm)
