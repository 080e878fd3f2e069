"""The state of a run as a checkpoint, and back."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from invint.nn import Monomials
from invint.run.faults import check_finite
from invint.train.checkpoint import (
    Checkpoint,
    latest_checkpoint,
    load_optimizer,
    optimizer_tensors,
)

if TYPE_CHECKING:
    from invint.run.training import Run


def save(run: "Run") -> None:
    """Write a checkpoint of a run, unless its numbers are none any more."""
    tensors = {f"network.{k}": v for k, v in run.network.state_dict().items()}
    moments = optimizer_tensors(run.network, run.optimizer)
    tensors |= {f"optimizer.{name}": value for name, value in moments.items()}
    tensors |= {"meter": run.meter.sums, "random.cpu": torch.get_rng_state()}
    if run.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(run.device)
    if not all(each.isfinite().all() for each in tensors.values()):
        check_finite(float("nan"), run.pace.epoch_at(run.step), run.folder.path)
    monomials = run.monomials
    facts = {
        "step": run.step,
        "selected": run.selected,
        "head": run.card.head,
        "monomials": None if monomials is None else asdict(monomials),
        "best": run.best,
        "log_lines": len(run.folder.log_lines()),
        "seconds": run.seconds,
    }
    Checkpoint(tensors, facts).write(run.folder.path)


def restore(run: "Run") -> None:
    """Take a run back to its last checkpoint that is whole, or to the start."""
    checkpoint, problems = latest_checkpoint(run.folder.path)
    for path, problem in problems.items():
        run.watch.noted(f"{problem}; going on from what was saved before it")
        if run.processes.leads:
            path.replace(path.with_name(f"damaged-{path.name}"))
    if run.processes.leads:
        run.folder.cut_log(0 if checkpoint is None else checkpoint.facts["log_lines"])
    if checkpoint is None:
        return
    facts = checkpoint.facts
    stored = facts["monomials"]
    run.build(facts["head"], None if stored is None else Monomials.from_dict(stored))
    run.network.load_state_dict(checkpoint.part("network."))
    load_optimizer(run.network, run.optimizer, checkpoint.part("optimizer."))
    run.meter.sums.copy_(checkpoint.tensors["meter"])
    torch.set_rng_state(checkpoint.tensors["random.cpu"])
    if "random.cuda" in checkpoint.tensors and run.device.type == "cuda":
        torch.cuda.set_rng_state(checkpoint.tensors["random.cuda"], run.device)
    run.step, run.selected, run.best = facts["step"], facts["selected"], facts["best"]
    run.seconds_before = facts["seconds"]
