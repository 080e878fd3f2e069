"""The runs of a study on any executor: this process, several of this machine, Dask or Slurm."""

import logging
import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
)
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import torch

from invint.errors import (
    ConfigError,
    Interrupted,
    InvintError,
    RunError,
    RunLockedError,
    require_extra,
)
from invint.recipes import Recipe
from invint.study.grid import Cell
from invint.train import Callback, Execution, train_run
from invint.train.store import RunStore

PAUSE = 2.0  # seconds before a run is tried again that another process has locked
LOSSES = 3  # processes that may be lost over one run
PATIENCE = 30.0  # seconds a process has to save a checkpoint when it is to stop
CONNECT = 5.0  # seconds a scheduler has to answer
LOOK = 5.0  # seconds between two looks at a queue of jobs
LATE = 4  # looks at which the result of a job may be missing after its end: disks are shared
REQUEUES = 1000  # times a job may reach its time limit
ONE_RUN = threading.Lock()  # runs of one process would share its random numbers

Note = Callable[[str], None]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """Where runs are kept, and how they are executed.

    Attributes:
        runs: Where the folders of runs are.
        data_dir: Where data sets are.
        execution: Device, precision, threads.
        known: Hash of the recipe and seed of runs that were finished elsewhere.
    """

    runs: Path = Path("runs")
    data_dir: Path | None = None
    execution: Execution = field(default_factory=Execution)
    known: frozenset[tuple[str, int]] = frozenset()

    def folder(self, cell: Cell) -> Path:
        """Return the folder of a run."""
        return RunStore.at(self.runs, cell.recipe, cell.seed).path

    def unfinished(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the runs that have no result yet."""
        return [cell for cell in cells if not self._finished(cell)]

    def steps_done(self, cell: Cell) -> int:
        """Return how many steps of a run are done, as far as its log says."""
        if self._finished(cell):
            return cell.steps
        return min(RunStore(self.folder(cell)).steps_logged(), cell.steps)

    def has_result(self, cell: Cell) -> bool:
        """Return whether the folder of a run has its result."""
        return RunStore(self.folder(cell)).is_complete

    def absolute(self) -> "Workspace":
        """Return the same workspace for a process with another working directory."""
        data_dir = None if self.data_dir is None else self.data_dir.resolve()
        return replace(self, runs=self.runs.resolve(), data_dir=data_dir)

    def train(
        self,
        recipe: Recipe,
        seed: int,
        *,
        execution: Execution | None = None,
        callback: Callback | None = None,
    ) -> RunStore:
        """Train a recipe here, or what is left of it; one run of this process at a time."""
        with ONE_RUN:
            return train_run(
                recipe,
                seed=seed,
                runs=self.runs,
                data_dir=self.data_dir,
                execution=execution or self.execution,
                callback=callback,
            )

    def _finished(self, cell: Cell) -> bool:
        return (cell.recipe.hash, cell.seed) in self.known or self.has_result(cell)


@dataclass(frozen=True)
class Outcome:
    """How a run of a study ended.

    Attributes:
        cell: The run.
        folder: Its folder.
        error: Fraction of the test images with a wrong answer; `None` without a result.
        problem: Why there is no result, if there is none.
        locked: Whether the reason is another process that is working on the same run.
        lost: Whether the reason is that its own process is gone.
    """

    cell: Cell
    folder: Path
    error: float | None = None
    problem: str = ""
    locked: bool = False
    lost: bool = False


def silent(text: str) -> None:
    """Ignore a note."""


def run_cell(cell: Cell, workspace: Workspace, callback: Callback | None = None) -> Outcome:
    """Train one run, or what is left of it; what goes wrong with it is its outcome."""
    folder = workspace.folder(cell)
    try:
        result = workspace.train(cell.recipe, cell.seed, callback=callback).result or {}
    except Interrupted:
        raise
    except RunLockedError as error:
        time.sleep(PAUSE)
        return Outcome(cell, folder, problem=str(error), locked=True)
    except InvintError as error:
        return Outcome(cell, folder, problem=str(error))
    except Exception as error:
        kept = RunStore(folder).write_problem("".join(traceback.format_exception(error)))
        problem = f"{type(error).__name__}: {error} (the traceback is in {kept})"
        return Outcome(cell, folder, problem=problem)
    return Outcome(cell, folder, error=result["error"])


def completed(
    executor: Executor,
    cells: Sequence[Cell],
    workspace: Workspace,
    *,
    at_once: int | None = 1,
    callback: Callable[[Cell], Callback] | None = None,
    note: Note = silent,
) -> Generator[Outcome, None, None]:
    """Train runs on an executor, and yield the outcome of each as it comes.

    A run that another process has locked is tried again after the others. One whose process is
    lost is resumed from its last checkpoint, and given up when that happens too often.

    Args:
        executor: `InProcess()`, `WorkerProcesses(jobs)`, `client.get_executor(pure=False)` of a
            Dask client, or what `executor_for` yields.
        cells: The runs.
        workspace: Where and how; the folders must be the same for all workers.
        at_once: How many runs are handed to the executor at once; `None` for all, where it has a
            queue of its own, as a cluster does.
        callback: Returns the callback of a run; only for runs in this process.
        note: Receives what a user should know.

    Raises:
        RunError: The scheduler of a cluster was lost.
    """
    here = isinstance(executor, InProcess | WorkerProcesses)
    workspace = workspace if here else workspace.absolute()
    queue, running = deque(cells), dict[Future[Outcome], Cell]()
    losses, postponed = Counter[Cell](), set[Cell]()
    try:
        while queue or running:
            while queue and (at_once is None or len(running) < at_once):
                cell = queue.popleft()
                arguments = () if callback is None else (callback(cell),)
                running[executor.submit(run_cell, cell, workspace, *arguments)] = cell
            done, _ = wait_for(running, return_when=FIRST_COMPLETED)
            for future in [each for each in running if each in done]:
                cell = running.pop(future)
                outcome = _outcome(future, cell, workspace.folder(cell))
                losses[cell] += outcome.lost
                if outcome.locked:
                    if cell not in postponed:
                        note(f"{cell.label}: another process is working on it; trying again later")
                    postponed.add(cell)
                    queue.append(cell)
                elif outcome.lost and losses[cell] < LOSSES:
                    note(f"{cell.label}: its process was lost; resuming from its last checkpoint")
                    queue.appendleft(cell)
                else:
                    yield outcome
    finally:
        for future in running:
            future.cancel()


def _outcome(future: "Future[Outcome]", cell: Cell, folder: Path) -> Outcome:
    """Return the outcome of a call, or what became of the process that was to make it."""
    try:
        return future.result()
    except CancelledError as error:  # by the Dask client, when it has lost its scheduler
        raise RunError(
            "the Dask scheduler was lost; finished runs are kept, and the same command resumes"
        ) from error
    except Interrupted:
        raise
    except BrokenExecutor:
        problem = f"its process was lost {LOSSES} times; is there enough memory for it?"
        return Outcome(cell, folder, problem=f"{folder}: {problem}", lost=True)
    except Exception as error:
        if type(error).__name__ == "KilledWorker":  # by name: Dask need not be installed
            problem = "several workers were lost over it; is there enough memory for it?"
        else:
            problem = f"{type(error).__name__}: {error}"
        return Outcome(cell, folder, problem=f"{folder}: {problem}")


# Executors


@contextmanager
def executor_for(
    workspace: Workspace,
    *,
    engine: str = "local",
    jobs: int = 1,
    address: str | None = None,
    slurm: Sequence[str] = (),
    note: Note = silent,
) -> Iterator[Executor]:
    """Yield an executor for runs; an error, Ctrl-C or SIGTERM stops the runs under way.

    Args:
        workspace: Says whether runs want a GPU.
        engine: `local`, or `dask` or `slurm` for a cluster.
        jobs: Number of processes, or of workers of a cluster on this machine.
        address: Of the scheduler of another cluster.
        slurm: Options of sbatch, such as `partition=gpu`.
        note: Receives what a user should know.

    Raises:
        ConfigError: Dask or submitit is not installed, or no scheduler answers.
    """
    with ExitStack() as stack:
        # SIGTERM ends this process as Ctrl-C does, so that its workers end with it.
        stack.enter_context(_handled(signal.SIGTERM, signal.default_int_handler))
        if engine == "dask" or address is not None:
            client = _connect(stack, workspace, jobs=jobs, address=address)
            options = {"pure": False, "resources": _resources(client, workspace, note)}
            executor: Executor = client.get_executor(**options)
            # Left as a context manager, it would wait for the runs under way after an error too.
            stack.push(lambda kind, *_: executor.shutdown(wait=kind is None))
        elif engine == "slurm":
            executor = stack.enter_context(_slurm_queue(workspace, slurm))
        else:
            executor = InProcess() if jobs == 1 else WorkerProcesses(jobs)
            stack.enter_context(executor)
        yield executor


class InProcess(Executor):
    """Makes each call in this process, at once."""

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> "Future[T]":
        """Make a call, and return its future, which is done."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class WorkerProcesses(Executor):
    """Several processes of this machine, which share its cores and take its GPUs in turn.

    Each is a pool of its own: a process that is lost breaks the future of its own call alone, and
    another process takes its place with the next call.

    Args:
        jobs: Number of processes.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.pools = [self._pool(index) for index in range(jobs)]
        self.calls: list[list[Future[Any]]] = [[] for _ in range(jobs)]

    def _pool(self, index: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),  # CUDA does not survive a fork
            initializer=_start_worker,
            initargs=(index, self.jobs),
        )

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> "Future[T]":
        """Hand a call to the process with the fewest calls."""
        self.calls = [[call for call in calls if not call.done()] for calls in self.calls]
        index = min(range(self.jobs), key=lambda each: len(self.calls[each]))
        # The call may start a process, which inherits this: Ctrl-C is to reach it only while it
        # trains, when it can save.
        with _handled(signal.SIGINT, signal.SIG_IGN):
            try:
                future = self.pools[index].submit(_in_worker, function, *arguments, **options)
            except BrokenExecutor:
                self.pools[index].shutdown()
                self.pools[index] = self._pool(index)
                future = self.pools[index].submit(_in_worker, function, *arguments, **options)
        self.calls[index].append(future)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes when their calls are done."""
        for pool in self.pools:
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def stop(self) -> None:
        """End the processes now; a run under way saves a checkpoint first."""
        # Executors have no public way to end their processes before Python 3.14.
        processes = [each for pool in self.pools for each in (pool._processes or {}).values()]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            # Not `join`: a thread of the pool reaps the process, and only one of them can.
            if not connection.wait([process.sentinel], max(0.0, deadline - time.monotonic())):
                process.kill()
        self.shutdown(cancel_futures=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the calls under way, or stop them after an error."""
        if kind is None:
            self.shutdown()
        else:
            self.stop()


def _start_worker(index: int, jobs: int) -> None:
    """Prepare a process to share the machine with others."""
    _end_with_parent()
    choose_gpu(index)
    torch.set_num_threads(threads_each(jobs))


def _in_worker(function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
    """Make a call; a run that is stopped has saved its checkpoint, and ends its process.

    A pool would take the error for an answer, and its process would wait for the next call.
    """
    try:
        return function(*arguments, **options)
    except (Interrupted, KeyboardInterrupt):
        os._exit(128 + signal.SIGTERM)


def threads_each(jobs: int) -> int:
    """Return how many threads each of several processes gets unless it is told."""
    return max(1, torch.get_num_threads() // jobs)


def choose_gpu(index: int) -> None:
    """Let a process that has not used a GPU yet see one of them only: the next in turn."""
    count = torch.cuda.device_count()
    if count > 1:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[index % count]


def _end_with_parent() -> None:
    """End this process at once when the one that started it is gone, however it went."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _handled(number: signal.Signals, handler: Any) -> Iterator[None]:
    """Handle a signal otherwise for a while; only the main thread can, others leave it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


# Dask


def _connect(stack: ExitStack, workspace: Workspace, *, jobs: int, address: str | None) -> Any:
    """Return a client of a cluster that is closed with the stack."""
    distributed = require_extra("distributed", "--engine dask", "cluster")
    if address is None:
        gpus = workspace.execution.device != "cpu" and torch.cuda.is_available()
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,  # a run's memory is its own business
            dashboard_address="127.0.0.1:0",  # any free port
            silence_logs=logging.ERROR,
            resources={"GPU": 1} if gpus else None,
            preload=[__name__] if gpus else None,  # for `dask_setup`
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


def dask_setup(worker: Any) -> None:
    """Give a worker of a cluster on this machine its GPU; Dask calls this when it has started."""
    choose_gpu(worker.name)


def _resources(client: Any, workspace: Workspace, note: Note) -> dict[str, float] | None:
    """Return what a run asks of a worker: a GPU, where the cluster offers some."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"].values())
    if not workers:
        note("the cluster has no worker yet: waiting for one")
    if any(worker["nthreads"] > 1 for worker in workers):
        note("a worker with several threads makes one run at a time: start it with --nthreads 1")
    offered = any(worker["resources"].get("GPU") for worker in workers)
    if offered and workspace.execution.device != "cpu":
        return {"GPU": 1}
    if workspace.execution.device == "cuda" and workers:
        note("no worker offers GPUs: start it with --resources GPU=1, or runs share its GPU")
    return None


