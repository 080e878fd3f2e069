"""The end of a run: the network as a file, its predictions on the test images, the result."""

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from invint.export import load_network, network_bytes
from invint.files import write_whole
from invint.models.folding import fold
from invint.run.folder import FORMAT_VERSION
from invint.train.evaluate import Scores, logits_of, scores_of
from invint.version import __version__

if TYPE_CHECKING:
    from invint.run.training import Run


def finish(run: "Run") -> dict[str, Any]:
    """Evaluate the last weights on the test images and write everything down."""
    path = run.folder.path
    write_whole(path / "model.safetensors", network_bytes(run.network, run.current_card))
    logits, labels = test_logits(run, run.network, turns=1)
    write_whole(path / "predictions.safetensors", save({"logits": logits, "labels": labels}))
    dataset, scores = run.images.dataset, scores_of(logits, labels)
    result: dict[str, Any] = {
        "format": FORMAT_VERSION,
        "invint": __version__,
        "recipe": run.recipe.name,
        "hash": run.recipe.hash,
        "seed": run.seed,
        **describe(scores, dataset.class_names),
        "parameters": sum(each.numel() for each in run.network.parameters()),
        "steps": run.pace.steps,
        "scale": run.recipe.train.scale,
        "train_images": len(run.images.chosen),
        "test_images": len(labels),
        "data": {
            "name": dataset.name,
            "note": dataset.note,
            "fingerprint": dataset.fingerprint,
            "subset": run.images.describe(run.seed)["hash"],
        },
    }
    turns = run.recipe.data.test_turns
    if turns > 1:
        result["averaged_error"] = scores_of(*test_logits(run, run.network, turns=turns)).error
        result["averaged_over"] = turns
    if run.best is not None:
        result["best"] = {**run.best, "error": best_error(run)}
        result["validation_error"] = run.validate()
    result["seconds"] = round(run.seconds, 3)
    for name in ("previous.safetensors", "next.safetensors"):
        (path / name).unlink(missing_ok=True)
    run.folder.write("result.json", result)
    return result


def describe(scores: Scores, class_names: tuple[str, ...]) -> dict[str, Any]:
    """Return scores as plain data; a class without images has no error."""
    rows = zip(class_names, scores.images, scores.per_class, strict=True)
    return {
        "error": scores.error,
        "cross_entropy": scores.cross_entropy,
        "per_class": [
            {"name": name, "images": images, "error": error if images else None}
            for name, images, error in rows
        ],
    }


def test_logits(run: "Run", network: nn.Module, *, turns: int) -> tuple[Tensor, Tensor]:
    """Return logits and labels of the test images."""
    black = [-mean / std for mean, std in zip(run.images.mean, run.images.std, strict=True)]
    background = torch.tensor(black, device=run.device)[:, None, None]
    return logits_of(
        fold(network),
        run.in_order(run.images.dataset.test),
        autocast=run.execution.autocast,
        turns=turns,
        background=background,
    )


def best_error(run: "Run") -> float:
    """Return the test error of the weights that validation liked best."""
    network, _ = load_network(run.folder.path / "best.safetensors")
    return scores_of(*test_logits(run, network.to(run.device), turns=1)).error
