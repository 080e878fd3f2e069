"""Run folders written by hand: small, consistent, with real networks and made-up predictions."""

import hashlib
import json
import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from invint.audit import Audit, Turn
from invint.data.dataset import Dataset, Split
from invint.export import ModelCard, export_model
from invint.models.registry import create_model
from invint.nn import Monomials
from invint.study.records import RunRecord, read_run

NAMES = tuple(map(str, range(10)))
OWN_NAME = ("monomials", "global-ws", "local-ws", "mlp", "attention", "sf-ii")
HEADS = {"pooling": "max"} | {name: name for name in OWN_NAME}


@cache
def tiny_dataset(images: int = 120) -> Dataset:
    """Return images of bars whose length is their class, turned about."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(images) % 10
    pictures = torch.zeros(images, 1, 20, 20, dtype=torch.uint8)
    for picture, label in zip(pictures, labels, strict=True):
        length = int(label) + 3
        start = int(torch.randint(1, 19 - length, (), generator=generator))
        picture[0, 8:11, start : start + length] = 230
        picture[0, 11:14, start : start + 2] = 120
    part = Split(pictures, labels)
    return Dataset("digits", part, part, NAMES, note="turned copies of scikit-learn's digits")


@cache
def model_bytes(head: str | None) -> bytes:
    """Return the file of a small network with random weights."""
    torch.manual_seed(1)
    name = "cnn-small" if head is None else "sfcnn-small"
    model = create_model(name, head=head)
    spec = {"name": name, "head": head, "image_size": 20, "in_channels": 1}
    card = ModelCard.from_spec(spec, class_names=NAMES, mean=(0.2,), std=(0.4,))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        export_model(model, path, card)
        return path.read_bytes()


def write_run(
    root: Path,
    variant: str = "pooling",
    *,
    seed: int = 0,
    size: int = 100,
    wrong: int = 12,
    scale: float = 1.0,
    averaged: bool = False,
    version: str = "0.1.0",
    fingerprint: str | None = None,
    lr: float = 0.01,
    data: str = "digits",
    turned: bool = False,
    again: str = "",
) -> Path:
    """Write the folder of a finished run that labels `wrong` of the test images wrongly."""
    dataset = tiny_dataset()
    head = HEADS.get(variant)
    source = {"name": data + again, "note": dataset.note}
    source["fingerprint"] = fingerprint or dataset.fingerprint
    choices: dict[str, Any] = {
        "data": {"name": data + again, "size": size, "test_turns": 8 if averaged else 1},
        "model": {"name": "sfcnn-small" if head else "cnn-small", "head": head},
        "train": {"epochs": 20, "batch_size": 64, "lr": lr, "scale": scale},
        "selection": {"method": "magnitude" if head == "monomials" else "none"},
    }
    name = f"{data}/{variant}"
    digest = hashlib.sha256(json.dumps(choices).encode()).hexdigest()[:12]
    folder = root / name / digest / str(seed)
    folder.mkdir(parents=True)
    logits = make_logits(dataset.test.labels, wrong, seed)
    save_file({"logits": logits, "labels": dataset.test.labels}, folder / "predictions.safetensors")
    (folder / "model.safetensors").write_bytes(model_bytes(head))
    write_json(
        folder / "recipe.json",
        {"format": 1, "name": name, "about": f"{variant} on bars", "choices": choices}
        | {"source": {}, "hash": digest, "seed": seed},
    )
    write_json(folder / "environment.json", environment(version))
    write_json(
        folder / "subset.json",
        {"data": data, "fingerprint": source["fingerprint"], "note": dataset.note, "size": size}
        | {"seed": seed, "indices": [1, 2], "hash": f"subset-{size}-{seed}", "validation": []},
    )
    if turned:
        write_turns(folder / "turns.json", plain=head is None)
    write_log(folder / "log.jsonl", seed, wrong, selects=head == "monomials")
    result = outcome(logits, dataset, name, digest, seed, size, source)
    result |= {"scale": scale, "invint": version}
    result |= {"averaged_error": wrong / 200} if averaged else {}
    write_json(folder / "result.json", result)
    return folder


def make_logits(labels: Tensor, wrong: int, seed: int) -> Tensor:
    """Return logits that are right but for `wrong` images, which take the next class."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[:wrong]
    found = labels.clone()
    found[chosen] = (found[chosen] + 1) % 10
    logits = torch.rand(len(labels), 10, generator=generator)
    height = 1.5 + 5 * torch.rand(len(labels), generator=generator)
    logits[torch.arange(len(labels)), found] += height
    return logits


