"""How the files in this folder were made. It ran with version 0.1 and runs with 0.1 only.

    PYTHONPATH=src:tests OMP_NUM_THREADS=1 python tests/golden/make.py

The files are kept as 0.1 wrote them, so that later versions are held to read them; to run this
again with a later version would make the tests say nothing.
"""

import json
import pickle
import shutil
import tempfile
import zipfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import test_golden as golden
import torch
from invint.recipes.changes import changed
from invint.run import Execution, Watch, train_run
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn

from invint import InvariantClassifier, create_model
from invint.data import load_dataset
from invint.export import ModelCard, export_model, load_model
from invint.recipes import RECIPES, find_recipe
from invint.version import __version__

HERE = Path(__file__).parent

TINY = (
    "data.size=40",
    "model.widths=2,3,4",
    "model.n_fc=6",
    "model.group=C4",
    "train.batch_size=16",
    "train.epochs=4",
    "train.scale=0.08",
)
PRUNED = ("selection.start=6", "selection.steps=[[1,4],[2,2]]")
CASES: dict[str, dict[str, Any]] = {
    "local-ws": {
        "name": "digits/local-ws",
        "set": [*TINY, "data.validation=0.25", "model.dropout=0.3"],
        "seed": 1,
        "stop": 10,  # with a line in the log that no checkpoint knows
        "saved": {"stopped": 9, "damaged": 8},
    },
    "monomials": {
        "name": "digits/monomials",
        "set": [*TINY, *PRUNED],
        "seed": 2,
        "stop": 8,  # after the first of two selections, at step 5
        "saved": {"stopped": 7, "damaged": 6},
    },
}
CHANGES = [
    ("digits/local-ws", ["train.lr=3e-4"]),
    ("digits/local-ws", ["data.size=100", "train.scale=0.1"]),
    ("digits/pooling", ["data.augment=[]", "model.group=D4", "model.widths=2,3,4"]),
    ("digits/cnn", ["data.validation=0.2", "data.test_turns=8", "data.augment=rotate,flip"]),
    ("digits/mlp", ["data.skip_bad=true", "data.side=32", "data.test_share=0.3"]),
    ("digits/attention", ["data.name=folder:/nowhere/pictures", "data.side=32"]),
    ("digits/attention", ["data.name=arrays:/nowhere/pictures.npz", "data.test_share=0.25"]),
    ("digits/monomials", ["selection.start=6", "selection.steps=[[1,4],[2,2]]"]),
    ("digits/monomials-lse", ["selection.pretrain=3", "selection.ridge=0.5"]),
    ("rotmnist/local-ws", ["data.name=rotmnist-regenerated", "data.size=500"]),
    ("rotmnist/attention", ["model.attention_heads=2", "model.attention_dropout=0.1"]),
    ("svhn/local-ws", ["data.size=none", "train.accumulate=4", "train.class_weights=true"]),
    ("cifar10/pooling", ["train.optimizer=adam", "train.decay=exponential", "train.lr_decay=0.9"]),
    ("stl10/monomials", ["train.lr_decay_epochs=10,20,30", "train.weight_decay=1e-3"]),
]
COMMANDS = (
    "",
    *("train", "evaluate", "predict", "audit", "export", "fit"),
    *("study", "tune", "report", "monomials", "serve", "models"),
    *("recipes", "recipes show", "data", "data fetch", "data check", "data show"),
)


def write(name: str, values: Any) -> None:
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, indent=None if "recipes" in name else 1) + "\n")


def make_recipes() -> None:
    recipes = {name: find_recipe(name) for name in RECIPES}
    cases = [(name, some, changed(find_recipe(name), some)) for name, some in CHANGES]
    lines = {
        "recipes": {
            name: {"hash": each.hash, "choices": each.choices} for name, each in recipes.items()
        },
        "changed": [
            {"name": name, "set": some, "hash": each.hash, "choices": each.choices}
            for name, some, each in cases
        ],
    }
    write("recipes.json", lines)


class Stop(Exception):
    """Raised in the middle of a run: as sudden as a kill, as far as the folder goes."""


class Stopping(Watch):
    """Stops a run at a step: once it is logged, or once it is done."""

    def __init__(self, last: int) -> None:
        self.last = last

    def stepped(self, step: int) -> None:
        if step == self.last and step % 5:
            raise Stop

    def logged(self, entry: dict[str, Any]) -> None:
        if entry["step"] == self.last and "loss" in entry:
            raise Stop


def make_folders() -> None:
    training = import_module("invint.run.training")
    for name in ("SECONDS_BETWEEN_CHECKPOINTS", "SECONDS_WITHOUT_CHECKPOINT"):
        setattr(training, name, -1.0)  # save after every step
    for name, case in CASES.items():
        for state in ("complete", "stopped"):
            with tempfile.TemporaryDirectory() as runs:
                folder = trained(case, Path(runs), None if state == "complete" else case["stop"])
                kept = HERE / "folders" / name / state
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("lock"))
            neutral(kept / "environment.json", case["name"])
    write("folders/recipes.json", CASES)


def trained(case: dict[str, Any], runs: Path, stop: int | None) -> Path:
    recipe = changed(find_recipe(case["name"]), case["set"])
    watch = Watch() if stop is None else Stopping(stop)
    once = Execution(device="cpu", threads=1)
    with suppress(Stop):
        train_run(recipe, seed=case["seed"], runs=runs, execution=once, watch=watch)
    return runs / recipe.name / recipe.hash / str(case["seed"])


