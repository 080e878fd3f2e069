"""What a run is executed on: device and precision, several processes, signals to stop."""

import os
import platform
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from invint.errors import ConfigError, brief
from invint.nn import GroupBatchNorm
from invint.version import __version__

FEW, MANY = 5, 10  # algorithms of cuDNN that are tried for each convolution
LONG = 7_000  # steps in which what trying many costs is won back
FIXED = ("device", "precision", "compile", "threads", "deterministic", "synchronized")
DEVICES: dict[str, Callable[[], bool]] = {  # and whether they are there
    "cpu": lambda: True,
    "cuda": lambda: torch.cuda.is_available(),
    "mps": lambda: torch.backends.mps.is_available(),
}
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
MOST_THREADS = 1024  # beyond that the system refuses, in ways that do not say so


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How to execute a run; `None` is decided by the machine.

    Attributes:
        device: `cpu`, `cuda` or `mps`, a GPU of Apple's.
        precision: `float32`, or `bfloat16` under autocast, the default on CUDA.
        compile: Whether to use `torch.compile`; by default on CUDA, in one process.
        threads: Of the CPU; a run keeps the number it started with.
        deterministic: Only algorithms that repeat their bits, on CUDA at some cost.
        synchronized: Batch-norm statistics over all processes.
        cache: Where compiled code is kept; see `cache_folder`.
    """

    device: str | None = None
    precision: str | None = None
    compile: bool | None = None
    threads: int | None = None
    deterministic: bool | None = None
    synchronized: bool | None = None
    cache: Path | None = None

    def decided(self) -> "Execution":
        """Return this with nothing left open."""
        self._check_types()
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        precision = self.precision or ("bfloat16" if device == "cuda" else "float32")
        if device not in DEVICES or precision not in ("float32", "bfloat16"):
            raise ConfigError(
                "expected the device cpu, cuda or mps and the precision float32 or bfloat16, "
                f"got {device!r} and {precision!r}"
            )
        if not DEVICES[device]():
            raise ConfigError(
                f"device {device!r} is not available here; leave --device out for the CPU"
            )
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise ConfigError(f"expected 1 to {MOST_THREADS} threads, got {self.threads}")
        return replace(
            self,
            device=device,
            precision=precision,
            compile=device == "cuda" if self.compile is None else self.compile,
            threads=self.threads or torch.get_num_threads(),
            deterministic=bool(self.deterministic),
            synchronized=bool(self.synchronized),
        )

    def _check_types(self) -> None:
        """Refuse what is of another type: the folder of a run may say anything."""
        kinds = {"device": str, "precision": str, "threads": int}
        for key in FIXED:
            kind, value = kinds.get(key, bool), getattr(self, key)
            if not isinstance(value, kind | None):
                raise ConfigError(f"{key}: expected {kind.__name__}, got {brief(value)}")

    def other_than(self, begun: dict[str, Any]) -> dict[str, Any]:
        """Return what is asked for and contradicts what a run began with."""
        asked = {key: getattr(self, key) for key in FIXED}
        return {key: each for key, each in asked.items() if each not in (None, begun.get(key))}

    def as_begun(self, begun: dict[str, Any], owner: Path) -> "Execution":
        """Take what a run began with, and refuse what contradicts it."""
        for key, wanted in self.other_than(begun).items():
            raise ConfigError(
                f"{owner}: the run began with {key} {begun.get(key)}, got {wanted}; leave it out "
                "to resume, or choose another --runs folder"
            )
        return replace(self, **{key: begun.get(key) for key in FIXED}).decided()

    @property
    def torch_device(self) -> torch.device:
        """The device of this process."""
        if self.device == "cuda":
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device(self.device or "cpu")

    def autocast(self) -> torch.autocast:
        """Return the context a network is called in."""
        half = self.precision == "bfloat16"
        dtype = torch.bfloat16 if half else None
        return torch.autocast(self.torch_device.type, dtype=dtype, enabled=half)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set threads and algorithms as asked, fork the global generator, and put all back."""
        cudnn, memory = torch.backends.cudnn, cast("Any", torch.utils.deterministic)
        threads = torch.get_num_threads()
        strict, filled = (
            torch.are_deterministic_algorithms_enabled(),
            memory.fill_uninitialized_memory,
        )
        tried = cudnn.benchmark, cudnn.benchmark_limit
        in_use = self.device == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        devices = range(torch.cuda.device_count()) if in_use else ()  # seeding reaches all of them
        try:
            torch.set_num_threads(self.threads or threads)
            if self.deterministic:
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                torch.use_deterministic_algorithms(True)
                memory.fill_uninitialized_memory = False  # costs time, and we read none
            cudnn.benchmark = self.device == "cuda" and not self.deterministic
            cudnn.benchmark_limit = FEW
            with (
                torch.random.fork_rng(devices=devices),
                self._patient_compiler(),
                self._kept_code(),
            ):
                yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(strict)
            memory.fill_uninitialized_memory = filled
            cudnn.benchmark, cudnn.benchmark_limit = tried

    def _patient_compiler(self) -> AbstractContextManager[object]:
        """Let the compiler see more kinds of networks than its default before it gives up."""
        if not self.compile:
            return nullcontext()
        from torch._dynamo import config  # not by itself imported with torch

        patch: AbstractContextManager[object] = config.patch(recompile_limit=64)
        return patch

    def _kept_code(self) -> AbstractContextManager[object]:
        """Let compilers find what they made in other processes, of our own kernels too."""
        if not self.compile and self.device != "cuda":
            return nullcontext()
        return code_kept_in(cache_folder(self.cache))

    def environment(self) -> dict[str, Any]:
        """Describe where and with what the run began."""
        gpu = torch.cuda.get_device_name() if self.device == "cuda" else None
        return {
            "invint": __version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": gpu or platform.processor() or platform.machine(),
            "device": self.device,
            "precision": self.precision,
            "compile": self.compile,
            "threads": self.threads,
            "deterministic": self.deterministic,
            "processes": int(os.environ.get("WORLD_SIZE", "1")),
            "synchronized": self.synchronized,
            "commit": _commit(),
            "command": _command(),
        }


