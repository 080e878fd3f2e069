"""Carrying out the runs of a study on a Dask cluster: on this machine, or wherever it reaches."""

import logging
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from invint.errors import ConfigError, RunError
from invint.extras import needed
from invint.study.engine import Note, Outcome, Place, Waiting, carry_out, silent
from invint.study.grid import Cell
from invint.study.workers import choose_gpu

CONNECT = 5.0  # seconds a scheduler has to answer
ONE_RUN = threading.Lock()  # runs of one process would share its random numbers


def on_cluster(
    cells: Sequence[Cell],
    place: Place,
    *,
    jobs: int = 1,
    address: str | None = None,
    note: Note = silent,
) -> Generator[Outcome, None, None]:
    """Carry out runs on a Dask cluster.

    A lost worker costs its run what was done since the last checkpoint: Dask gives the run to
    another one, which goes on in the same folder.

    Args:
        cells: The runs.
        place: Where and how; the folders must be the same for all workers.
        jobs: Number of workers of a cluster on this machine.
        address: Of the scheduler of another cluster.
        note: Hears of what a user should know.

    Raises:
        ConfigError: Dask is not installed, or no scheduler answers.
        RunError: The scheduler was lost.
    """
    if not cells:
        return
    place = _everywhere(place)
    with ExitStack() as stack:
        client = connected(stack, place, jobs=min(jobs, len(cells)), address=address)
        resources = _resources(client, place, note)
        yield from _carried_out(client, cells, place, address is None, resources, note)


@contextmanager
def cluster_executor(
    place: Place, *, jobs: int = 1, address: str | None = None
) -> Iterator[Executor]:
    """Give what carries out calls on a Dask cluster, as a pool of processes would.

    Args:
        place: Whether the calls want a GPU.
        jobs: Number of workers of a cluster on this machine.
        address: Of the scheduler of another cluster, whose workers should have one thread each.
    """
    with ExitStack() as stack:
        client = connected(stack, place, jobs=jobs, address=address)
        resources = _resources(client, place, silent)
        yield stack.enter_context(client.get_executor(pure=False, resources=resources))


def connected(stack: ExitStack, place: Place, *, jobs: int, address: str | None) -> Any:
    """Return a client of a cluster that is closed with the stack."""
    distributed = needed("distributed", "--engine dask", "cluster")
    if address is None:
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # a run's memory is its own business
            dashboard_address="127.0.0.1:0",  # any free port
            silence_logs=logging.ERROR,
            resources={"GPU": 1} if _wants_gpus(place) and torch.cuda.is_available() else None,
        )
        stack.enter_context(cluster)
        return stack.enter_context(distributed.Client(cluster))
    try:
        return stack.enter_context(distributed.Client(address, timeout=CONNECT))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--address {address}: no Dask scheduler answers there within {CONNECT:g} s; is it "
            "running, and can this machine reach it?"
        ) from error


def _everywhere(place: Place) -> Place:
    """Return a place that means the same wherever a worker was started."""
    data_dir = None if place.data_dir is None else place.data_dir.resolve()
    return replace(place, runs=place.runs.resolve(), data_dir=data_dir)


def _wants_gpus(place: Place) -> bool:
    return place.execution.device != "cpu"


def _resources(client: Any, place: Place, note: Note) -> dict[str, float] | None:
    """Return what a run asks of a worker: a GPU, where the cluster offers some."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    if not workers:
        note("the cluster has no worker yet: waiting for one")
    if any(worker["nthreads"] > 1 for worker in workers):
        note("a worker with several threads makes one run at a time: start it with --nthreads 1")
    offered = any(worker["resources"].get("GPU") for worker in workers)
    if offered and _wants_gpus(place):
        return {"GPU": 1}
    if place.execution.device == "cuda" and workers:
        note("no worker offers GPUs: start it with --resources GPU=1, or runs share its GPU")
    return None


def _carried_out(
    client: Any,
    cells: Sequence[Cell],
    place: Place,
    own: bool,
    resources: dict[str, float] | None,
    note: Note,
) -> Generator[Outcome, None, None]:
    distributed = needed("distributed", "--engine dask", "cluster")
    waiting, runs = Waiting(cells, note), dict[str, Cell]()
    pending = distributed.as_completed()
    while True:
        while waiting.cells:
            cell = waiting.cells.popleft()
            key = f"{cell.recipe.name}-{cell.recipe.hash}-{cell.seed}-{len(runs)}"
            runs[key] = cell
            pending.add(
                client.submit(
                    _on_worker, cell, place, own, key=key, pure=False, resources=resources
                )
            )
        if pending.is_empty():
            return
        future = next(pending)
        outcome = _outcome(future, runs[future.key], place)
        if not waiting.postponed(outcome):
            yield outcome


def _outcome(future: Any, cell: Cell, place: Place) -> Outcome:
    distributed = needed("distributed", "--engine dask", "cluster")
    folder = place.folder(cell)
    if future.cancelled():
        raise RunError(
            "the Dask scheduler was lost; finished runs are kept, and the same command goes on"
        )
    try:
        outcome: Outcome = future.result()
    except distributed.KilledWorker:
        problem = f"{folder}: several workers were lost over it; is there enough memory for it?"
        return Outcome(cell, folder, problem=problem)
    except Exception as error:
        return Outcome(cell, folder, problem=f"{folder}: {type(error).__name__}: {error}")
    return outcome


def _on_worker(cell: Cell, place: Place, own: bool) -> Outcome:
    """Carry out a run on a worker."""
    from distributed import get_worker

    with ONE_RUN:
        name = get_worker().name
        if own and isinstance(name, int) and _wants_gpus(place):
            choose_gpu(name)
        return carry_out(cell, place)
