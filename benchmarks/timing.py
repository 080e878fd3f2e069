"""Timing things against each other: in turn, in one run, on whatever device there is."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


if DEVICE == "cuda":  # a graph cannot be captured where the default stream has to wait for it
    torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
REPEATS = 10 if DEVICE == "cuda" else 1  # calls per reading: a GPU is done sooner than a clock


def on_device(function: Callable[[], object]) -> Callable[[], object]:
    """Return the call as a CUDA graph: what is timed is the device, not the launching."""
    if DEVICE == "cpu":
        return function
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()

    def replay(_alive: object = function) -> None:  # the graph reads what the function holds
        graph.replay()

    return replay


def seconds(function: Callable[[], object]) -> float:
    """Time one call, device work included."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPEATS):
        function()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEATS


def in_turn(functions: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """Return the median time of each function, called in turn so that noise hits all alike.

    Quick functions are called more often than asked for, for two seconds or a hundred turns.
    """
    for function in functions:
        for _ in range(1 if DEVICE == "cpu" else 3):
            function()
    times: list[list[float]] = []
    while len(times) < turns or (len(times) < 100 and REPEATS * sum(map(sum, times)) < 2):
        times.append([seconds(function) for function in functions])
    return [statistics.median(column) for column in zip(*times, strict=True)]


def kept(forward: Callable[[], Tensor]) -> int:
    """Count the bytes that backward keeps: inputs, weights and whatever else."""
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(found.values())


def peak(step: Callable[[], object]) -> int:
    """Return the most bytes in use on the device during a step."""
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
