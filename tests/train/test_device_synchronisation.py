"""Nothing inside an epoch waits for the device."""

from pathlib import Path

import pytest
import torch

from invint.recipes import changed, find_recipe
from invint.train import Execution
from invint.train.device import ProcessGroup
from invint.train.loop import fit
from invint.train.run import Run
from invint.train.setup import RunData
from invint.train.store import RunStore


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
@pytest.mark.parametrize("recipe", ["digits/local-ws", "digits/monomials"])
def test_no_step_waits_for_the_device(tmp_path: Path, recipe: str) -> None:
    chosen = changed(find_recipe(recipe), ["train.reg=0.1", "train.norm_penalty=0.1"])
    execution = Execution(device="cuda", compile=False).decided()
    with execution.applied():
        run = Run(
            chosen, 0, RunStore(tmp_path), RunData.of(chosen, 0, None), execution, ProcessGroup()
        )

        def steps(numbers: range) -> None:
            fit(
                run.objective,
                run.optimizer,
                run.batches,
                steps=numbers,
                rate=run.rate,
                meter=run.meter,
                after_step=lambda step: run.after_step(lambda: False, 1000, step),
            )

        steps(range(3))
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps(range(3, 150))  # two blocks of random numbers are drawn on the way
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert run.meter.read()["loss"] > 0