def outcome(
    logits: Tensor, dataset: Dataset, name: str, digest: str, seed: int, size: int, source: Any
) -> dict[str, Any]:
    """Return what result.json holds, computed from the predictions."""
    labels = dataset.test.labels
    missed = logits.argmax(1) != labels
    return {
        "format": 1,
        "recipe": name,
        "hash": digest,
        "seed": seed,
        "error": missed.double().mean().item(),
        "cross_entropy": torch.nn.functional.cross_entropy(logits, labels).item(),
        "per_class": [
            {"name": each, "images": 12, "error": missed[labels == number].double().mean().item()}
            for number, each in enumerate(NAMES)
        ],
        "parameters": 44000 + len(name),
        "steps": 300,
        "seconds": 41.5,
        "test_images": len(labels),
        "train_images": size,
        "data": source,
    }


def write_log(path: Path, seed: int, wrong: int, *, selects: bool) -> None:
    """Write a learning curve, and a selection in it."""
    lines: list[dict[str, Any]] = []
    for epoch in range(1, 21):
        error = wrong / 120 + 0.8 * 0.8**epoch + 0.004 * ((epoch * 7 + seed) % 5)
        lines.append(
            {"epoch": float(epoch), "step": 15 * epoch, "loss": 3 * error, "error": error}
            | {"cross_entropy": 2.5 * error, "elastic": 0.01, "norm_penalty": 0.0}
            | {"lr": 0.01 * 0.9**epoch, "seconds": 2.0}
        )
    if selects:
        first = Monomials.random(12, max_distance=2, generator=torch.Generator().manual_seed(3))
        scores = [0.1 + 0.05 * ((7 * number) % 12) for number in range(12)]
        kept = sorted(sorted(range(12), key=scores.__getitem__)[-5:])
        event = {"event": "selection", "epoch": 5.0, "step": 75, "method": "magnitude"}
        event |= {"kept": kept, "scores": scores, "monomials": first.keep(kept).to_dict()}
        lines.insert(5, event | {"start": first.to_dict()})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_turns(path: Path, *, plain: bool) -> None:
    """Write made-up accuracies by angle: a clover for a plain network, nearly a circle else."""
    depth = 0.25 if plain else 0.02
    turns = tuple(
        Turn(
            angle=float(angle),
            mirrored=False,
            exact=angle % 90 == 0,
            mean_drift=0.1,
            max_drift=0.2,
            changed=0.0,
            accuracy=0.95 - depth * math.sin(math.radians(2 * angle)) ** 2,
        )
        for angle in range(0, 360, 15)
    )
    Audit("made up", 120, (20, 20), "disc", "float32", turns).save(path)


def environment(version: str) -> dict[str, Any]:
    """Return what environment.json holds."""
    return {
        "invint": version,
        "torch": "2.13.0",
        "python": "3.11.7",
        "platform": "Linux-x86_64",
        "device": "cpu",
        "threads": 2,
        "precision": "float32",
        "commit": "0123abc",
    }


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write one file of a run."""
    path.write_text(json.dumps(values))


def write_study(root: Path) -> list[RunRecord]:
    """Write four recipes at two sizes with three seeds, and read them."""
    wrong = {"cnn": (40, 16), "pooling": (24, 7), "local-ws": (15, 6), "monomials": (21, 8)}
    return [
        read_run(
            write_run(
                root,
                variant,
                seed=seed,
                size=size,
                wrong=wrong[variant][place] + (seed * len(variant)) % 3,
                averaged=variant == "cnn",
                turned=True,
            )
        )
        for variant in wrong
        for place, size in enumerate((100, 1000))
        for seed in range(3)
    ]