def neutral(path: Path, recipe: str) -> None:
    """Take the machine out of what it recorded of itself."""
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | plain(recipe), indent=1) + "\n")


def plain(recipe: str) -> dict[str, Any]:
    return {"platform": "Linux", "commit": None, "command": f"invint train {recipe}"}


def make_pictures() -> None:
    images = load_dataset("digits").test.images[:3, 0].numpy()
    (HERE / "pictures").mkdir(exist_ok=True)
    for number, image in enumerate(images):
        Image.fromarray(image).save(HERE / "pictures" / f"{number}.png")


def make_commands() -> None:
    found: dict[str, dict[str, Any]] = {}
    for name in golden.FOLDERS:
        with tempfile.TemporaryDirectory() as place:
            out = Path(place)
            folder = shutil.copytree(HERE / "folders" / name / "complete", out / name)
            found[name] = {
                command: golden.answers(name, folder, command, out)
                for command in ("evaluate", "predict", "audit", "report")
            }
    for state in ("complete", "stopped"):
        folder = HERE / "folders" / "monomials" / state
        answers = golden.answers("monomials", folder, "monomials", HERE)
        found["monomials"][f"monomials {state}"] = answers
    write("commands.json", found)


def make_exports() -> None:
    spec = {"num_classes": 3, "in_channels": 2, "image_size": (12, 12), "group": "C4"}
    options = {"widths": [2, 3, 4], "n_fc": 6}
    logits: dict[str, dict[str, Any]] = {}
    (HERE / "exports").mkdir(exist_ok=True)
    for seed, head in enumerate(golden.MODELS, start=5):
        torch.manual_seed(seed)
        whole = {"name": "sfcnn-small", "head": head, **spec}
        model = create_model(**whole, **options)  # type: ignore[arg-type]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):  # so that it is not as it was built
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(torch.rand(6, 2, 12, 12)), torch.arange(6) % 3)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        card = ModelCard.from_spec(
            whole | {"options": options},
            class_names=("cat", "dog", "owl"),
            mean=(0.4, 0.5),
            std=(0.2, 0.3),
        )
        for suffix, format in (("safetensors", None), ("onnx", None), ("pt2", "torch")):
            path = HERE / "exports" / f"{head}.{suffix}"
            export_model(model, path, card, **({} if format is None else {"format": format}))
        without_places(HERE / "exports" / f"{head}.pt2")
        loaded = load_model(HERE / "exports" / f"{head}.safetensors")
        logits[head] = {
            "seed": seed,
            "class_names": ["cat", "dog", "owl"],
            "logits": loaded(golden.images_of(seed)).tolist(),
        }
    write("exports/logits.json", logits)


def without_places(path: Path) -> None:
    """Take out of a program where the code lay that it was traced from: 0.1 leaves it in."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            for place in (HERE.parents[1], Path(torch.__file__).parents[1]):
                content = content.replace(f"{place}/".encode(), b"")
            archive.writestr(zipfile.ZipInfo(name), content)


def make_estimator() -> None:
    images, labels = load_digits(return_X_y=True)
    estimator = InvariantClassifier(head="monomials", group="C4", steps=10, batch_size=32)
    estimator.fit(images[:200], labels[:200])
    (HERE / "estimator.pkl").write_bytes(pickle.dumps(estimator, protocol=4))
    some = images[200:210]
    values = {
        "probabilities": estimator.predict_proba(some).tolist(),
        "labels": estimator.predict(some).tolist(),
        "params": {key: str(value) for key, value in estimator.get_params().items()},
        "image_shape": list(estimator.image_shape_),
    }
    write("estimator.json", values)


def make_help() -> None:
    (HERE / "help").mkdir(exist_ok=True)
    for command in COMMANDS:
        name = "-".join(["invint", *command.split()])
        text = golden.help_of(*command.split())
        (HERE / "help" / f"{name}.txt").write_text(text, encoding="utf-8")


def make_study() -> None:
    (HERE / "study").mkdir(exist_ok=True)
    records = HERE / "study" / "records.json"
    with tempfile.TemporaryDirectory() as runs:
        golden.invint("study", *golden.STUDY, "--runs", runs, "--records", str(records))
    values = json.loads(records.read_text())["runs"]
    for each in values:
        each["environment"] |= plain(each["recipe"])
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in values)
    records.write_text('{"format": 1, "runs": [\n' + lines + "\n]}\n")
    for format, name in golden.TABLES.items():
        with tempfile.TemporaryDirectory() as runs:
            table = golden.invint(*golden.tabulated(format, records, Path(runs)))
        (HERE / "study" / name).write_text(table)


def make_data() -> None:
    batches = golden.batches_of("flip")
    values = {
        "digits": load_dataset("digits").fingerprint,
        "regenerated": load_dataset("rotmnist-regenerated").fingerprint,
        "indices": [batches.indices(step).tolist() for step in golden.STEPS],
        "batches": {augment: golden.hash_of(augment) for augment in golden.AUGMENTATIONS},
    }
    (HERE / "data.json").write_text(json.dumps(values) + "\n")


def make() -> None:
    if not __version__.startswith("0.1."):
        raise SystemExit(f"the golden files are those of 0.1; this is {__version__}")
    write("environment.json", golden.environment())
    make_recipes()
    make_folders()
    make_pictures()
    make_commands()
    make_exports()
    make_estimator()
    make_help()
    make_study()
    make_data()


if __name__ == "__main__":
    make()