# Slurm


class JobQueue(Executor):
    """Hands each call as a job to a queue such as Slurm's, through submitit.

    A job that reaches its time limit, or is preempted, is queued again and makes its call once
    more: a run resumes from its checkpoint. One that ends without a result was lost.

    Args:
        queue: An executor of submitit.
        unfinished: Returns the ids of the jobs that wait or run; `None` where it is not known.
    """

    def __init__(self, queue: Any, unfinished: Callable[[], set[str] | None]) -> None:
        self.queue, self.unfinished = queue, unfinished
        self.jobs: dict[Future[Any], Any] = {}
        self.missing = Counter[str]()
        self.ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(
        self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs
    ) -> "Future[T]":
        """Put a call into the queue."""
        future: Future[T] = Future()
        try:
            self.jobs[future] = self.queue.submit(QueuedCall(), function, *arguments, **options)
        except RuntimeError as error:  # submitit's, with what sbatch said in it
            problem = str(error).strip().splitlines()[-1]
            raise RunError(f"--engine slurm: the job was refused ({problem})") from error
        return future

    def look(self) -> None:
        """Settle the futures of jobs that have ended."""
        unfinished = self.unfinished()
        for future, job in list(self.jobs.items()):
            if job.paths.result_pickle.exists():
                self._settle(future, job)
            elif unfinished is not None and job.job_id not in unfinished:
                self.missing[job.job_id] += 1
                if self.missing[job.job_id] > LATE:
                    self._settle(future, job)

    def _settle(self, future: "Future[Any]", job: Any) -> None:
        del self.jobs[future]
        if not future.set_running_or_notify_cancel():
            return
        if not job.paths.result_pickle.exists():
            future.set_exception(BrokenExecutor(f"job {job.job_id} is gone"))
            return
        try:
            future.set_result(job.result())
        except Exception:  # what submitit makes of an error of the call
            log = job.paths.stderr
            future.set_exception(RunError(f"job {job.job_id} failed; its log is {log}"))

    def _watch(self) -> None:
        while not self.ended.wait(LOOK):
            self.look()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End when the jobs have, or cancel them."""
        if wait and not cancel_futures:
            wait_for(list(self.jobs))
        self.ended.set()
        for job in list(self.jobs.values()):
            job.cancel(check=False)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the jobs, or cancel them after an error; a run under way saves a checkpoint."""
        self.shutdown(wait=kind is None)


