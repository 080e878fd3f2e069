"""What a run reports while it is under way."""

import os
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from invint.errors import ConfigError, require_extra
from invint.train.store import RunStore


class Callback:
    """Progress hooks of a run; all optional."""

    def on_decode(self, count: int, total: int) -> None:
        """`count` of `total` pictures are decoded; only the first time that a folder is read."""

    def on_start(self, folder: Path, step: int, steps: int) -> None:
        """The run in `folder` starts, or resumes where `step` of `steps` are done."""

    def on_step(self, step: int) -> None:
        """`step` steps are done."""

    def on_log(self, entry: dict[str, Any]) -> None:
        """A line was added to the log: of an epoch, or of an `event`."""

    def on_note(self, text: str) -> None:
        """Something happened that the user should know."""

    def on_finish(self, result: dict[str, Any]) -> None:
        """The run is complete, with this result, now or since an earlier start."""

    def on_end(self) -> None:
        """Nothing more will come: the run is complete, was stopped or failed."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class Callbacks(Callback):
    """Several callbacks as one: every hook is forwarded to each of them in turn.

    Args:
        callbacks: What to forward to.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = tuple(callbacks)
        for hook in HOOKS:  # so that none is forgotten when a hook is added
            setattr(self, hook, partial(self._forward, hook))

    def _forward(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(*arguments)


class Tracker(Callback):
    """Hands the numbers of the log to a tracker of experiments, and the test error at the end.

    A tracker that fails when the run starts stops it; one that fails later is left with a warning,
    and the run continues.
    """

    module = ""  # and the extra that installs it
    advice = "train without it"

    def __init__(self) -> None:
        self.owner = type(self).__name__
        self.library = require_extra(self.module, self.owner, self.module)
        self.is_open = self.is_complete = False

    def on_start(self, folder: Path, step: int, steps: int) -> None:  # noqa: ARG002
        """Begin a run of the tracker, or go on with the one that was begun before."""
        try:
            self.begin(RunStore(folder), step)
        except Exception as error:  # each service has errors of its own
            problem = " ".join(str(error).split())[:300]
            raise ConfigError(f"{self.owner}: {problem}; {self.advice}") from error
        self.is_open, self.is_complete = True, False

    def on_log(self, entry: dict[str, Any]) -> None:
        """Send every number."""
        numbers = {name: value for name, value in entry.items() if isinstance(value, float)}
        self._try(self.send, numbers, entry["step"])

    def on_finish(self, result: dict[str, Any]) -> None:
        """Send the test error."""
        self._try(self.send, {"test_error": result["error"]}, result["steps"])
        self.is_complete = True

    def on_end(self) -> None:
        """End the run of the tracker."""
        self._try(self.close, self.is_complete)
        self.is_open = False

    def begin(self, store: RunStore, step: int) -> None:
        """Open what the numbers go to; `step` steps are done."""

    def send(self, numbers: dict[str, float], step: int) -> None:
        """Send numbers."""

    def close(self, complete: bool) -> None:
        """End what was begun; the run is complete, or was stopped."""

    def _try(self, call: Callable[..., None], *arguments: Any) -> None:
        if not self.is_open:  # of a run that was complete before, or failed before it began
            return
        try:
            call(*arguments)
        except Exception as error:
            self.is_open = False
            problem = " ".join(str(error).split())[:300]
            warnings.warn(f"{self.owner}: {problem}; the run goes on without it", stacklevel=2)


class TensorBoard(Tracker):
    """Writes the numbers of the log into the run's folder, where TensorBoard finds them."""

    module = "tensorboard"

    def begin(self, store: RunStore, step: int) -> None:
        """Open the file; what an interrupted run wrote after its checkpoint no longer counts."""
        from torch.utils.tensorboard import SummaryWriter

        # From there on TensorBoard forgets; what was logged at the checkpoint's own step stays.
        self.writer = SummaryWriter(str(store.path / "tensorboard"), purge_step=step + 1)

    def send(self, numbers: dict[str, float], step: int) -> None:
        """Write numbers."""
        for name, value in numbers.items():
            self.writer.add_scalar(name, value, step, time.time())

    def close(self, complete: bool) -> None:  # noqa: ARG002
        """Close the file."""
        self.writer.close()


class MLflow(Tracker):
    """Sends the numbers of the log to the MLflow that `MLFLOW_TRACKING_URI` names.

    The experiment is `MLFLOW_EXPERIMENT_NAME`, or `invint`; parameters are the recipe's choices.
    A run that is resumed goes on with the same run of MLflow, if it is still there.
    """

    module = "mlflow"
    advice = "set MLFLOW_TRACKING_URI to a server, or pip install mlflow for a local database"

    def begin(self, store: RunStore, step: int) -> None:  # noqa: ARG002
        """Find the run of an earlier start, or create one."""
        self.client = self.library.MlflowClient()
        self.run = store.tracked_as("mlflow") or ""
        try:
            self.client.update_run(self.run, status="RUNNING")
        except self.library.exceptions.MlflowException:
            self.run = self._create(store.recipe or {})
            store.track_as("mlflow", self.run)

    def _create(self, recipe: dict[str, Any]) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "invint")
        experiment = self.client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self.client.create_experiment(name)
        run = self.client.create_run(number, run_name=f"{recipe['name']} seed {recipe['seed']}")
        for key, value in flattened(recipe).items():
            self.client.log_param(run.info.run_id, key, value)
        return str(run.info.run_id)

    def send(self, numbers: dict[str, float], step: int) -> None:
        """Send numbers, all at once."""
        now = round(1000 * time.time())
        metric = self.library.entities.Metric
        metrics = [metric(name, value, now, step) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics)

    def close(self, complete: bool) -> None:
        """Say how the run ended."""
        self.client.set_terminated(self.run, "FINISHED" if complete else "KILLED")


class WandB(Tracker):
    """Sends the numbers of the log to Weights & Biases, or keeps them in the run's folder.

    The environment says which, and where: `WANDB_MODE=offline`, `WANDB_PROJECT` (by default
    `invint`). A run that is resumed goes on under the same id.
    """

    module = "wandb"
    advice = "run `wandb login`, or set WANDB_MODE=offline"

    def begin(self, store: RunStore, step: int) -> None:  # noqa: ARG002
        """Start a run of W&B with the recipe's choices, or go on with that of an earlier start."""
        recipe = store.recipe or {}
        self.run = self.library.init(
            project=os.environ.get("WANDB_PROJECT", "invint"),
            dir=store.path,
            id=store.tracked_as("wandb"),
            name=f"{recipe['name']} seed {recipe['seed']}",
            config=recipe,
            resume="allow",
            settings=self.library.Settings(console="off"),  # the terminal is the user's
        )
        store.track_as("wandb", self.run.id)

    def send(self, numbers: dict[str, float], step: int) -> None:
        """Send numbers."""
        self.run.log(numbers, step=step)

    def close(self, complete: bool) -> None:
        """Wait until all is sent or written."""
        self.run.finish(exit_code=0 if complete else 1)


def flattened(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested choices under names with dots, such as `train.lr`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        inner = flattened(value, f"{prefix}{name}.") if isinstance(value, dict) else None
        flat |= {f"{prefix}{name}": value} if inner is None else inner
    return flat


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