def try_algorithms(steps: int) -> None:
    """Let the first step of a long run try more algorithms for each convolution.

    On an H200 ten instead of five cost `sfcnn` 17 s and gained 2.4 ms a step, `sf-wrn16-4` nothing.
    """
    torch.backends.cudnn.benchmark_limit = MANY if steps >= LONG else FEW


def cache_folder(folder: Path | None = None) -> Path:
    """Return where compiled code is kept: the folder given, `INVINT_CACHE`, or the user's cache.

    What is in it was made by this machine's compilers for its processor, its GPU and its versions,
    which they check. It may be copied to a machine of the same kind. PyTorch reads it as code: it
    must come from yourself.
    """
    if folder is not None:
        return folder
    if chosen := os.environ.get("INVINT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "invint-compiled"


@contextmanager
def code_kept_in(folder: Path) -> Iterator[None]:
    """Let the compilers read and write their code in a folder, and put back what they had."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot keep compiled code there ({error.strerror}); set INVINT_CACHE to a "
            "folder that can be written"
        ) from error
    before = {name: os.environ.get(name) for name in CACHES}
    os.environ.update({name: str(folder.resolve() / part) for name, part in CACHES.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _command() -> str:
    """Return the command line as it can be typed again; `python -m invint` is `invint`."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return shlex.join([name, *map(without_place, sys.argv[1:])])


def without_place(argument: str) -> str:
    """Return an argument of a command for others to read: of a folder elsewhere, its name alone."""
    option, equals, value = argument.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return argument
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name
    return f"{option}{equals}{here}"


def _commit() -> str | None:
    """Return the commit of the code, where it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run.

    Attributes:
        rank: Index of this process; 0 writes all files.
        size: Number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def any(self, flag: bool) -> bool:
        """Return whether any process says so."""
        if self.size == 1:
            return flag
        flags: list[bool] = [False] * self.size
        dist.all_gather_object(flags, flag)
        return True in flags

    def sum_over_processes(self, values: Tensor) -> None:
        """Replace values by their sum over all processes."""
        if self.size > 1:
            dist.all_reduce(values)

    def from_main(self, value: T) -> T:
        """Return the value of the main process, so that all continue with the same."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def wrap(self, network: nn.Module, device: torch.device) -> nn.Module:
        """Return the network so that gradients are averaged over all processes."""
        if self.size == 1:
            return network
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(network, device_ids=devices)


@contextmanager
def process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """Join the processes that `torchrun` started, if it did."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ProcessGroup()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    try:
        yield ProcessGroup(dist.get_rank(), size)
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


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM ask for a stop; the same one again stops at once."""
    asked, seen = threading.Event(), set[int]()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(signal_number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if signal_number in seen:  # torchrun sends a SIGTERM of its own after a Ctrl-C
            raise KeyboardInterrupt
        seen.add(signal_number)
        asked.set()

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