class QueuedCall:
    """Makes a call in a job, and says that it can be made again when the job has no time left."""

    def __call__(self, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> "T":
        """Make the call with the cores of the job; a run that is locked is waited for in here.

        Otherwise the queue would see a new job every few seconds.
        """
        cores = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE")
        if cores is not None:
            torch.set_num_threads(int(cores))
        while True:
            result = _in_worker(function, *arguments, **options)
            if not (isinstance(result, Outcome) and result.locked):
                return result

    def checkpoint(self, *arguments: Any, **options: Any) -> Any:
        """Return the same call, which submitit puts into the queue again."""
        helpers = require_extra("submitit.helpers", "--engine slurm", "slurm")
        return helpers.DelayedSubmission(self, *arguments, **options)


def _slurm_queue(workspace: Workspace, options: Sequence[str]) -> JobQueue:
    submitit = require_extra("submitit", "--engine slurm", "slurm")
    parameters = sbatch_parameters(options)
    if shutil.which("sbatch") is None:
        raise ConfigError("--engine slurm: there is no sbatch here; type it where jobs are sent")
    logging.getLogger("submitit").setLevel(logging.ERROR)
    folder = workspace.absolute().runs / ".jobs" / "%j"
    queue = submitit.SlurmExecutor(folder, max_num_timeout=REQUEUES)
    queue.update_parameters(**parameters)
    return JobQueue(queue, slurm_jobs)


def sbatch_parameters(options: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of submitit for options of sbatch, such as `cpus-per-task=8`."""
    given = {}
    for each in options:
        name, equals, value = each.partition("=")
        if not (name and equals and value) or name.startswith("-"):
            raise ConfigError(f"--slurm {each}: expected an option of sbatch, like partition=gpu")
        given[name.replace("_", "-")] = value
    minutes = given.pop("time", "60")
    if not minutes.isdecimal() or int(minutes) < 1:
        raise ConfigError(f"--slurm time={minutes}: expected minutes")
    cores = given.get("cpus-per-task")  # srun no longer takes them over from sbatch by itself
    return {
        "job_name": "invint",
        "time": int(minutes),
        "srun_args": [] if cores is None else [f"--cpus-per-task={cores}"],
        "additional_parameters": given,
    }


def slurm_jobs() -> set[str] | None:
    """Return the ids of the user's jobs that wait or run; `None` where Slurm does not answer.

    Not `sacct`, which submitit would ask: small clusters keep no accounts.
    """
    command = ["squeue", "--noheader", "--me", "--format", "%A"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return set(found.stdout.split())
